"""How often is a median called changed: where it moved (power), and where it did not (false alarms)?

    python benchmarks/quantile_change.py [--quick]

A number of 64 bins at ε = 2, a bell of 8 bins' standard deviation whose centre is anywhere between two edges;
without a change also a flat population, two bells far apart, and sides of different ε. Called changed is p
below 5 %. Prints a table and writes benchmarks/results/quantile_change.json; --quick draws a tenth and writes
nothing.
"""

import argparse
from dataclasses import asdict, dataclass

import numpy as np
from accuracy import experiment
from results_file import machine, write
from rich.console import Console
from rich.table import Table

from hushmote.server.answers.change import changed_readings
from hushmote.server.answers.rows import ChangeRow
from hushmote.server.estimate import estimate
from hushmote.simulator import vectorised

BINS = 64
PAIRS = 800


@dataclass(frozen=True)
class Case:
    """A population, how many bins it moves, reports of each side, and ε of each side."""

    population: str
    moved: float
    reports: int
    epsilons: tuple[float, float] = (2.0, 2.0)


CASES = (
    Case("bell", 1, 20_000),
    Case("bell", 2, 5_000),
    Case("bell", 3, 5_000),
    Case("bell", 0, 20_000),
    Case("bell", 0, 5_000),
    Case("bell", 0, 5_000, (0.5, 4.0)),
    Case("flat", 0, 5_000),
    Case("two bells", 0, 5_000),
    Case("two bells", 0, 5_000, (0.5, 4.0)),
)


def shares(case: Case, centre: float) -> np.ndarray:
    """A population's shares of the bins."""
    middles = np.arange(BINS) + 0.5
    if case.population == "flat":
        return np.full(BINS, 1 / BINS)
    centres, width = ((centre,), 8) if case.population == "bell" else ((12, 52), 3)
    out = sum(np.exp(-0.5 * ((middles - c) / width) ** 2) for c in centres)
    return out / np.sum(out)


def result(case: Case, pairs: int, rng: np.random.Generator) -> dict:
    """How many of the pairs were called changed, and in how many of these the interval has both signs."""
    called = both_signs = held = 0
    for _ in range(pairs):
        centre, sides = 31.5 + rng.random(), []
        for epsilon, moved in zip(case.epsilons, (0, case.moved), strict=True):
            exp = experiment("hh", BINS, round(epsilon * 1e6))
            indices = rng.multinomial(case.reports, shares(case, centre + moved))
            sides.append(estimate(exp, vectorised.histogram(exp, indices, rng)))
        row = changed_readings(sides[0], sides[1], [0.5]).rows[-1]
        assert isinstance(row, ChangeRow)
        called += row.p < 0.05
        both_signs += row.p < 0.05 and row.low < 0 < row.high
        bin_width = (exp.high - exp.low) / 1000 / BINS
        held += row.low <= case.moved * bin_width <= row.high
    return asdict(case) | {
        "pairs": pairs,
        "called": called / pairs,
        "both_signs": both_signs,
        "held": held / pairs,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rng, rows = np.random.default_rng(20_261_123), []
    table = Table(
        "population", "ε", "moved, bins", "reports", "called changed", "both signs", "interval holds"
    )
    for case in CASES:
        row = result(case, PAIRS // 10 if quick else PAIRS, rng)
        rows.append(row)
        epsilons = " and ".join(f"{x:g}" for x in sorted(set(case.epsilons)))
        numbers = (f"{row['called']:.1%}", str(row["both_signs"]), f"{row['held']:.1%}")
        table.add_row(case.population, epsilons, f"{case.moved:g}", f"{case.reports:,}", *numbers)
    Console().print(table)
    if not quick:
        write("quantile_change.json", {"machine": machine(), "rows": rows})


if __name__ == "__main__":
    main()
