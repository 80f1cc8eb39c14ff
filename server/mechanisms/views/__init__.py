"""Readings of several parts: each report answers for one table of parts."""
