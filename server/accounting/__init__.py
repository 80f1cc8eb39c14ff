"""What a board's reports give away together: composition theorems, their caps, and what they guarantee."""

from .errors import AccountingError
from .optimal import optimal_delta, optimal_epsilon, optimal_reports

__all__ = ["AccountingError", "optimal_delta", "optimal_epsilon", "optimal_reports"]
