"""A store with one experiment of each kind, both with and without a histogram of values."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from experiments import experiment_json, number_json
from filled_store import fill, write

from hushmote.device.ldp_client import Experiment
from hushmote.server.store.store import Description, Store
from hushmote.simulator.faithful import NumpyRng

WINDOWS = {"2026-11-19": 4000, "2026-11-20": 4000, "2026-11-21": 4000}

BARS = number_json(16, name="room", low=0, high=16_000)
MEAN = number_json(16, name="delay", low=0, high=16_000, mechanism="sw", reach=4, epsilon=2_000_000)
TEXT = experiment_json(
    name="firmware", type="text", salt="s1", slots=256, mechanism="olh", g=7, epsilon=2_000_000
)
FOUND = experiment_json(
    name="crash", type="text", salt="s2", slots=1024, prefixes=[2, 3, 5, 5], mechanism="prefix", q=5,
    weights=[1, 1, 1, 1], epsilon=4_000_000,
)  # fmt: skip
"""Its domain is 2**40: whatever makes something of that size fails."""
PAIR = experiment_json(
    name="crash_by_version", type="pair", mechanism="views", views=[[0], [1], [0, 1]], cells=[4, 2, 7],
    of=[
        {"name": "version", "type": "choice", "labels": ["1.0", "1.1", "1.2"]},
        {"name": "crashed", "type": "bool"},
    ],
    epsilon=4_000_000,
)  # fmt: skip
WORDS = ("1.0.0", "1.2.1", "2.0.0-rc1")


def put(
    store: Store, fleet: str, payload: bytes, readings: Mapping[str, Sequence[object]], unit: str = ""
) -> Experiment:
    """Add an experiment to an open fleet, and boards' reports of these readings to each window."""
    if fleet not in store.fleets():
        store.add_fleet(fleet, keyed=False)
    experiment = store.add_experiment(fleet, payload, description=Description(unit))
    rng, counts = NumpyRng(np.random.default_rng(3)), Counter[tuple[str, int]]()
    for window, values in readings.items():
        for value in values:
            index = experiment.bucket(value)
            assert index is not None
            counts[window, experiment.randomize(index, rng)] += 1
    write(store, fleet, experiment, counts)
    return experiment


def fill_kinds(store: Store, fleet: str = "home") -> None:
    """Add an experiment of each kind.

    delay has a mean of 5, and half of firmware and crash are 1.0.0. Half of crash_by_version are 1.0; half of
    those crashed, and no others.
    """
    shares = [0.25 if 3 <= index < 7 else 0.0 for index in range(16)]  # bin centres 3.5 to 6.5
    fill(store, fleet, BARS, WINDOWS, shares, "min")
    fill(store, fleet, MEAN, WINDOWS, shares, "min")
    words = [WORDS[0], WORDS[0], *WORDS[1:]] * 500
    put(store, fleet, TEXT, dict.fromkeys(WINDOWS, words))
    pair_readings = [("1.0", True), ("1.0", False), ("1.1", False), ("1.2", False)] * 1000
    put(store, fleet, PAIR, dict.fromkeys(WINDOWS, pair_readings))
    put(store, fleet, FOUND, dict.fromkeys(WINDOWS, words))
