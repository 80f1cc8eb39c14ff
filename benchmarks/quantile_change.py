"""The rate at which a median is reported as changed, with a change (power) and without (false alarms).

    python benchmarks/quantile_change.py [--quick]

It uses a number with 64 bins at ε = 2 and a bell with a standard deviation of 8 bins, centred anywhere within
a bin; without a change also a flat population, two bells far apart, and sides with different ε. A median
counts as changed if p is below 5%. Writes benchmarks/results/quantile_change.json; --quick draws a tenth of
the pairs.
"""

import numpy as np
from draws import counts
from published import experiment
from results_file import Options, run

from hushmote.server.answers.change import changed_readings
from hushmote.server.answers.rows import ChangeRow
from hushmote.server.estimate import estimate

BINS = 64
PAIRS = 800
Rng = np.random.Generator


SAME, OTHER = (2.0, 2.0), (0.5, 4.0)  # each side's ε
MOVES = ((1, 20_000), (2, 5_000), (3, 5_000), (0, 20_000), (0, 5_000))
# Population, bins by which it moves, reports per side, and each side's ε.
CASES = (
    *(("bell", moved, n, SAME) for moved, n in MOVES),
    ("bell", 0, 5_000, OTHER),
    ("flat", 0, 5_000, SAME),
    ("two bells", 0, 5_000, SAME),
    ("two bells", 0, 5_000, OTHER),
)


def shares(population: str, centre: float) -> np.ndarray:
    """Return a population's shares of the bins."""
    middles = np.arange(BINS) + 0.5
    if population == "flat":
        return np.full(BINS, 1 / BINS)
    centres, width = ((centre,), 8) if population == "bell" else ((12, 52), 3)
    out = sum(np.exp(-0.5 * ((middles - c) / width) ** 2) for c in centres)
    return out / np.sum(out)


def result(
    population: str, moved: int, reports: int, epsilons: tuple[float, float], pairs: int, rng: Rng
) -> dict:
    """Return the share of pairs reported as changed, and how many of these have an interval around 0."""
    called = both_signs = 0
    for _ in range(pairs):
        centre, sides = 31.5 + rng.random(), []
        for epsilon, at in zip(epsilons, (centre, centre + moved), strict=True):
            exp = experiment("hh", BINS, round(epsilon * 1e6))
            sides.append(estimate(exp, counts(exp, shares(population, at), reports, rng)))
        row = changed_readings(sides[0], sides[1], [0.5]).rows[-1]
        assert isinstance(row, ChangeRow)
        called += row.p < 0.05
        both_signs += row.p < 0.05 and row.low < 0 < row.high
    case = {"population": population, "moved": moved, "reports": reports, "epsilons": epsilons}
    return case | {"pairs": pairs, "called": called / pairs, "both_signs": both_signs}


def rows(options: Options) -> list[dict]:
    rng = np.random.default_rng(20_261_123)
    return [result(*case, PAIRS // 10 if options.quick else PAIRS, rng) for case in CASES]


if __name__ == "__main__":
    run(__doc__, "quantile_change.json", {"rows": rows})
