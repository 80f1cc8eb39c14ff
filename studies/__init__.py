"""Studies that compare structures, budgets and published results."""
