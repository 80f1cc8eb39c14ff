"""The context that all views share."""

from dataclasses import dataclass

from .budget.ledgers import Ledgers
from .experiment.queries import SharedQueries
from .health import MonitoredAggregator
from .live import LiveStore
from .settings import PageSettings


@dataclass(frozen=True)
class Page:
    """The page's settings, live store and aggregator, and the queries and ledgers that all readers share."""

    settings: PageSettings
    live: LiveStore
    aggregator: MonitoredAggregator
    queries: SharedQueries
    ledgers: Ledgers
