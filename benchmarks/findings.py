"""Does a finding say "moved" honestly: fleets with and without a change, looked at after each day.

    python benchmarks/findings.py [--quick]

2,000 fleets of yes or no (ε 1, randomized response, 4,000 reports a day, 30 days), two fifths say yes. Each
day ends with a look. With a change, its size is what a day's plan asks for: half the interval of one day's
share, from the second ten days on, or spread over all days. Writes benchmarks/results/findings.json; --quick
takes a tenth of the fleets.
"""

import numpy as np
from draws import counts_by_law
from published import experiment
from results_file import Options, run

from hushmote.server.answers.finding import changed, looks, thirds
from hushmote.server.answers.fleet_estimate import FleetEstimate
from hushmote.server.estimate import estimate
from hushmote.server.experiments.asks import asks_of

DAYS, REPORTS, FLEETS = 30, 4_000, 2_000
EXPERIMENT = experiment("rr", 2, 1_000_000)


def said_to_move(shares: np.ndarray, rng: np.random.Generator) -> tuple[bool, bool]:
    """Whether a fleet, with these shares of the higher half a day, is said to move: ever, and at the end."""
    days = [counts_by_law(EXPERIMENT, np.array([1 - x, x]), REPORTS, rng) for x in shares]
    (ask,) = asks_of(EXPERIMENT, ["500:"])
    moved = now = False
    for seen in range(2, len(days) + 1):
        sides = [
            estimate(EXPERIMENT, np.sum([days[int(i)] for i in part], axis=0))
            for part in thirds([str(i) for i in range(seen)])
        ]
        before, after = (FleetEstimate(one) for one in sides)
        change = changed(ask, before, after, looks(seen))
        assert change is not None
        now = change[1] < 0.05
        moved |= now
    return moved, now


def rows(options: Options) -> list[dict]:
    """The shares of fleets that are said to move."""
    rng, fleets = np.random.default_rng(), FLEETS // 10 if options.quick else FLEETS
    low, high = estimate(EXPERIMENT, np.array([REPORTS // 2, REPORTS // 2])).range(1, 2).interval()
    planned, days = (high - low) / 2, np.arange(DAYS)
    cases = {
        "nothing changes": 0 * days,
        "a step of the planned size": planned * (days >= DAYS // 3),
        "a drift of 1.5 times that": 1.5 * planned * days / (DAYS - 1),
    }
    found: list[dict] = []
    for name, change in cases.items():
        told = np.array([said_to_move(0.4 + change, rng) for _ in range(fleets)])
        numbers = {"ever_said": told[:, 0].mean(), "said_at_the_end": told[:, 1].mean()}
        found.append({"case": name, "fleets": fleets, "planned": planned} | numbers)
    return found


if __name__ == "__main__":
    run(__doc__, "findings.json", {"rows": rows})
