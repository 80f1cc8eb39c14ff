"""Composition theorems with their caps and guarantees for the total privacy loss of a device's reports."""

from ..epsilon import MICRO
from .adaptive import BudgetExceeded, Filter, Odometer
from .basic import Advanced, Basic, Unlimited
from .catalogue import THEOREMS, choose
from .errors import AccountingError
from .filters import ZcdpFilter
from .optimal import Optimal, optimal_delta, optimal_epsilon, optimal_reports, optimal_total
from .theorem import MAX_REPORTS, Guarantee, History, Kind, ReportCost, Spent, Theorem, above, exact

__all__ = [
    "MAX_REPORTS",
    "MICRO",
    "THEOREMS",
    "AccountingError",
    "Advanced",
    "Basic",
    "BudgetExceeded",
    "Filter",
    "Guarantee",
    "History",
    "Kind",
    "Odometer",
    "Optimal",
    "ReportCost",
    "Spent",
    "Theorem",
    "Unlimited",
    "ZcdpFilter",
    "above",
    "choose",
    "exact",
    "optimal_delta",
    "optimal_epsilon",
    "optimal_reports",
    "optimal_total",
]
