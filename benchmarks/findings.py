"""Findings over a year of daily looks: false alarms, detected changes, and their sizes.

    python benchmarks/findings.py [--quick] [constant] [rhythm] [steps] [differences]

Unless stated otherwise, there are 4,000 fleets (500 for each further kind of constant fleet), which use
randomized response at ε = 1 and send 4,000 reports a day. "constant": fleets in which nothing changes for 365
days, with one question, three questions, two versions, a median, a mean, a pair's shares, few answers and
rare answers. "rhythm": six weeks of day and night, or weekdays and weekends. "steps": steps of half the width
of a day's interval, on seven days; the coverage of the reported size's interval; and the smallest step that
is reported as detectable. "differences": a pair's two equal shares, compared each day over the latest seven
days, for 365 days and 400 fleets. Writes benchmarks/results/findings.json.
"""

import datetime
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from published import experiment
from results_file import Options, run

from hushmote.device.ldp_client import Experiment
from hushmote.server import special
from hushmote.server.answers.daily import Series, below_edge, scan_quantile
from hushmote.server.estimate import estimate
from hushmote.server.estimate.conditional import paired_difference
from hushmote.server.estimate.daily import DayCounts, VersionDays, Weights
from hushmote.server.estimate.detector import Scan, false_alarm_chance, scan
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.wire.experiments import parse_experiment

YEAR, SIX_WEEKS, MONTH = 365, 42, 30
FLEETS, REPORTS = 4_000, 4_000
STEP_DAYS = (3, 5, 10, 15, 20, 25, 27)
RR = experiment("rr", 2, 1_000_000)
SHARP = experiment("rr", 2, 2_000_000)
LABELS = experiment("grr", 4, 1_000_000)
TREE = experiment("hh", 16, 1_000_000, fanout=4, cells=[4, 5])
PAIR = parse_experiment(
    b'{"v":1,"name":"pair","type":"pair","of":[{"name":"version","type":"choice","labels":["a","b"]},'
    b'{"name":"crashed","type":"bool"}],"mechanism":"views","views":[[0],[1],[0,1]],"cells":[3,2,6],'
    b'"epsilon":2000000,"budget":{"rule":"sum","cap":2000000},"window":"day"}'
)


@dataclass(frozen=True)
class Fleet:
    """A version's daily histograms, shape (days, codes)."""

    experiment: Experiment
    days: np.ndarray

    def version(self, first: int = 0) -> VersionDays:
        day, code = np.nonzero(self.days)
        return VersionDays(self.experiment, day + first, code, self.days[day, code])


def fleet(e: Experiment, shares: np.ndarray, rng: np.random.Generator, reports: int = REPORTS) -> Fleet:
    """Draw a fleet from the values' shares, shape (domain,) or (days, domain)."""
    laws = np.atleast_2d(np.array([mechanism_of(e).code_law(row) for row in np.atleast_2d(shares)]))
    return Fleet(e, rng.multinomial(reports, laws / laws.sum(axis=1, keepdims=True)))


def counts(*fleets: tuple[Fleet, int]) -> DayCounts:
    """Return the daily counts of several versions, each given with its first day."""
    days = max(len(version.days) + first for version, first in fleets)
    return DayCounts(np.arange(days), tuple(version.version(first) for version, first in fleets))


def scanned(days: DayCounts, weights: Weights, questions: int = 1) -> Scan:
    series = days.series(weights)
    return scan(lambda _: series, len(days.weekdays), questions)


def constant(shares: Sequence[float] | np.ndarray, days: int) -> np.ndarray:
    return np.tile(np.asarray(shares, float), (days, 1))


def value_share(index: int) -> Weights:
    """Return the weights for one value's share."""
    return lambda experiment: below_edge(experiment, index + 1) - below_edge(experiment, index)


def middles(experiment: Experiment) -> np.ndarray:
    return (np.arange(experiment.domain) + 0.5)[:, None]


def given_first(first: int) -> Weights:
    """Return the weights for the second part's share among devices with a given first part."""

    def weights(experiment: Experiment) -> np.ndarray:
        index = np.arange(experiment.domain)
        chosen = (index // 2 == first).astype(float)
        return np.stack([chosen * (index % 2), chosen], axis=1)

    return weights


def bell(domain: int) -> np.ndarray:
    shares = np.exp(-0.5 * ((np.arange(domain) - 6.3) / 2) ** 2)
    return shares / shares.sum()


def median_scan(version: Fleet) -> Scan:
    windows = tuple((f"{day}",) for day in range(len(version.days)))

    def pooled(chosen: Sequence[str]):
        return estimate(version.experiment, version.days[[int(window) for window in chosen]].sum(axis=0))

    series = Series(datetime.date(2026, 1, 1), counts((version, 0)), windows, 0)
    return scan_quantile(series, 0.5, pooled, 1)[0]


def one_question(rng: np.random.Generator) -> bool:
    return bool(scanned(counts((fleet(RR, constant([0.6, 0.4], YEAR), rng), 0)), value_share(1)).changes)


def three_questions(rng: np.random.Generator) -> bool:
    days = counts((fleet(LABELS, constant([0.4, 0.3, 0.2, 0.1], YEAR), rng), 0))
    return any(scanned(days, value_share(i), 3).changes for i in range(3))


def two_versions(rng: np.random.Generator) -> bool:
    """Test a second version, with twice the ε, that replaces the first within 30 days."""
    old = fleet(RR, constant([0.6, 0.4], 200), rng, 2_000)
    new = fleet(SHARP, constant([0.6, 0.4], YEAR - 170), rng, 2_000)
    return bool(scanned(counts((old, 0), (new, 170)), value_share(1)).changes)


def median(rng: np.random.Generator) -> bool:
    return bool(median_scan(fleet(TREE, constant(bell(16), YEAR), rng)).changes)


def mean(rng: np.random.Generator) -> bool:
    return bool(scanned(counts((fleet(TREE, constant(bell(16), YEAR), rng), 0)), middles).changes)


def pair(rng: np.random.Generator) -> bool:
    """Test two shares and their difference (three comparisons) while version b grows from 10% to 60%."""
    b = np.linspace(0.1, 0.6, YEAR)
    crash = np.array([0.9, 0.1])
    shares = np.concatenate(
        [np.outer(0.95 - b, crash), np.outer(b, crash), np.full((YEAR, 2), 0.025)], axis=1
    )
    days = counts((fleet(PAIR, shares, rng), 0))
    return any(scanned(days, given_first(i), 3).changes for i in range(2))


def few_reports(rng: np.random.Generator) -> bool:
    return bool(scanned(counts((fleet(RR, constant([0.6, 0.4], YEAR), rng, 20), 0)), value_share(1)).changes)


def rare_answers(rng: np.random.Generator) -> bool:
    """Test a share of 0.1% at ε = 8, so that only a few reports a day are yes."""
    e = experiment("rr", 2, 8_000_000)
    return bool(scanned(counts((fleet(e, constant([0.999, 0.001], YEAR), rng), 0)), value_share(1)).changes)


CONSTANT: dict[str, Callable[[np.random.Generator], bool]] = {
    "one question": one_question,
    "three questions": three_questions,
    "two versions": two_versions,
    "a median": median,
    "a mean": mean,
    "a pair's shares": pair,
    "20 reports a day": few_reports,
    "rare answers": rare_answers,
}


def day_and_night(rng: np.random.Generator) -> bool:
    """Test 20% by day and 40% by night, summed over each day, with 4,000 reports a day in total."""
    day = fleet(RR, constant([0.8, 0.2], SIX_WEEKS), rng, REPORTS // 2)
    night = fleet(RR, constant([0.6, 0.4], SIX_WEEKS), rng, REPORTS // 2)
    return bool(scanned(counts((Fleet(RR, day.days + night.days), 0)), value_share(1)).changes)


def weekends(rng: np.random.Generator) -> bool:
    """Test 40% on weekdays, 20% at weekends."""
    share = np.where(np.arange(SIX_WEEKS) % 7 < 5, 0.4, 0.2)
    return bool(
        scanned(counts((fleet(RR, np.stack([1 - share, share], axis=1), rng), 0)), value_share(1)).changes
    )


def false_alarms(kinds: dict[str, Callable[[np.random.Generator], bool]], fleets: int) -> list[dict]:
    rng, rows = np.random.default_rng(), list[dict]()
    for name, draw in kinds.items():
        alarms = sum(draw(rng) for _ in range(fleets))
        low, high = (float(special.betaincinv(*arguments)) for arguments in _ends(alarms, fleets))
        rows.append(
            {"kind": name, "fleets": fleets, "reported": alarms / fleets, "low99": low, "high99": high}
        )
    return rows


def _ends(count: int, total: int) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Return arguments of the inverse beta distribution for a 99% interval (Clopper and Pearson 1934)."""
    return (max(count, 1e-9), total - count + 1, 0.005), (count + 1, max(total - count, 1e-9), 0.995)


def constant_rows(options: Options) -> list[dict]:
    """Return the share of constant fleets for which a change is reported within a year."""
    first, *others = CONSTANT
    many, few = (40, 10) if options.quick else (FLEETS, FLEETS // 8)
    rows = false_alarms({first: CONSTANT[first]}, many)
    return rows + false_alarms({name: CONSTANT[name] for name in others}, few)


def rhythm_rows(options: Options) -> list[dict]:
    """Return the share of fleets with a constant rhythm for which a change is reported within six weeks."""
    kinds = {"day and night": day_and_night, "weekends": weekends}
    return false_alarms(kinds, FLEETS // 100 if options.quick else FLEETS)


def step_rows(options: Options) -> list[dict]:
    """Return the share of steps, of half the width of a day's interval, that are found by day 30."""
    rng, fleets = np.random.default_rng(), FLEETS // 100 if options.quick else FLEETS
    step = 1.96 * math.sqrt(
        mechanism_of(RR).variances(np.array([[0.0], [1.0]]), np.array([0.6, 0.4]))[0] / REPORTS
    )
    rows = list[dict]()
    detectable = (
        scanned(counts((fleet(RR, constant([0.6, 0.4], MONTH), rng), 0)), value_share(1)).detectable or 0.0
    )
    cases = [*((day, step) for day in STEP_DAYS), (MONTH // 2, detectable)]
    for day, size in cases:
        share = 0.4 + size * (np.arange(MONTH) >= day)
        shares = np.stack([1 - share, share], axis=1)
        scans = [scanned(counts((fleet(RR, shares, rng), 0)), value_share(1)) for _ in range(fleets)]
        changes = [result.changes[0] for result in scans if result.changes]
        covered = np.mean([c.low <= size <= c.high for c in changes]) if changes else math.nan
        rows.append(
            {
                "day": day,
                "step": "said to be detectable" if size == detectable else "half a day's interval",
                "fleets": fleets,
                "found": len(changes) / fleets,
                "covered": float(covered),
                "size_over_step": float(np.mean([c.size for c in changes]) / size) if changes else math.nan,
            }
        )
    return rows


def difference_rows(options: Options) -> list[dict]:
    """Return the share of pairs without a difference that are reported to differ within a year."""
    rng, fleets = np.random.default_rng(), 4 if options.quick else FLEETS // 10
    crash = np.array([0.9, 0.1])
    shares = np.concatenate([np.outer([0.5, 0.45], crash).ravel(), [0.025, 0.025]])
    above, below = np.zeros((PAIR.domain, 2)), np.zeros((PAIR.domain, 2))
    for i in range(2):
        above[:, i], below[:, i] = given_first(i)(PAIR).T
    alarms = 0
    for _ in range(fleets):
        days = fleet(PAIR, constant(shares, YEAR), rng).days
        sums = np.cumsum(days, axis=0)
        for end in range(1, YEAR):
            week = sums[end] - (sums[end - 7] if end >= 7 else 0)
            z = abs(float(special.ndtri(paired_difference(estimate(PAIR, week), above, below).p_value() / 2)))
            if false_alarm_chance(z, end + 1, 3) < 0.05:
                alarms += 1
                break
    return [{"kind": "a pair's difference", "fleets": fleets, "reported": alarms / fleets}]


if __name__ == "__main__":
    parts = {
        "constant": constant_rows,
        "rhythm": rhythm_rows,
        "steps": step_rows,
        "differences": difference_rows,
    }
    run(__doc__, "findings.json", parts)
