"""Bounds an attacker's beliefs after one report, after many reports and after a histogram."""
