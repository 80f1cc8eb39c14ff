"""Bounds what an attacker can believe after one report, after many, and after the histogram."""
