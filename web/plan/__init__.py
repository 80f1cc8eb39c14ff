"""The Plan view."""
