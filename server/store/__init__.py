"""One schema on SQLite and PostgreSQL: histograms, dedupe sets, counters."""

from .store import Description, Store, StoreError, Version, VersionRefused

__all__ = ["Description", "Store", "StoreError", "Version", "VersionRefused"]
