"""From a histogram of codes to frequencies, ranges and quantiles with their errors; pure numbers."""

from .estimate import Estimate, EstimateError, estimate

__all__ = ["Estimate", "EstimateError", "estimate"]
