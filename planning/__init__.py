"""Plans a fleet before it exists: the number of devices, ε, and an attacker's possible beliefs."""
