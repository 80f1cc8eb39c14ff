"""Limits that several rooms need."""

from __future__ import annotations

# Under load, this many reports share the cost of a commit, mostly pages written twice.
# Mosquitto's configuration uses it too: both ends of the broker must know it.
BATCH_REPORTS = 4000

GRACE_DAYS = 30
"""For how many days late reports of a replaced or withdrawn version count by default."""
