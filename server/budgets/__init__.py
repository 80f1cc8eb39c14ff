"""What a device may spend: its policy, the budget that is left, and when it runs out."""
