"""Stores filled directly with the histograms that honest boards would have produced, by window."""

import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from boards import experiment_payload
from numpy.typing import ArrayLike
from sqlalchemy import select

from hushmote.device.ldp_client import Experiment
from hushmote.server.store import schema
from hushmote.server.store.number_set import NumberSet
from hushmote.server.store.store import Description, Store
from hushmote.simulator import vectorised


def fill(
    store: Store,
    fleet: str,
    payload: bytes,
    windows: Mapping[Any, int],
    shares: ArrayLike | Mapping[str, ArrayLike] | None = None,
    unit: str = "",
    seed: int = 1,
    asked: str = "",
) -> Experiment:
    """Add an experiment to a fleet, and the given number of reports to each window.

    shares: per index, or per window and index; uniform by default.
    """
    rng = np.random.default_rng(seed)
    if fleet not in store.fleets():
        store.add_fleet(fleet, keyed=False)
    experiment = store.add_experiment(fleet, payload, description=Description(unit, asked=asked))
    uniform = np.full(experiment.domain, 1 / experiment.domain)
    counts = {}
    for window, reports in windows.items():
        population = shares[window] if isinstance(shares, Mapping) else uniform if shares is None else shares
        histogram = vectorised.histogram(experiment, rng.multinomial(reports, np.asarray(population)), rng)
        counts |= {(window, code): int(n) for code, n in enumerate(histogram) if n}
    write(store, fleet, experiment, counts)
    return experiment


def write(
    store: Store,
    fleet: str,
    experiment: Experiment,
    counts: Mapping[tuple[Any, int], int],
    devices: Iterable[str] = ("b1",),
    group: int = 0,
    each: int = 1,
) -> None:
    """Add reports by window and code to a group, and record each device's first `each` reports."""
    version = next(v for v in store.experiments(fleet) if v.experiment.digest == experiment.digest)
    numbers = {(fleet, experiment.name, device): NumberSet(each) for device in devices}
    with store.ingest() as transaction:
        rows = {(version.id, window, group, code): n for (window, code), n in counts.items()}
        transaction.write(numbers, rows, {})


@functools.cache
def colliding() -> tuple[bytes, bytes]:
    """Return two experiment payloads with the same digest, found in about 2**16 attempts (birthday bound)."""
    by_digest: dict[bytes, bytes] = {}
    for low in range(1 << 21):
        payload = experiment_payload(low=-low)
        other = by_digest.setdefault(hashlib.sha256(payload).digest()[:4], payload)
        if other != payload:
            return other, payload
    raise AssertionError("no collision among 2**21 payloads: SHA-256 is not what it was")


def rows(store: Store) -> list[list[tuple]]:
    """Return every row of every table in a store."""
    with store.engine.connect() as connection:
        return [
            sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
            for table in schema.metadata.sorted_tables
        ]
