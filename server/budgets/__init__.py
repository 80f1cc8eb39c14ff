"""A device's privacy budget: its policy, the remaining budget, and when it will run out."""
