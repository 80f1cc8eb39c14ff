/* This program's limits, whatever a server asks for: at most epsilon = 4 per report and 8 per lifetime. */
HUSHMOTE_POLICY(policy, 8000000, 0, 4000000, HUSHMOTE_SUM, false, "room_temp");
