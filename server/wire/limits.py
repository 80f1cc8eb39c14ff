"""Limits that several rooms have to know."""

from __future__ import annotations

# Under load, what a commit costs, mostly pages written twice, is divided among this number of reports.
# Mosquitto's configuration is written from it: both ends of the broker have to know it.
BATCH_REPORTS = 4000

GRACE_DAYS = 30
"""Days on which late reports of a version that is replaced or withdrawn count, if no others are said."""
