"""The majority rule: after n reports a majority vote reveals one fixed bit no better than one report at E.

It is not local differential privacy. n reports at ε are nε-LDP, and (E, δ)-LDP only with the δ of
`optimal_delta`, which is large: at E = 10 and n = 100 the rule allows ε = 0.7698, and those reports are
(10, 0.990)-LDP and 76.98-LDP.

A vote of n answers, each true with p = e^ε/(1 + e^ε), is lost when at most ⌈n/2⌉ - 1 of them are true. A tie
counts as won, which no real attacker can count on, so the curve ε(n) dips at every even n. More answers
never harm an attacker, so an ε allowed for m reports is allowed for fewer. Hence the envelope, the largest
ε(m) over m >= n, is equally valid and falls with n. For odd n it is the curve itself; for even n it is ε(n +
1).

Shackelford and Chang's rule. Everything here is vectorised over n and valid for n up to MAX_REPORTS.
"""

# pyright: reportMissingTypeStubs=false

from typing import overload

import numpy as np
import numpy.typing as npt

from ..server import special
from ..server.accounting import MAX_REPORTS, AccountingError
from ..server.accounting.errors import positive_number, whole_number

MAX_TOTAL = 650.0
"""The largest total in nats; above it, SciPy's betainc is inaccurate."""

_ROUNDING = 1e-10  # relative; the incomplete beta function and its inverse are accurate to 1e-12


@overload
def majority_epsilon(reports: int, total: float) -> float: ...
@overload
def majority_epsilon(reports: np.ndarray, total: float) -> np.ndarray: ...
def majority_epsilon(reports: int | np.ndarray, total: float) -> float | np.ndarray:
    """Return the largest ε per report that the rule allows, ties won by the attacker; nats, rounded down.

    It is 0 if a tie alone is too likely, as for two reports at a small total.

    Args:
        reports: Whole numbers, 1 to MAX_REPORTS, any shape; the result has the same shape.
        total: The total in nats, in (0, 650].

    Raises:
        AccountingError: If an argument is out of range.
    """
    epsilon = _raw(_numbers(reports), _total(total))
    return epsilon.reshape(reports.shape) if isinstance(reports, np.ndarray) else float(epsilon[0])


@overload
def majority_envelope(reports: int, total: float) -> float: ...
@overload
def majority_envelope(reports: np.ndarray, total: float) -> np.ndarray: ...
def majority_envelope(reports: int | np.ndarray, total: float) -> float | np.ndarray:
    """Return the largest `majority_epsilon` for this many reports or more, which falls with their number."""
    epsilon = _raw(_odd(_numbers(reports)), _total(total))
    return epsilon.reshape(reports.shape) if isinstance(reports, np.ndarray) else float(epsilon[0])


def majority_total(epsilon: float, reports: int) -> float:
    """Return the E at which one report reveals the bit as well as n voting reports at ε; rounded up.

    The attacker wins ties. The result is infinite above 650.

    Args:
        epsilon: ε in nats, above 0.
        reports: The number n, 1 to MAX_REPORTS.
    """
    epsilon, n = (
        positive_number("epsilon", epsilon),
        whole_number("the number of reports", reports, high=MAX_REPORTS + 1),
    )
    if n == 1:
        return epsilon
    lost = float(special.betainc(n - _half(n) + 1, _half(n), special.expit(-epsilon))) * (1 - _ROUNDING)
    total = float(np.log1p(-lost) - np.log(lost)) if lost > 0 else np.inf
    return total if total <= MAX_TOTAL else np.inf


def _raw(n: np.ndarray, total: float) -> np.ndarray:
    # Lies are Binomial(n, lie), and the vote is lost to `needed` of them.
    needed, goal = n - _half(n) + 1, special.expit(-total)
    lie = np.maximum(special.betaincinv(needed, _half(n), goal), np.finfo(float).tiny)
    epsilon = np.where(lie < 0.5, np.log1p((1 - 2 * lie) / lie), 0.0)
    # SciPy's inverse is sometimes wrong if the goal is tiny, such as with n = 5 at a total of 300.
    right = np.abs(special.betainc(needed, _half(n), lie) - goal) <= _ROUNDING * goal
    epsilon = np.where(right, epsilon, _by_bisection(np.where(right, 1.0, n), total))
    return np.where(n == 1, total, epsilon * (1 - _ROUNDING))


def _by_bisection(n: np.ndarray, total: float) -> np.ndarray:
    """Return the curve by bisection where n is not 1, in the shape of n."""
    low, high = np.zeros_like(n), np.full_like(n, total)
    some = n > 1
    needed, half, goal = (n - _half(n) + 1)[some], _half(n)[some], special.expit(-total)
    for _ in range(60 if some.any() else 0):
        middle = (low + high) / 2
        is_above = np.zeros_like(some)
        is_above[some] = special.betainc(needed, half, special.expit(-middle[some])) >= goal
        low, high = np.where(is_above, middle, low), np.where(is_above, high, middle)
    return low


def _half(n: npt.ArrayLike) -> np.ndarray:
    """Return ⌈n/2⌉, the number of true answers that win the vote."""
    return np.ceil(np.asarray(n) / 2)


def _odd(n: np.ndarray) -> np.ndarray:
    """Return n if it is odd, else n + 1."""
    return n + (n % 2 == 0)


def _numbers(reports: int | np.ndarray) -> np.ndarray:
    if not isinstance(reports, np.ndarray):
        return np.array([whole_number("the number of reports", reports, high=MAX_REPORTS)], float)
    if reports.dtype.kind not in "iu" or not ((reports >= 1) & (reports <= MAX_REPORTS)).all():
        raise AccountingError(f"numbers of reports must be whole and from 1 to {MAX_REPORTS:,}")
    return reports.astype(float).reshape(-1)


def _total(total: float) -> float:
    if positive_number("the total", total) > MAX_TOTAL:
        raise AccountingError(
            f"the majority rule is computed for totals up to {MAX_TOTAL:g} nats, not {total:g}"
        )
    return float(total)
