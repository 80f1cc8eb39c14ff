"""The view plan."""
