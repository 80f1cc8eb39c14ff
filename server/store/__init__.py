"""One schema on SQLite and PostgreSQL: histograms, dedupe sets, counters."""

from .store import Store, StoreError, Version, VersionRefused

__all__ = ["Store", "StoreError", "Version", "VersionRefused"]
