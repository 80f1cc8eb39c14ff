"""Post-processing by name: a method of `postprocess`, or a function of one's own, package.module:function."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import UsageError
from ..wire.experiments import OwnCodeError, is_own, load_name, raised
from .estimate import Estimates
from .postprocess import METHODS, Shares, shares_of
from .statistic import EstimateError


def method_of(name: str) -> Callable[[Estimates], Shares]:
    """The post-processing of a name.

    Raises UsageError for one that there is not, or that is no function of one argument.
    """
    if name in METHODS:
        return METHODS[name]
    if not is_own(name):
        known = ", ".join(METHODS)
        text = (
            f"no post-processing is called {name}; there are {known}, and your own as package.module:function"
        )
        raise UsageError(text)
    try:
        function = load_name(name)
    except OwnCodeError as e:
        raise UsageError(f"post-processing {name}: {e}") from None
    if not (callable(function) and _takes_one(function)):
        raise UsageError(f"{name} is no function of one argument, the estimates")
    return lambda estimates: _called(name, function, estimates)


def _takes_one(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(object())
    except (TypeError, ValueError):
        return False
    return True


def _called(name: str, function: Callable[..., object], estimates: Estimates) -> Shares:
    try:
        result: Any = function(copy.deepcopy(estimates))  # whatever it changes, intervals stay what they are
    except (Exception, SystemExit) as e:  # somebody's code: it raises what it likes
        raise EstimateError(f"{name} raised {raised(e)}") from None
    try:
        shares = np.asarray(result)
    except (TypeError, ValueError):
        raise EstimateError(f"{name} gave no array of shares but {type(result).__name__}") from None
    if shares.dtype.kind not in "iuf":  # text would be read as numbers, and complex ones lose a part
        kind = type(result).__name__ if shares.dtype.kind == "O" else shares.dtype
        raise EstimateError(f"{name} gave no array of shares but {kind}: give integers or floats")
    shares = shares.astype(np.float64)
    if shares.shape != (estimates.domain,):
        raise EstimateError(
            f"{name} gave the shape {shares.shape}, not ({estimates.domain},): a share a value"
        )
    if not np.isfinite(shares).all():
        raise EstimateError(f"{name} gave shares that are not finite")
    said = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    return shares_of(name, estimates, shares, (said,) if said else ())
