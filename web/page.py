"""What all views are given."""

from __future__ import annotations

from dataclasses import dataclass

from .live import LiveStore
from .settings import PageSettings


@dataclass(frozen=True)
class Page:
    """The page's settings, and its one live store."""

    settings: PageSettings
    live: LiveStore
