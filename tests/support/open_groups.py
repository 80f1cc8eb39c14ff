"""A week of reports of crashes by firmware version, with few reports of one version on the last day."""

from collections.abc import Mapping

import numpy as np
from experiments import experiment_json
from filled_store import write

from hushmote.device.ldp_client import Experiment
from hushmote.server.store.store import Description, Store
from hushmote.simulator import vectorised

DAYS = tuple(f"2026-11-{day:02}" for day in range(1, 8))
VALUES = ("2.3.1", "2.4.0", "2.5.0", "other")
REPORTS: Mapping[str, Mapping[str, int]] = {
    "2.3.1": dict.fromkeys(DAYS, 900),
    "2.4.0": dict.fromkeys(DAYS[2:], 300),
    "2.5.0": {DAYS[-1]: 30},
    "other": {DAYS[0]: 100},
}
"""The reports of each value by day: 30 of 2.5.0 hide 100 of other."""

SHARES = {"2.3.1": 0.05, "2.4.0": 0.3, "2.5.0": 0.5, "other": 0.1}
"""The share of yes among the boards with each value."""

CRASHED = experiment_json(
    name="crashed",
    epsilon=2_000_000,
    budget={"rule": "count", "cap": 1},
    group="firmware",
    groups=list(VALUES[:-1]),
)
EXPERIMENT = Experiment.parse(CRASHED)

ValueCounts = dict[str, dict[tuple[str, int], int]]


def fill_groups(
    store: Store,
    fleet: str,
    payload: bytes = CRASHED,
    reports: Mapping[str, Mapping[str, int]] = REPORTS,
    shares: Mapping[str, float] | None = None,
) -> ValueCounts:
    """Add reports to an experiment about yes or no; return the counts of each value by window and code.

    reports: by value and window; without a group, those of "other". shares: of yes, by window instead of
    by value.
    """
    rng = np.random.default_rng(7)
    if fleet not in store.fleets():
        store.add_fleet(fleet, keyed=False)
    experiment = store.add_experiment(fleet, payload, description=Description(asked="yes"))
    by_value: ValueCounts = {}
    for index, value in enumerate((*experiment.groups, "other")):
        counts = by_value.setdefault(value, {})
        for window, n in reports.get(value, {}).items():
            yes = round(n * (shares[window] if shares else SHARES[value]))
            histogram = vectorised.histogram(experiment, np.array([n - yes, yes]), rng)
            counts |= {(window, code): int(count) for code, count in enumerate(histogram) if count}
        write(store, fleet, experiment, counts, group=index)
    return by_value
