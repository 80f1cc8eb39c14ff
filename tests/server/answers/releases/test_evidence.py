"""The daily evidence on a release whose question has changed.

With fixed seeds, each estimate may be 6 standard errors off: less than once in 1e8 draws of correct code.
"""

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments import experiment_json
from filled_store import write
from release_store import NEW, OLD, at

from hushmote.server.answers.query import Facts
from hushmote.server.answers.releases.evidence import Comparison, GroupDays
from hushmote.server.store import Description, Store
from hushmote.simulator import vectorised

DAYS = ("2026-11-01", "2026-11-02")
REPORTS = 4_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as opened:
        opened.add_fleet("home", keyed=False)
        yield opened


def fill(store: Store, days: Sequence[str], shares: Sequence[float], asks: str, **fields: Any) -> None:
    """Add a version, and the same reports of both values of its group to each day."""
    design = {"name": "state", "mechanism": "grr", "epsilon": 3_000_000}
    payload = experiment_json(group="firmware", groups=[OLD, NEW], **(design | fields))
    words = Description(fields.pop("unit", ""), asked=asks, worse='{"worse_by": 0.02}')
    experiment, rng = (
        store.add_experiment("home", payload, description=words),
        np.random.default_rng(len(days)),
    )
    for index in range(2):
        for day in days:
            histogram = vectorised.histogram(experiment, rng.multinomial(REPORTS, shares), rng)
            counts = {(day, code): int(n) for code, n in enumerate(histogram) if n}
            write(store, "home", experiment, counts, group=index)


def comparison(store: Store) -> Comparison:
    days = GroupDays.read(Facts(store, at(3)), "home", "firmware")
    assert days.first == datetime.date(2026, 11, 1)
    (result,) = days.looks("state", days.experiments["state"].judged(), NEW, [OLD])
    return result


def check(store: Store, share: float, reports: Sequence[int]) -> None:
    for side in (comparison(store).new, comparison(store).other):
        assert side.reports.tolist() == list(reports)
        for value, variance, n in zip(side.estimate, side.variance, reports, strict=True):
            assert n == 0 or abs(value - share) < 6 * variance**0.5


class TestChangedQuestion:
    def test_labels_are_pooled_by_name(self, store: Store) -> None:
        fill(store, DAYS, [0.3, 0.6, 0.1], "fault", type="choice", labels=["fault", "ok"])
        fill(store, DAYS[1:], [0.6, 0.05, 0.3, 0.05], "fault", type="choice", labels=["ok", "dry", "fault"])
        check(store, 0.3, [REPORTS, 2 * REPORTS])

    def test_version_without_the_label_is_left_out(self, store: Store) -> None:
        fill(store, DAYS, [0.6, 0.4], "ok", type="choice", labels=["ok"])
        fill(store, DAYS[1:], [0.6, 0.3, 0.1], "fault", type="choice", labels=["ok", "fault"])
        check(store, 0.3, [0, REPORTS])

    def test_range_is_not_moved_to_edges_of_another_version(self, store: Store) -> None:
        number = {"type": "number", "low": 0, "high": 40_000}
        fill(store, DAYS, [0.25, 0.25, 0.25, 0.25], "20:", **number, bins=4)
        fill(store, DAYS[1:], [0.2] * 5, "24:", **number, bins=5)
        check(store, 0.4, [0, REPORTS])

    def test_means_of_other_ranges_are_left_out(self, store: Store) -> None:
        number = {"type": "number", "low": 0, "bins": 4}
        fill(store, DAYS, [0.25] * 4, "mean", **number, high=8_000)
        fill(store, DAYS[1:], [0.25] * 4, "mean", **number, high=16_000)
        check(store, 8.0, [0, REPORTS])
