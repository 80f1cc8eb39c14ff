"""Plans a fleet before there is one: how many devices, which ε, and what an attacker learns."""
