"""Readings with several parts, where each report answers for one table of parts."""
