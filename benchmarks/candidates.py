"""Shares of texts by a list: errors beside theory's, and how often intervals hold the truth, over salts.

    python benchmarks/candidates.py [--quick]

Words by Zipf's law, hashed by another salt for each fleet. Listed are all of them, or all but so many of the
most common, whose slots are then unknown: the worst that a list can lack. The error is the root mean square
over rows; noise and hash are what theory says of each: sqrt(q (1 - q) / N) / (p - q), and the root of the sum
of f^2 / m over the words that are not listed (hash_of_all: over all, as for a list of one word).
Coverage is of intervals of 95 % for the population's shares: of all rows, of the ten most common that are
listed, of all other words together.

Writes benchmarks/results/candidates.json; --quick takes a tenth of the fleets.
"""

import argparse
import time
from dataclasses import asdict, dataclass

import numpy as np
from draws import Tally
from results_file import run

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import estimate
from hushmote.server.estimate.candidates import place, shares_of
from hushmote.server.experiments.payload import chosen_fields, payload
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.workload import FREQUENCIES
from hushmote.simulator import vectorised

_TOP = 10


@dataclass(frozen=True)
class Case:
    """Words with a Zipf exponent, how many of the most common are not listed, slots, reports and ε."""

    words: int
    exponent: float
    unlisted: int
    slots: int
    reports: int
    epsilon: float


CASES = (
    Case(10_000, 1.0, 0, 65_536, 100_000, 2.0),
    Case(10_000, 1.2, 0, 65_536, 100_000, 2.0),
    Case(10_000, 1.1, 1, 65_536, 100_000, 2.0),
    Case(10_000, 1.1, 10, 65_536, 1_000_000, 4.0),
    Case(1_000, 1.1, 5, 4_096, 20_000, 1.0),
    Case(200, 1.1, 5, 256, 20_000, 2.0),
    Case(200, 1.1, 1, 1_024, 1_000, 2.0),
)


def measured(case: Case, fleets: int, rng: np.random.Generator) -> dict[str, float]:
    """Errors and coverage over fleets, each with a salt of its own."""
    micro = round(case.epsilon * 1e6)
    mechanism = chosen_fields(case.slots, micro, FREQUENCIES)
    words = [f"word {i}" for i in range(case.words)]
    f = np.arange(1.0, case.words + 1) ** -case.exponent
    f /= f.sum()
    squares, seconds, covered, rare = [], [], Tally(), 0.0
    for fleet in range(fleets):
        reading = {"type": "text", "salt": f"salt {fleet}", "slots": case.slots}
        e = Experiment.parse(payload("words", reading, mechanism, micro))
        slots = np.fromiter(map(e.bucket, words), np.int64, case.words)
        held = np.bincount(slots, rng.multinomial(case.reports, f), case.slots).astype(np.int64)
        histogram = vectorised.histogram(e, held, rng)
        start = time.perf_counter()
        shares = shares_of(estimate(e, histogram), place(words[case.unlisted :], [e]))
        seconds.append(time.perf_counter() - start)
        truth = np.bincount(shares.candidates.row, f[case.unlisted :], shares.candidates.rows)
        low, high = shares.listed.interval()
        top = shares.candidates.row[:_TOP]
        squares.append(np.mean((shares.listed.value - truth) ** 2))
        covered.count("coverage", (low, high), truth)
        covered.count("top", (low[top], high[top]), truth[top])
        covered.count("others", shares.others.interval(), f[: case.unlisted].sum())
        rare = mechanism_of(e).decode(np.ones(e.code_count, np.int64)).rare_variance() * e.code_count
    return {
        "error": float(np.sqrt(np.mean(squares))),
        "noise": float(np.sqrt(rare / case.reports)),
        "hash": float(np.sqrt((f[: case.unlisted] ** 2).sum() / case.slots)),
        "hash_of_all": float(np.sqrt((f**2).sum() / case.slots)),
        **{kind: covered.of(kind) for kind in ("coverage", "top", "others")},
        "seconds": float(np.median(seconds)),
    }


def cases(options: argparse.Namespace) -> list[dict]:
    rng, rows = np.random.default_rng(20), []
    for case in CASES:
        fleets = max(2, min(400, 600_000 // case.words) // (10 if options.quick else 1))
        rows.append(asdict(case) | {"fleets": fleets} | measured(case, fleets, rng))
    return rows


if __name__ == "__main__":
    run(__doc__, "candidates.json", {"cases": cases})
