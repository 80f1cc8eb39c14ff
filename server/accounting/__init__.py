"""What a board's reports give away together: composition theorems, their caps, and what they guarantee."""

from ..epsilon import MICRO
from .adaptive import BudgetExceeded, Filter, Odometer, RogersOdometer
from .basic import Advanced, Basic, Unlimited
from .catalogue import THEOREMS, choose
from .errors import AccountingError
from .filters import RogersFilter, ZcdpFilter
from .majority import Majority, majority_envelope, majority_epsilon, majority_total
from .optimal import Optimal, optimal_delta, optimal_epsilon, optimal_reports, optimal_total
from .theorem import MOST_REPORTS, Guarantee, History, Kind, ReportCost, Spent, Theorem, above, exact

__all__ = [
    "MICRO",
    "MOST_REPORTS",
    "THEOREMS",
    "AccountingError",
    "Advanced",
    "Basic",
    "BudgetExceeded",
    "Filter",
    "Guarantee",
    "History",
    "Kind",
    "Majority",
    "Odometer",
    "Optimal",
    "ReportCost",
    "RogersFilter",
    "RogersOdometer",
    "Spent",
    "Theorem",
    "Unlimited",
    "ZcdpFilter",
    "above",
    "choose",
    "exact",
    "majority_envelope",
    "majority_epsilon",
    "majority_total",
    "optimal_delta",
    "optimal_epsilon",
    "optimal_reports",
    "optimal_total",
]
