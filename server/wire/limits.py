"""Limits that both ends of the broker have to know; mosquitto's configuration is written from them."""

from __future__ import annotations

# Under load, what a commit costs, mostly pages written twice, is divided among this number of reports.
BATCH_REPORTS = 4000
