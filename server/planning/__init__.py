"""What to ask of a fleet before it is asked, and what its budgets still hold."""
