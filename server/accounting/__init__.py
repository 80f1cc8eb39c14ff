"""What a device's reports reveal together: composition theorems, their caps, and what they guarantee."""

from ..epsilon import MICRO
from .adaptive import BudgetExceeded, Filter, Odometer, RogersOdometer
from .basic import Advanced, Basic, Unlimited
from .catalogue import THEOREMS, choose
from .compose import ComposedRow, closed_form, compose
from .errors import AccountingError
from .filters import RogersFilter, ZcdpFilter
from .majority import Majority, majority_envelope, majority_epsilon, majority_total
from .mixture import mixed_delta, mixed_total
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
    "ComposedRow",
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
    "closed_form",
    "compose",
    "exact",
    "majority_envelope",
    "majority_epsilon",
    "majority_total",
    "mixed_delta",
    "mixed_total",
    "optimal_delta",
    "optimal_epsilon",
    "optimal_reports",
    "optimal_total",
]
