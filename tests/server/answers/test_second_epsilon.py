"""Both ε of what a store holds: which reports hide one another, and how many are one board's."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import hushmote
from experiments import experiment_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import second_epsilon
from hushmote.server.answers.query import Selection
from hushmote.server.answers.second_epsilon import Shuffling, TwoEpsilons
from hushmote.server.errors import UsageError
from hushmote.server.estimate.shuffled import LIMITS, histogram_epsilon, histograms_epsilon, local_epsilon_for
from hushmote.server.store import Store
from hushmote.server.store.number_set import NumberSet
from hushmote.simulator import vectorised

DAYS = {"2026-11-19": 500, "2026-11-20": 4_000, "2026-11-21": 2_000}
DOOR = experiment_json(name="door", epsilon=2_000_000, budget={"rule": "count", "cap": 2})
ASKED = Experiment.parse(DOOR)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A yes or no asked on three days; a board may report twice, and one has."""
    rng = np.random.default_rng(1)
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store:
        store.add_fleet("home", keyed=False)
        store.add_experiment("home", DOOR)
        (version,) = store.experiments("home")
        counts = {}
        for day, reports in DAYS.items():
            histogram = vectorised.histogram(ASKED, rng.multinomial(reports, [0.7, 0.3]), rng)
            counts |= {(version.id, day, code): int(n) for code, n in enumerate(histogram)}
        with store.ingest() as transaction:
            transaction.write({("home", "door", "b1"): NumberSet().add(1)}, counts, {})
    return tmp_path


def _report_again(folder: Path) -> None:
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as store, store.ingest() as transaction:
        transaction.write({("home", "door", "b1"): NumberSet().add(1).add(2)}, {}, {})


def _of(folder: Path, *windows: str, **how: float) -> TwoEpsilons:
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}", create=False) as store:
        return second_epsilon.of_selection(store, Selection("door", "home", windows), Shuffling(**how))


def test_windows_added_up_hide_better_than_one(folder: Path) -> None:
    everything, day = _of(folder), _of(folder, "2026-11-19")
    assert (everything.reports, everything.own, everything.report) == (6_500, 1, 2.0)
    assert everything.histogram == histogram_epsilon(ASKED, 6_500) < day.histogram
    assert day.histogram == histogram_epsilon(ASKED, 500) < 2


def test_boards_with_two_reports_count_twice(folder: Path) -> None:
    once = _of(folder)
    _report_again(folder)
    twice = _of(folder)
    assert twice.own == 2
    assert twice.histogram == histogram_epsilon(ASKED, 6_500, own=2) > 2 * once.histogram


def test_windows_that_are_each_seen_are_as_bad_as_the_worst(folder: Path) -> None:
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}", create=False) as store:
        asked = Selection("door", "home")
        each = second_epsilon.of_each_window(store, asked)
        together = second_epsilon.of_windows(store, asked)
    assert {day: one.reports for day, one in each.items()} == DAYS
    assert together.histogram == max(one.histogram for one in each.values())
    assert together.histogram == histograms_epsilon([(ASKED, n) for n in DAYS.values()])


def test_forged_reports_hide_nobody_and_delta_is_chosen(folder: Path) -> None:
    assert _of(folder, honest=0.5).histogram == histogram_epsilon(ASKED, 3_250)
    assert _of(folder, delta=1e-9).histogram > _of(folder).histogram
    for wrong in ({"honest": 0}, {"honest": 1.5}, {"delta": 0}, {"delta": 1}):
        with pytest.raises(UsageError):
            Shuffling(**wrong)


def test_estimate_shows_both_with_the_limits(folder: Path) -> None:
    text = hushmote("estimate", "door", cwd=folder)
    assert "ε of a report: 2. ε of the histogram: 0.14" in text
    assert LIMITS in " ".join(text.split())
    found = json.loads(hushmote("estimate", "door", "--delta", "1e-9", "--json", cwd=folder))["epsilon"]
    assert found == _of(folder, delta=1e-9).to_dict()
    trend = json.loads(hushmote("estimate", "door", "--trend", "--json", cwd=folder))
    rows = trend["answers"][0]["rows"]
    assert [row["histogram_epsilon"] for row in rows] == [histogram_epsilon(ASKED, n) for n in DAYS.values()]
    assert trend["epsilon"]["histogram"] == rows[0]["histogram_epsilon"]
    day = ("--window", "2026-11-20", "--against-window", "2026-11-21")
    change = json.loads(hushmote("estimate", "door", *day, "--json", cwd=folder))
    assert change["epsilon"]["histogram"] == histogram_epsilon(ASKED, 2_000)
    assert max(map(len, hushmote("estimate", "door", "--trend", cwd=folder).splitlines())) <= 80
    assert "delta is above 0" in hushmote("estimate", "door", "--delta", "0", cwd=folder, expect=1)


def test_status_shows_both_for_each_version(folder: Path) -> None:
    text = hushmote("status", cwd=folder)
    assert LIMITS in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    (line,) = json.loads(hushmote("status", "--json", cwd=folder))["experiments"]
    epsilon = line["epsilon"]
    assert (epsilon["report"], epsilon["own"], epsilon["newest_window"]) == (2.0, 1, "2026-11-21")
    assert epsilon["newest"] == histogram_epsilon(ASKED, 2_000)
    assert epsilon["added_up"] == histogram_epsilon(ASKED, 6_500)
    assert epsilon["all_windows"] == histogram_epsilon(ASKED, 500)


def test_the_local_epsilon_that_a_wanted_histogram_allows() -> None:
    def design(micro: int) -> Experiment:
        return Experiment.parse(experiment_json(epsilon=micro, budget={"rule": "unlimited"}))

    micro = local_epsilon_for(design, 10_000, 0.1)
    assert micro is not None
    assert (
        histogram_epsilon(design(micro), 10_000)
        <= 0.1
        < histogram_epsilon(design(micro * 1002 // 1000), 10_000)
    )
    assert local_epsilon_for(design, 10_000, 20) == 16_000_000
    assert local_epsilon_for(design, 10, 1e-9) is None


@pytest.mark.parametrize(("cap", "asked"), [(2, 1), (1, 0)])
def test_the_devices_are_asked_at_most_once_for_all_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: int, asked: int
) -> None:
    # With 360 windows of 300,000 devices, one question for each window took 40 s of CPU.
    payload = experiment_json(name="door", epsilon=2_000_000, budget={"rule": "count", "cap": cap})
    calls = []
    participation = Store.participation
    monkeypatch.setattr(Store, "participation", lambda *a: calls.append(1) or participation(*a))
    with Store(f"sqlite:///{tmp_path / 'x.sqlite'}") as store:
        store.add_fleet("home", keyed=False)
        store.add_experiment("home", payload)
        (version,) = store.experiments("home")
        with store.ingest() as transaction:
            counts = {(version.id, day, code): 500 for day in DAYS for code in (0, 1)}
            transaction.write({("home", "door", "b1"): NumberSet().add(1)}, counts, {})
        each = second_epsilon.of_each_window(store, Selection("door", "home"))
    assert ([one.own for one in each.values()], sum(calls)) == ([1, 1, 1], asked)
