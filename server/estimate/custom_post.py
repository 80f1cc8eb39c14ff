"""Post-processing by name: a method of `postprocess`, or your own function, package.module:function."""

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
    """Return the post-processing with this name.

    Raises:
        UsageError: If the name is unknown, or not that of a function of one argument.
    """
    if name in METHODS:
        return METHODS[name]
    if not is_own(name):
        names = ", ".join(METHODS)
        text = (
            f"no post-processing is called {name}; there are {names}, and your own as package.module:function"
        )
        raise UsageError(text)
    try:
        function = load_name(name)
    except OwnCodeError as e:
        raise UsageError(f"post-processing {name}: {e}") from None
    if not (callable(function) and _takes_one(function)):
        raise UsageError(f"{name} is not a function of one argument, the estimates")
    return lambda estimates: _call(name, function, estimates)


def _takes_one(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(object())
    except (TypeError, ValueError):
        return False
    return True


def _call(name: str, function: Callable[..., object], estimates: Estimates) -> Shares:
    try:
        result: Any = function(copy.deepcopy(estimates))  # a copy, so that it cannot change the intervals
    except (Exception, SystemExit) as e:  # code of others may raise anything
        raise EstimateError(f"{name} raised {describe_error(e)}") from None
    try:
        shares = np.asarray(result)
    except (TypeError, ValueError):
        raise EstimateError(f"{name} gave {type(result).__name__}, not an array of shares") from None
    if shares.dtype.kind not in "iuf":  # NumPy would convert text, and drop imaginary parts
        kind = type(result).__name__ if shares.dtype.kind == "O" else shares.dtype
        raise EstimateError(f"{name} gave {kind}, not an array of shares: give integers or floats")
    shares = shares.astype(np.float64)
    if shares.shape != (estimates.domain,):
        raise EstimateError(
            f"{name} gave the shape {shares.shape}, not ({estimates.domain},): one share for each value"
        )
    if not np.isfinite(shares).all():
        raise EstimateError(f"{name} gave shares that are not finite")
    summary = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    return shares_of(name, estimates, shares, (summary,) if summary else ())
