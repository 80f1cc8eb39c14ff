"""A store's two ε: one for reports and one for histograms."""

import datetime
import json
from pathlib import Path

import pytest
from command_line import hushmote
from experiments import experiment_json
from filled_store import fill

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers import second_epsilon
from hushmote.server.answers.query import Facts, Selection
from hushmote.server.answers.rows import TrendRow
from hushmote.server.answers.second_epsilon import ENDED, RUNNING, Shuffling, TwoEpsilons
from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.answers.windows import SETTLED
from hushmote.server.errors import UsageError
from hushmote.server.estimate.shuffled import LIMITS, histogram_epsilon, histograms_epsilon, local_epsilon_for
from hushmote.server.store import Store
from hushmote.server.store.number_set import NumberSet
from hushmote.server.words.epsilon import rounded_up

DAYS = {"2026-11-19": 500, "2026-11-20": 4_000, "2026-11-21": 2_000}
DOOR = experiment_json(name="door", epsilon=2_000_000, budget={"rule": "count", "cap": 2})
DOOR_EXPERIMENT = Experiment.parse(DOOR)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Provide a three-day yes/no experiment that allows two reports per board, with one such board."""
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store:
        fill(store, "home", DOOR, DAYS, (0.7, 0.3))
    return tmp_path


def _count(folder: Path, window: str, reports: int) -> None:
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as store, store.ingest() as transaction:
        (version,) = store.experiments("home")
        transaction.write({}, {(version.id, window, 0, 1): reports}, {})


def _report_again(folder: Path) -> None:
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as store, store.ingest() as transaction:
        transaction.write({("home", "door", "b1"): NumberSet().add(1).add(2)}, {}, {})


def _of(folder: Path, *windows: str, **how: float) -> TwoEpsilons:
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}", create=False) as store:
        return second_epsilon.of_selections(
            Facts(store), Selection("door", "home", windows), shuffling=Shuffling(**how)
        )


def _known(both: TwoEpsilons) -> float:
    assert both.histogram is not None
    return both.histogram


class TestOwnReports:
    def test_are_limited_and_honest_reports_rounded_down(self) -> None:
        """Half of 3 reports are honest, so at least 1 is. A board limited to 9 reports may own all of 5."""
        assert second_epsilon.of_histograms([(DOOR_EXPERIMENT, 3)], 1, Shuffling(honest=0.5)).reports == 1
        result = second_epsilon.of_histograms([(DOOR_EXPERIMENT, 5)], 9)
        assert (result.own, result.reports) == (5, 5)

    def test_count_twice_if_a_board_sent_two(self, folder: Path) -> None:
        once = _of(folder)
        _report_again(folder)
        twice = _of(folder)
        assert twice.own == 2
        assert twice.histogram == histogram_epsilon(DOOR_EXPERIMENT, 6_500, own=2) > 2 * _known(once)
        once_only = experiment_json(name="door", epsilon=2_000_000, budget={"rule": "count", "cap": 1})
        with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as store:
            fill(store, "home", once_only, DAYS)
        _report_again(folder)
        assert _of(folder).own == 2  # as in the version that allows a board more reports


class TestShuffling:
    def test_excludes_forged_reports_and_sets_delta(self, folder: Path) -> None:
        assert _of(folder, honest=0.5).histogram == histogram_epsilon(DOOR_EXPERIMENT, 3_250)
        assert _known(_of(folder, delta=1e-9)) > _known(_of(folder))
        for bad_options in ({"honest": 0}, {"honest": 1.5}, {"delta": 0}, {"delta": 1}):
            with pytest.raises(UsageError):
                Shuffling(**bad_options)


class TestCommands:
    @pytest.mark.slow
    def test_estimate_shows_both_with_the_limits(self, folder: Path) -> None:
        assert "ε" not in hushmote("estimate", "door", cwd=folder)
        text = hushmote("estimate", "door", "--privacy", cwd=folder)
        plain = " ".join(text.split())
        assert "ε of a report: 2. ε for someone who sees this once: 0.14" in plain
        assert (
            f"for someone who has seen every day: {rounded_up(histogram_epsilon(DOOR_EXPERIMENT, 500))}, at δ"
            in plain
        )
        assert LIMITS in " ".join(text.split())
        result = json.loads(hushmote("estimate", "door", "--delta", "1e-9", "--json", cwd=folder))["epsilon"]
        assert result == _of(folder, delta=1e-9).to_dict()
        trend = json.loads(hushmote("estimate", "door", "--trend", "--json", cwd=folder))
        rows = trend["answers"][0]["rows"]
        assert [row["histogram_epsilon"] for row in rows] == [
            histogram_epsilon(DOOR_EXPERIMENT, n) for n in DAYS.values()
        ]
        assert trend["epsilon"]["histogram"] == rows[0]["histogram_epsilon"]
        day = ("--window", "2026-11-20", "--against", "2026-11-21")
        change = json.loads(hushmote("estimate", "door", *day, "--json", cwd=folder))
        assert change["epsilon"]["histogram"] == histogram_epsilon(DOOR_EXPERIMENT, 2_000)
        assert "ε" not in hushmote("estimate", "door", "--trend", "--rows", "9", cwd=folder)
        rows = hushmote("estimate", "door", "--trend", "--rows", "9", "--privacy", cwd=folder).splitlines()
        assert max(map(len, rows)) <= 80
        assert any(line.split()[:3] == ["window", "reports", "ε"] for line in rows)
        assert "delta must be above 0" in hushmote(
            "estimate", "door", "--privacy", "--delta", "0", cwd=folder, expect=1
        )

    def test_status_shows_both_for_each_version(self, folder: Path) -> None:
        text = hushmote("status", "--privacy", cwd=folder)
        assert LIMITS in " ".join(text.split())
        assert max(map(len, text.splitlines())) <= 80
        assert RUNNING not in " ".join(text.split())
        (line,) = json.loads(hushmote("status", "--json", cwd=folder))["experiments"]
        epsilon = line["epsilon"]
        assert (epsilon["report"], epsilon["own"], epsilon["newest_window"]) == (2.0, 1, "2026-11-21")
        assert epsilon["newest"] == histogram_epsilon(DOOR_EXPERIMENT, 2_000)
        assert epsilon["added_up"] == histogram_epsilon(DOOR_EXPERIMENT, 6_500)
        assert epsilon["all_windows"] == histogram_epsilon(DOOR_EXPERIMENT, 500)
        assert (epsilon["histogram_holds"], epsilon["none_holds"]) == (ENDED, None)


RUNS = "9999-12-30"
"""A day that has not ended for as long as this is tested."""
LEARNS = "and anyone who sees a histogram again after every few reports learns individual reports"


class TestRunningWindow:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("window", "which"), [(RUNS, f"window {RUNS} has not ended"), ("all", 'window "all" never ends')]
    )
    def test_has_no_histogram_epsilon(self, folder: Path, window: str, which: str) -> None:
        # Histograms at 26,000 and at 26,001 reports differ by one report, which has only the per-report ε.
        for more in (26_000, 1):
            _count(folder, window, more)
            for windows in ((window,), ("2026-11-20", window), ()):
                both = _of(folder, *windows)
                assert both.histogram is None
                assert both.to_dict()["histogram"] is None
                assert both.holds == f"only the ε of a report applies: {which}, {LEARNS}"
                assert both.words() == f"ε of a report: 2. ε of the histogram: –: {both.holds}."
        assert (both.report, both.own, both.reports) == (2.0, 1, 32_501)
        with StoreReader(f"sqlite:///{folder / 'hushmote.sqlite'}") as reader:
            door = reader.fleet("home").experiment("door")
            by_window = second_epsilon.of_each_window(Facts(reader.store), Selection("door", "home"))
            sides = (Selection("door", "home", (item,)) for item in ("2026-11-20", window))
            change = second_epsilon.of_selections(Facts(reader.store), *sides)
            for both in (change, door.two_epsilons(window), door.two_epsilons(window, apart=True)):
                assert both.histogram is None
            assert door.two_epsilons(tuple(DAYS)).histogram == histogram_epsilon(DOOR_EXPERIMENT, 6_500)
            apart = histograms_epsilon([(DOOR_EXPERIMENT, n) for n in DAYS.values()], Shuffling().delta, 1)
            assert door.two_epsilons(tuple(DAYS), apart=True).histogram == apart
            everything = tuple(sorted((*DAYS, window)))
            (trend,), (ended,) = door.trend(windows=everything), door.trend()
        known = {day: histogram_epsilon(DOOR_EXPERIMENT, n) for day, n in DAYS.items()} | {window: None}
        assert {day: item.histogram for day, item in by_window.items()} == known
        assert {row.window: row.histogram_epsilon for row in trend.rows if isinstance(row, TrendRow)} == known
        assert RUNNING in trend.notes[0]
        assert RUNNING not in " ".join(ended.notes)

    @pytest.mark.slow
    def test_shows_a_dash_and_the_reason(self, folder: Path) -> None:
        _count(folder, RUNS, 26_000)
        every = [f"--window={day}" for day in (*DAYS, RUNS)]
        for options in (
            every,
            ("--window", RUNS),
            (*every, "--trend"),
            ("--window", RUNS, "--against", "2026-11-20"),
        ):
            text = " ".join(hushmote("estimate", "door", *options, "--privacy", cwd=folder).split())
            assert f"–: only the ε of a report applies: window {RUNS} has not ended, {LEARNS}." in text
            epsilon = json.loads(hushmote("estimate", "door", *options, "--json", cwd=folder))["epsilon"]
            assert (epsilon["histogram"], epsilon["report"]) == (None, 2.0)
            assert epsilon["histogram_holds"].startswith("only the ε of a report applies")
        trend = hushmote("estimate", "door", *every, "--trend", "--rows", "9", "--privacy", cwd=folder)
        assert any(line.startswith(f"{RUNS} ") and "–" in line.split() for line in trend.splitlines())
        ended = hushmote("estimate", "door", "--window", "2026-11-20", "--privacy", cwd=folder)
        assert "ε for someone who sees this once: 0.1" in ended
        text = hushmote("status", "--privacy", cwd=folder)
        assert RUNNING in " ".join(text.split())
        (line,) = json.loads(hushmote("status", "--json", cwd=folder))["experiments"]
        shown = [line["epsilon"][name] for name in ("newest_window", "newest", "added_up", "all_windows")]
        assert shown == [RUNS, None, None, histogram_epsilon(DOOR_EXPERIMENT, 500)]
        assert f"window {RUNS} has not ended" in line["epsilon"]["none_holds"]
        assert [word for row in text.splitlines() if "0.5" in row for word in row.split()][-4:-2] == [
            "–",
            "–",
        ]

    def test_has_an_epsilon_once_ended_and_settled(self, folder: Path) -> None:
        settled = datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC) + SETTLED
        with Store(f"sqlite:///{folder / 'hushmote.sqlite'}", create=False) as store:
            for at, known in ((settled - datetime.timedelta(seconds=1), False), (settled, True)):
                seen = second_epsilon.overview(Facts(store, at), Selection("door", "home"))
                assert [item.histogram is not None for item in (seen.newest, seen.added_up)] == [known] * 2
                assert seen.all_windows.histogram == histogram_epsilon(DOOR_EXPERIMENT, 500)
            before = Facts(store, settled - datetime.timedelta(days=9))
            none = second_epsilon.overview(before, Selection("door", "home"))
            assert none.all_windows.histogram is None


class TestLocalEpsilon:
    def test_is_the_largest_that_the_histogram_allows(self) -> None:
        def design(micro: int) -> Experiment:
            return Experiment.parse(experiment_json(epsilon=micro, budget={"rule": "unlimited"}))

        micro = local_epsilon_for(design, 10_000, 0.1)
        assert micro is not None
        allowed, beyond = (histogram_epsilon(design(item), 10_000) for item in (micro, micro * 1002 // 1000))
        assert allowed <= 0.1 < beyond
        assert local_epsilon_for(design, 10_000, 20) == 16_000_000
        assert local_epsilon_for(design, 10, 1e-9) is None


class TestSelections:
    def test_combined_windows_hide_better_than_one(self, folder: Path) -> None:
        everything, day = _of(folder), _of(folder, "2026-11-19")
        assert (everything.reports, everything.own, everything.report) == (6_500, 1, 2.0)
        assert everything.histogram == histogram_epsilon(DOOR_EXPERIMENT, 6_500) < _known(day)
        assert day.histogram == histogram_epsilon(DOOR_EXPERIMENT, 500) < 2

    def test_overlapping_sums_reveal_no_more_than_their_windows(self, folder: Path) -> None:
        """Four sums have the second day, but whoever sees each day can compute all four."""
        days = sorted(DAYS)
        sums = [Selection("door", "home", tuple(days[a:b])) for a, b in ((0, 3), (0, 2), (1, 3), (1, 2))]
        with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as store:
            facts = Facts(store)
            every_day = second_epsilon.overview(facts, Selection("door", "home")).all_windows
            assert _known(second_epsilon.of_selections(facts, *sums)) > _known(every_day)
            once = second_epsilon.seen_once(facts, sums, every_day)
            assert once.histogram == every_day.histogram
            assert second_epsilon.seen_once(facts, sums[:1], every_day) == second_epsilon.of_selections(
                facts, sums[0]
            )

    def test_separately_seen_windows_are_as_bad_as_the_worst(self, folder: Path) -> None:
        with Store(f"sqlite:///{folder / 'hushmote.sqlite'}", create=False) as store:
            selection = Selection("door", "home")
            by_window = second_epsilon.of_each_window(Facts(store), selection)
            epsilons = second_epsilon.of_windows(Facts(store), selection)
        assert {day: item.reports for day, item in by_window.items()} == DAYS
        assert epsilons.histogram == max(map(_known, by_window.values()))
        assert epsilons.histogram == histograms_epsilon([(DOOR_EXPERIMENT, n) for n in DAYS.values()])

    @pytest.mark.parametrize(("window", "ended"), [("2026-11-19", True), (RUNS, False)])
    def test_two_fleets_have_the_larger_epsilon(self, folder: Path, window: str, ended: bool) -> None:
        """A few reports at ε = 1 are hidden less well than many at ε = 2, which each reveal more."""
        _report_again(folder)
        with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as store:
            counts = fill(
                store, "attic", experiment_json(name="door", budget={"rule": "unlimited"}), {window: 20}
            )
            both = second_epsilon.of_selections(
                Facts(store), Selection("door", "home"), Selection("door", "attic")
            )
        expected = (1_000_000, 2.0, 2, histogram_epsilon(counts, 20) if ended else None)
        assert (counts.epsilon, both.report, both.own, both.histogram) == expected

    @pytest.mark.parametrize(("cap", "recomputed"), [(2, 1), (1, 0)])
    def test_query_devices_at_most_once_for_all_windows(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cap: int, recomputed: int
    ) -> None:
        # With 360 windows of 300,000 devices, one question for each window took 40 s of CPU.
        payload = experiment_json(name="door", epsilon=2_000_000, budget={"rule": "count", "cap": cap})
        calls = []
        participation = Store.participation
        monkeypatch.setattr(Store, "participation", lambda *a: calls.append(1) or participation(*a))
        with Store(f"sqlite:///{tmp_path / 'x.sqlite'}") as store:
            fill(store, "home", payload, DAYS)
            by_window = second_epsilon.of_each_window(Facts(store), Selection("door", "home"))
        assert ([item.own for item in by_window.values()], sum(calls)) == ([1, 1, 1], recomputed)
