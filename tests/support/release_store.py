"""A store with prepared histograms of two firmware versions, for verdicts on a release."""

import datetime
from collections.abc import Mapping, Sequence

import numpy as np
from experiments import experiment_json
from filled_store import write

from hushmote.device.ldp_client import Experiment
from hushmote.server.store.store import Description, Store
from hushmote.simulator import vectorised

OLD, NEW = "2.3.1", "2.4.0"
FIRST = datetime.date(2026, 11, 1)


def at(days: int) -> datetime.datetime:
    """Return a moment after this many completed days."""
    return datetime.datetime.combine(FIRST, datetime.time(9), datetime.UTC) + datetime.timedelta(days=days)


def crash_payload(name: str = "board_crash", group: str | None = "firmware", **fields: object) -> bytes:
    """Return the payload of a yes-or-no experiment with the group."""
    groups = {} if group is None else {"group": group, "groups": [OLD, NEW]}
    common = {"name": name, "type": "bool", "mechanism": "rr", "epsilon": 2_000_000}
    return experiment_json(**(common | groups | fields))


def add_release(
    store: Store,
    reports: Mapping[str, Sequence[int]],
    shares: Mapping[str, float],
    worse: str = '{"worse_by": 0.02}',
    *,
    payload: bytes | None = None,
    fleet: str = "home",
    first: datetime.date = FIRST,
    seed: int = 1,
) -> Experiment:
    """Add an experiment with each version's reports by day, and the versions' shares of crashes."""
    if fleet not in store.fleets():
        store.add_fleet(fleet, keyed=False)
    experiment = store.add_experiment(
        fleet, payload or crash_payload(), description=Description(purpose="Does it crash?", worse=worse)
    )
    rng = np.random.default_rng(seed)
    for value, daily in reports.items():
        index = (*experiment.groups, "other").index(value)
        for day, n in enumerate(daily):
            share = shares[value]
            shares_by_index = [1 - share, share, *[0] * (experiment.missing is not None)]
            histogram = vectorised.histogram(experiment, rng.multinomial(n, shares_by_index), rng)
            window = (first + datetime.timedelta(days=day)).isoformat()
            counts = {(window, code): int(count) for code, count in enumerate(histogram) if count}
            if counts:
                write(store, fleet, experiment, counts, group=index)
    return experiment
