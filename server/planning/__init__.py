"""What to ask of a fleet before asking it, and what its budgets still hold."""
