"""Shares of texts by a list: errors beside theory's, and how often intervals hold the truth, over salts.

    python benchmarks/candidates.py [--quick]

Words by Zipf's law, hashed by another salt for each fleet. Listed are all of them, or all but so many of the
most common, whose slots are then unknown: the worst that a list can lack. The error is the root mean square
over rows; noise and hash are what theory says of each: sqrt(q (1 - q) / N) / (p - q), and the root of the sum
of f^2 / m over the words that are not listed (in brackets over all, as for a list of one word).
Coverage is of intervals of 95 % for the population's shares: of all rows, of the ten most common that are
listed, of all other words together.

Prints a table and writes benchmarks/results/candidates.json.
"""

import argparse
import time
from dataclasses import asdict, dataclass

import numpy as np
from results_file import machine, write
from rich.console import Console
from rich.table import Table

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


def run(case: Case, fleets: int, rng: np.random.Generator) -> dict[str, float]:
    """Errors and coverage over fleets, each with a salt of its own."""
    micro = round(case.epsilon * 1e6)
    mechanism = chosen_fields(case.slots, micro, FREQUENCIES)
    words = [f"word {i}" for i in range(case.words)]
    f = np.arange(1.0, case.words + 1) ** -case.exponent
    f /= f.sum()
    squares, inside, top, others, seconds = [], [], [], [], []
    e = None
    for fleet in range(fleets):
        reading = {"type": "text", "salt": f"salt {fleet}", "slots": case.slots}
        e = Experiment.parse(payload("words", reading, mechanism, micro))
        slots = np.fromiter(map(e.bucket, words), np.int64, case.words)
        held = np.bincount(slots, rng.multinomial(case.reports, f), case.slots).astype(np.int64)
        counts = vectorised.histogram(e, held, rng)
        start = time.perf_counter()
        shares = shares_of(estimate(e, counts), place(words[case.unlisted :], [e]))
        seconds.append(time.perf_counter() - start)
        truth = np.bincount(shares.candidates.row, f[case.unlisted :], shares.candidates.rows)
        low, high = shares.listed.interval()
        hit = (low <= truth) & (truth <= high)
        squares.append(np.mean((shares.listed.value - truth) ** 2))
        inside.append(hit.mean())
        top.append(hit[shares.candidates.row[:_TOP]].mean())
        low, high = shares.others.interval()
        others.append(low <= f[: case.unlisted].sum() <= high)
    assert e is not None
    rare = mechanism_of(e).decode(np.ones(e.code_count, np.int64)).rare_variance() * e.code_count
    return {
        "error": float(np.sqrt(np.mean(squares))),
        "noise": float(np.sqrt(rare / case.reports)),
        "hash": float(np.sqrt((f[: case.unlisted] ** 2).sum() / case.slots)),
        "hash_of_all": float(np.sqrt((f**2).sum() / case.slots)),
        "coverage": float(np.mean(inside)),
        "top": float(np.mean(top)),
        "others": float(np.mean(others)),
        "seconds": float(np.median(seconds)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Shares of texts by a list: errors and intervals.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the fleets; writes nothing")
    quick = parser.parse_args().quick
    rng = np.random.default_rng(20)
    headings = (
        "words",
        "not listed",
        "slots",
        "N",
        "ε",
        "error",
        "noise",
        "hash",
        "rows",
        "top 10",
        "others",
    )
    table = Table(*headings, box=None)
    rows = []
    for case in CASES:
        fleets = max(2, min(400, 600_000 // case.words) // (10 if quick else 1))
        measured = run(case, fleets, rng)
        rows.append(asdict(case) | {"fleets": fleets} | measured)
        errors = [f"{measured[name]:.5f}" for name in ("error", "noise")]
        errors.append(f"{measured['hash']:.5f} ({measured['hash_of_all']:.5f})")
        coverage = [f"{100 * measured[name]:.1f} %" for name in ("coverage", "top", "others")]
        said = (f"{case.words:,}, Zipf {case.exponent:g}", str(case.unlisted), f"{case.slots:,}")
        table.add_row(*said, f"{case.reports:,}", f"{case.epsilon:g}", *errors, *coverage)
    Console(width=130).print(table)
    if not quick:
        write("candidates.json", {"machine": machine(), "cases": rows})


if __name__ == "__main__":
    main()
