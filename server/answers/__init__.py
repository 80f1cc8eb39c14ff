"""Answers that people read: statistics as rows, tables and pictures."""
