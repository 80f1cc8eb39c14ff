"""Look up post-processing by name: a method in `postprocess`, or a custom package.module:function."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import UsageError
from ..wire.experiments import OwnCodeError, describe_error, is_own, load_name
from .estimate import Estimates
from .postprocess import METHODS, Shares, shares_of
from .statistic import EstimateError


def method_of(name: str) -> Callable[[Estimates], Shares]:
    """Return the post-processing function with this name.

    Raises:
        UsageError: If the name is unknown or does not refer to a function with one argument.
    """
    if name in METHODS:
        return METHODS[name]
    if not is_own(name):
        names = ", ".join(METHODS)
        text = f"unknown post-processing {name}; choose from {names}, or give package.module:function"
        raise UsageError(text)
    try:
        function = load_name(name)
    except OwnCodeError as e:
        raise UsageError(f"post-processing {name}: {e}") from None
    if not (callable(function) and _takes_one_argument(function)):
        raise UsageError(f"{name} must be a function with one argument, the estimates")
    return lambda estimates: _call(name, function, estimates)


def _takes_one_argument(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(object())
    except (TypeError, ValueError):
        return False
    return True


def _call(name: str, function: Callable[..., object], estimates: Estimates) -> Shares:
    try:
        result: Any = function(copy.deepcopy(estimates))  # a copy, to protect the intervals from changes
    except (Exception, SystemExit) as e:  # custom code may raise anything
        raise EstimateError(f"{name} raised {describe_error(e)}") from None
    try:
        shares = np.asarray(result)
    except (TypeError, ValueError):
        raise EstimateError(f"{name} must return an array of shares, not {type(result).__name__}") from None
    if shares.dtype.kind not in "iuf":  # NumPy would convert text and drop imaginary parts
        kind = type(result).__name__ if shares.dtype.kind == "O" else shares.dtype
        raise EstimateError(f"{name} must return an array of integers or floats, not {kind}")
    shares = shares.astype(np.float64)
    if shares.shape != (estimates.domain,):
        raise EstimateError(
            f"{name} must return one share per value, shape ({estimates.domain},), not {shares.shape}"
        )
    if not np.isfinite(shares).all():
        raise EstimateError(f"{name} must return finite shares")
    summary = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    return shares_of(name, estimates, shares, (summary,) if summary else ())
