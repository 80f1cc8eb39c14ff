"""The view budget."""
