"""The context of all views."""

from dataclasses import dataclass

from .budget.ledgers import Ledgers
from .experiment.queries import Asking
from .health import AskedAggregator
from .live import LiveStore
from .settings import PageSettings


@dataclass(frozen=True)
class Page:
    """The page's settings, its one live store, its aggregator's health, and the readers' shared queries."""

    settings: PageSettings
    live: LiveStore
    aggregator: AskedAggregator
    asking: Asking
    ledgers: Ledgers
