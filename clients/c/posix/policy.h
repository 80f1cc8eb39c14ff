/* What this program will ever take part in, whatever a server asks: one report costs at most epsilon = 4, a lifetime 8. */
HUSHMOTE_POLICY(policy, 8000000, 0, 4000000, HUSHMOTE_SUM, false, "room_temp");
