"""The experiment view."""
