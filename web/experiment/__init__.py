"""The view of an experiment."""
