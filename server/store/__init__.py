"""One schema for SQLite and PostgreSQL: histograms, dedupe sets and counters."""

from .store import Description, Store, StoreError, Version, VersionRefused

__all__ = ["Description", "Store", "StoreError", "Version", "VersionRefused"]
