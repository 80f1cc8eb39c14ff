"""Composition theorems to 60 digits, written from the papers as a reference implementation.

Reports' ε and totals are whole micro-nats.
"""

import itertools
from typing import Any

import mpmath

EXACT = mpmath.workdps(60)


def nats(micro: int):
    return mpmath.mpf(micro) / 10**6


@EXACT
def optimal_delta(epsilon: int, reports: int, total: int) -> Any:
    """Return Σ_i max(0, P_i - e^E Q_i), with i lies among the reports (binary randomized response)."""
    e = nats(epsilon)
    last = -(-(reports * epsilon - total) // (2 * epsilon)) - 1  # (k - 2i) ε > E
    probability = (1 / (1 + mpmath.exp(-e))) ** reports
    ratio = mpmath.exp(nats(total - reports * epsilon))  # e^E Q_i / P_i
    odds, step = mpmath.exp(-e), mpmath.exp(2 * e)
    delta = mpmath.mpf(0)
    for i in range(last + 1):
        delta += probability * (1 - ratio)
        probability *= odds * (reports - i) / (i + 1)
        ratio *= step
    return delta


@EXACT
def zcdp(squares: int, delta: str) -> Any:
    """Return ½S + sqrt(2 S ln(1/δ)), where S is in micro-nats squared."""
    s = mpmath.mpf(squares) / 10**12
    return s / 2 + mpmath.sqrt(2 * s * mpmath.log(1 / mpmath.mpf(delta)))


@EXACT
def advanced(epsilon: int, reports: int, delta: str) -> Any:
    """Return ε sqrt(2k ln(1/δ)) + kε(e^ε - 1)."""
    e = nats(epsilon)
    root = mpmath.sqrt(2 * reports * mpmath.log(1 / mpmath.mpf(delta)))
    return e * root + reports * e * mpmath.expm1(e)


@EXACT
def rogers(epsilon: int, reports: int, total: int, delta: str) -> Any:
    """Return the filter's value by Rogers et al. 2016, Theorem 5.1."""
    e, d = nats(epsilon), mpmath.mpf(delta)
    s = reports * e * e
    h = nats(total) ** 2 / (mpmath.mpf("28.04") * mpmath.log(1 / d))
    inside = 2 * (s + h) * (1 + mpmath.log(s / h + 1) / 2) * mpmath.log(2 / d)
    return reports * e * mpmath.expm1(e) / 2 + mpmath.sqrt(inside)


@EXACT
def lost_vote(epsilon: int, reports: int) -> Any:
    """Return the probability that fewer than half of the reports carry the true bit."""
    odds = mpmath.exp(nats(epsilon))
    probability = (1 / (1 + odds)) ** reports
    lost = mpmath.mpf(0)
    for true in range(-(-reports // 2)):
        lost += probability
        probability *= odds * (reports - true) / (true + 1)
    return lost


@EXACT
def lost_report(total: int) -> Any:
    """Return the probability that one report at this ε is false."""
    return 1 / (1 + mpmath.exp(nats(total)))


@EXACT
def mixed_delta(epsilons: list[int], total: int) -> Any:
    """Return the optimal δ for reports at these ε, summed over every subset of false reports."""
    delta = mpmath.mpf(0)
    for lies in itertools.product((False, True), repeat=len(epsilons)):
        loss = sum(-e if lie else e for e, lie in zip(epsilons, lies, strict=True))
        if loss > total:
            chance = mpmath.mpf(1)
            for e, lie in zip(epsilons, lies, strict=True):
                chance /= 1 + mpmath.exp(nats(e if lie else -e))
            delta += chance * (1 - mpmath.exp(nats(total - loss)))
    return delta


@EXACT
def closed_form(epsilons: list[int], delta: str) -> Any:
    """Return ε by Theorem 3.5 of Kairouz, Oh and Viswanath 2015."""
    d, e = mpmath.mpf(delta), [nats(x) for x in epsilons]
    mean = sum(x * mpmath.expm1(x) / (mpmath.exp(x) + 1) for x in e)
    squares = sum(x * x for x in e)
    log = min(mpmath.log(1 / d), mpmath.log(mpmath.e + mpmath.sqrt(squares) / d))
    return min(sum(e), mean + mpmath.sqrt(2 * squares * log))
