"""What all views are given."""

from __future__ import annotations

from dataclasses import dataclass

from .health import AskedAggregator
from .live import LiveStore
from .settings import PageSettings


@dataclass(frozen=True)
class Page:
    """The page's settings, its one live store, and its aggregator's health."""

    settings: PageSettings
    live: LiveStore
    aggregator: AskedAggregator
