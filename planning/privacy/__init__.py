"""What an attacker can believe after reports, and the audit of the shipped randomizer."""
