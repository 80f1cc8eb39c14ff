"""Turn a code histogram into frequencies, ranges and quantiles with error bars; pure numerics."""

from .estimate import Estimate, EstimateError, estimate

__all__ = ["Estimate", "EstimateError", "estimate"]
