"""Properties of a mechanism's estimates: unbiased, the same by every method, covered by their intervals.

Each statistical check states its sample size. Its false-alarm probability is FALSE_ALARM, unless it says
otherwise.
"""

import numpy as np

from ...server import special
from ...server.estimate import Estimate, estimate, plausibility
from ...server.estimate.statistic import Statistic
from ...server.mechanisms import Mechanism
from ...server.mechanisms.decoded_histogram import Decoded
from .cases import Case
from .channel import NotApplicable, PropertyBroken, need_close, need_shape

FALSE_ALARM = 1e-11
FLEETS, REPORTS = 400, 2000
_COVERED = 0.93  # required share of the 95% intervals
_REPORTS_DRAWN = 100_000
_SAME = 1e-9


def unbiased(case: Case) -> str:
    """Check that the mean of the weights over a reading's codes is exactly the statistic.

    For an approximate mechanism it is the statistic plus the bias.
    """
    statistic = _statistics(case)
    mechanism = case.mechanism
    weights, constant = mechanism.weights(statistic, _reports(case))
    mean = np.zeros_like(statistic) + constant
    for w, law in zip(weights, mechanism.law(np.eye(case.experiment.domain)), strict=True):
        mean += law.T @ w if w is not None else 0.0
    if mechanism.approximate:
        need_close(mechanism.bias(statistic, _reports(case)), mean - statistic, "bias", 0, _SAME)
        return f"approximate: off by at most {np.abs(mean - statistic).max():.2g}, as bias() states"
    off = np.abs(mean - statistic)
    index, column = (int(i) for i in np.unravel_index(off.argmax(), off.shape))
    if not off[index, column] <= _SAME * max(1.0, np.abs(statistic).max()):
        truth = statistic[index, column]
        raise PropertyBroken(
            f"index {index} counts as {mean[index, column]:.9g} on average instead of {truth:.9g}"
        )
    return f"off by at most {off.max():.0e}"


def transposed(case: Case) -> str:
    """Check that the transposed law is the transpose of law, by its shortcut and by the general method."""
    mechanism = case.mechanism
    rng = np.random.default_rng(2)
    numbers = [rng.normal(size=len(size)) for size in mechanism.class_sizes]
    laws = mechanism.law(np.eye(case.experiment.domain))
    transposed_law = sum(n @ law for n, law in zip(numbers, laws, strict=True))
    assert isinstance(transposed_law, np.ndarray)
    for result in (mechanism.law_transposed(numbers), Mechanism.law_transposed(mechanism, numbers)):
        need_close(result, transposed_law, "law_transposed", 0, 1e-12 * max(1, len(numbers)))
    return "agrees with law"


def short_ways(case: Case) -> str:
    """Check that values and moments decoded by the mechanism's own method equal those of law and weights."""
    mechanism, counts = case.mechanism, case.fleet(3000, 3)
    short, general = mechanism.decode(counts), Decoded(mechanism, mechanism.collapse(counts))
    if short.reports != general.reports:
        raise PropertyBroken(f"decode counts {short.reports} reports of the strata, not {general.reports}")
    statistic = _statistics(case)
    statistic = statistic @ np.random.default_rng(4).normal(size=(statistic.shape[1], 3))
    need_close(short.value(statistic), general.value(statistic), "value", 0, _SAME * np.abs(statistic).max())
    spreads = short.spread(statistic), general.spread(statistic)
    need_close(spreads[0].variance, spreads[1].variance, "variance", _SAME)
    if "frequencies" not in mechanism.answers:
        return "values and variances"
    need_close(short.frequencies, general.frequencies, "frequencies", 0, _SAME)
    for name in ("frequency_spread", "cdf_spread"):
        shortcut, reference = getattr(short, name), getattr(general, name)
        need_close(shortcut.variance, reference.variance, f"{name}.variance", _SAME, 1e-15)
        need_close(shortcut.skew, reference.skew, f"{name}.skew", 1e-6, _SAME)
    return "values, variances and skews"


def simulated(case: Case) -> str:
    """Check that 100,000 simulated reports follow the law: chi-square over codes expected 5 or more times.

    Their histogram must not raise an alarm either; plausibility.check has a false-alarm probability below
    1e-9.
    """
    counts = case.fleet(_REPORTS_DRAWN, 5)
    expected = _REPORTS_DRAWN * (case.channel[:, : case.experiment.domain] @ case.shares)
    is_common = expected >= 5
    statistic = float(((counts - expected)[is_common] ** 2 / expected[is_common]).sum())
    p = float(special.chdtrc(int(is_common.sum()), statistic))
    if not p > FALSE_ALARM:
        raise PropertyBroken(f"draw's codes are distributed differently from the board's: p = {p:.1g}")
    check = plausibility.check(case.experiment, counts)
    if check.implausible:
        raise PropertyBroken(f"invariants call an honest fleet impossible: {check.words}")
    return f"p = {p:.2g} of {_REPORTS_DRAWN:,} reports"


def covered(case: Case) -> str:
    """Check that over 400 fleets of 2,000 reports, at least 93% of the 95% intervals contain the truth.

    Each fleet's interval does so with at least that probability, so the count falls below the bound by
    chance with probability FALSE_ALARM.
    """
    _statistics(case)
    truth, question = _sample_question(case)
    hits = fleets = 0
    for seed in range(FLEETS):
        counts = case.fleet(REPORTS, 1000 + seed)
        if case.mechanism.lacks(case.mechanism.decode(counts).reports):
            continue
        fleets += 1
        low, high = question(estimate(case.experiment, counts)).interval(0.95)
        hits += low <= truth <= high
    min_hits = int(np.searchsorted(special.bdtr(np.arange(fleets + 1), fleets, _COVERED), FALSE_ALARM))
    if hits < min_hits or not fleets:
        raise PropertyBroken(
            f"95% intervals contained the truth in {hits} of {fleets} fleets; at least {min_hits} are "
            "required"
        )
    return f"{hits} of {fleets} fleets of {REPORTS:,} reports; at least {min_hits} are required"


def _sample_question(case: Case):
    """Return a true value and its question: the share of the domain's lower half, or the first statistic."""
    if {"frequencies", "ranges"} & case.mechanism.answers:
        high = max(1, case.experiment.domain // 2)

        def half(e: Estimate) -> Statistic:
            return e.range(0, high)

        return float(case.shares[:high].sum()), half
    column = case.statistics[:, 0]

    def first(e: Estimate) -> Statistic:
        return e.linear(column)

    return float(case.shares @ column), first


def _statistics(case: Case) -> np.ndarray:
    """Return the statistics that the mechanism answers; raise NotApplicable if there are none."""
    need_shape(case.statistics, (case.experiment.domain, case.statistics.shape[-1]), "answered")
    if not case.statistics.shape[1]:
        raise NotApplicable(f"it answers {', '.join(sorted(case.mechanism.answers)) or 'nothing'}")
    return case.statistics


def _reports(case: Case) -> list[float]:
    rng = np.random.default_rng(2)
    return [float(rng.integers(9, 99)) if chance else 0.0 for chance in case.mechanism.stratum_chances]
