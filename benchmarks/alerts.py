"""Alerts over a year: how often a fleet without a change raises one, and how late they are after a step.

    python benchmarks/alerts.py [--quick] [false] [delay]

Fleets ask 5 questions with yes or no, by randomized response at ε = 1, and send 4,000 reports a day to each;
the share of yes is 40% on weekdays and 20% at weekends. "false": 1,000 fleets in which nothing changes for
365 days, at whose every day's end alerts may come; by questions that share the allowance of the fleet, and
for comparison as findings do, each with the allowance of its own experiment. "delay": days from a step, up or
down, of three standard errors of a week's mean until an alert; it comes in the week from day 60, 180 or 300
(500 series each), after no alert. A CUSUM on the same days is told what the scan has to find out: the shares
of weekdays and weekends before the step, its size, and the error of each day. Its two sides are tuned to the
step (reference value of half of it), and its limit is that with which as many fleets of the same 5 questions
raise a false alarm as with the scan in "false" (20,000 fleets with normal days). Writes
benchmarks/results/alerts.json.
"""

import math
from dataclasses import dataclass

import numpy as np
from findings import RR, counts, false_alarms, fleet, scanned, value_share
from results_file import Options, run

from hushmote.server.mechanisms import mechanism_of

YEAR, FLEETS, QUESTIONS, REPORTS = 365, 1_000, 5, 4_000
SERIES, STEPS, WAIT = 500, (60, 180, 300), 90
CUSUM_FLEETS = 20_000
WEEKDAY, WEEKEND = 0.4, 0.2
WEIGHTS = value_share(1)


def usual_shares(days: int) -> np.ndarray:
    """Return the share of yes on each day, shape (days,)."""
    return np.where(np.arange(days) % 7 < 5, WEEKDAY, WEEKEND)


def day_error(share: float) -> float:
    """Return the standard error of a day's share of yes."""
    variances = mechanism_of(RR).variances(np.array([[0.0], [1.0]]), np.array([1 - share, share]))
    return math.sqrt(variances[0] / REPORTS)


def errors(days: int) -> np.ndarray:
    return np.where(np.arange(days) % 7 < 5, day_error(WEEKDAY), day_error(WEEKEND))


def step_size() -> float:
    """Return three standard errors of the mean of a week's days."""
    return 3 * math.sqrt(np.mean(errors(7) ** 2) / 7)


def draw(shares: np.ndarray, rng: np.random.Generator):
    return fleet(RR, np.stack([1 - shares, shares], axis=1), rng, REPORTS)


def raises_alert(rng: np.random.Generator, questions: int) -> bool:
    """Return whether a fleet without a change raises an alert within a year."""
    year = usual_shares(YEAR)
    return any(scanned(counts((draw(year, rng), 0)), WEIGHTS, questions).changes for _ in range(QUESTIONS))


def false_rows(options: Options) -> list[dict]:
    """Return the share of fleets without a change that ever raise an alert within a year."""
    fleets = 20 if options.quick else FLEETS
    few = max(fleets // 5, 1)
    rows = false_alarms({"one allowance for the fleet": lambda rng: raises_alert(rng, QUESTIONS)}, fleets)
    return rows + false_alarms({"one allowance per experiment": lambda rng: raises_alert(rng, 1)}, few)


@dataclass(frozen=True)
class Cusum:
    """A two-sided CUSUM of standardized days, tuned to a step of `size` standard errors of a day."""

    size: np.ndarray
    limit: float

    @staticmethod
    def peaks(z: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Return the larger of both sums at each day's end, for days of shape (series, days)."""
        up, down = np.zeros(len(z)), np.zeros(len(z))
        result = np.zeros(z.shape)
        for day in range(z.shape[1]):  # log-likelihood ratios, which allow for days with different errors
            half = size[day] ** 2 / 2
            up = np.maximum(0, up + size[day] * z[:, day] - half)
            down = np.maximum(0, down - size[day] * z[:, day] - half)
            result[:, day] = np.maximum(up, down)
        return result

    @staticmethod
    def tuned(size: np.ndarray, rate: float, fleets: int, rng: np.random.Generator) -> "Cusum":
        """Return the CUSUM with which a share `rate` of fleets without a change raises an alert in a year."""
        highest = np.zeros(fleets)
        for _ in range(QUESTIONS):
            peaks = Cusum.peaks(rng.standard_normal((fleets, YEAR)), size[:YEAR])
            highest = np.maximum(highest, peaks.max(axis=1))
        return Cusum(size, float(np.quantile(highest, 1 - rate)))

    def alarm(self, z: np.ndarray) -> int | None:
        """Return the day at whose end the first alarm comes, or None."""
        above = np.flatnonzero(Cusum.peaks(z[None], self.size)[0] > self.limit)
        return int(above[0]) if len(above) else None


def delay_rows(options: Options) -> list[dict]:
    """Return the delay of alerts and of the CUSUM after a step."""
    rng, rate, error = np.random.default_rng(), false_rate(options), errors(STEPS[-1] + 7 + WAIT)
    fleets = CUSUM_FLEETS // (20 if options.quick else 1)
    cusum = Cusum.tuned(step_size() / error, rate, fleets, rng)
    return [_delays(cusum, first, rate, 20 if options.quick else SERIES, rng) for first in STEPS]


def _delays(cusum: Cusum, first_step: int, rate: float, series: int, rng: np.random.Generator) -> dict:
    days = first_step + 7 + WAIT
    error, usual = errors(days), usual_shares(days)
    delays, too_early, missed = list[tuple[int, int]](), 0, 0
    for i in range(series):
        first, sign = first_step + i % 7, 1 if i % 2 else -1
        version = draw(usual + sign * step_size() * (np.arange(days) >= first), rng)
        changes = scanned(counts((version, 0)), WEIGHTS, QUESTIONS).changes
        alarms = (
            changes[0].report_day if changes else None,
            cusum.alarm((daily_shares(version.days) - usual) / error),
        )
        if any(day is not None and day < first for day in alarms):
            too_early += 1
            continue
        missed += None in alarms
        by_scan, by_cusum = ((days if day is None else day + 1) - first for day in alarms)
        delays.append((by_scan, by_cusum))
    scan_days, cusum_days = np.array(delays, float).T
    ratio = float(scan_days.mean() / cusum_days.mean())
    # The standard error of the ratio of two means over the same series, by the delta method.
    spread = float(np.std(scan_days - ratio * cusum_days)) / (cusum_days.mean() * math.sqrt(len(delays)))
    return {
        "step_from_day": first_step,
        "series": series,
        "alarms_before_it": too_early,
        "missed": missed,
        "false_alarms_a_year": rate,
        "scan_days": float(scan_days.mean()),
        "cusum_days": float(cusum_days.mean()),
        "ratio": ratio,
        "ratio_error": spread,
    }


def daily_shares(days: np.ndarray) -> np.ndarray:
    """Return the share of yes on each day from its histogram, shape (days,)."""
    low, high = (mechanism_of(RR).code_law(np.array(shares))[1] for shares in ([1.0, 0.0], [0.0, 1.0]))
    return (days[:, 1] / days.sum(axis=1) - low) / (high - low)


def false_rate(options: Options) -> float:
    """Return the scan's rate of false alarms, as measured in "false" or else from half as many fleets."""
    row = RATES or false_alarms(
        {"for the CUSUM": lambda rng: raises_alert(rng, QUESTIONS)}, 20 if options.quick else FLEETS // 2
    )
    return max(row[0]["reported"], 1 / row[0]["fleets"])


RATES = list[dict]()


def measured_false_rows(options: Options) -> list[dict]:
    RATES[:] = false_rows(options)
    return RATES


if __name__ == "__main__":
    run(__doc__, "alerts.json", {"false": measured_false_rows, "delay": delay_rows})
