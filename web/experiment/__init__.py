"""The view experiment."""
