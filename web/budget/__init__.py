"""The Budget view."""
