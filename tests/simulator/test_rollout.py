"""Simulated boards whose reports name an open group's value, while a version rolls out."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import fails
from scipy import stats

from hushmote.server.experiments import definition
from hushmote.server.experiments.definition import Definition
from hushmote.server.store.check import check
from hushmote.server.store.store import Store
from hushmote.server.wire import report
from hushmote.simulator import days, rollout
from hushmote.simulator import simulate as simulation
from hushmote.simulator.days import Course, fill
from hushmote.simulator.drift import choose_population, shift_groups
from hushmote.simulator.faithful import Faults, SimulatedFleet
from hushmote.simulator.population import Population, PopulationError, parse
from hushmote.simulator.simulate import simulate

FILE = """
name = "crash"
purpose = "Does the new version crash more often?"
owner = "firmware@example.org"
expires = 9999-12-31
type = "bool"
epsilon = 2
group = "firmware"
groups = ["2.3.1", "2.4.0"]
every = {"2.4.0" = 1, other = 5}
window = "day"
[budget]
rule = "sum"
cap = 8
"""
CRASH = definition.parse(FILE)
EXPERIMENT = CRASH.experiment()
TODAY = datetime.date(2026, 11, 22)
OLD, NEW, OTHER = range(3)


def course(devices: int, calls: float = 1.0, file: Definition = CRASH, **more) -> Course:
    people = more.pop("people", parse("weights:19:1"))
    return Course("sim", file, devices, people, 8, calls, 0.0, TODAY, **more)


class TestShares:
    def test_last_value_rolls_out_by_default(self):
        shares = rollout.default_shares(EXPERIMENT, 8)
        assert shares[:, NEW].tolist() == [0.01, 0.01, 0.05, 0.05, 0.25, 0.25, 1, 1]
        assert shares[:, OLD].tolist() == pytest.approx([0.99, 0.99, 0.95, 0.95, 0.75, 0.75, 0, 0])
        assert not shares[:, OTHER].any()
        assert rollout.default_shares(EXPERIMENT, 1).tolist() == [[0.95, 0.05, 0]]
        only = definition.parse(FILE.replace('"2.3.1", ', "")).experiment()
        assert rollout.default_shares(only, 1).tolist() == [[0.05, 0.95]]

    def test_stages_last_equal_parts_of_the_days(self):
        shares = rollout.parse_shares(EXPERIMENT, ["2.4.0=0.1,0.5,0", "other=0.2"], 7)
        assert shares[:, NEW].tolist() == pytest.approx([0.1, 0.1, 0.1, 0.5, 0.5, 0, 0])
        assert shares[:, OTHER].tolist() == pytest.approx([0.2] * 7)
        assert shares[:, OLD].tolist() == pytest.approx([0.7, 0.7, 0.7, 0.3, 0.3, 0.8, 0.8])

    @pytest.mark.parametrize(
        ("texts", "match"),
        [
            (("2.4.0=2",), "from 0 to 1, not 2.4.0=2"),
            (("2.4.0=nan",), "from 0 to 1, not 2.4.0=nan"),
            (("2.5=0.1",), "its values are 2.3.1, 2.4.0, other"),
            (("2.4.0=x",), "a number after 2.4.0="),
            (("2.4.0=0.1,0.2,0.3",), r"more stages than days \(2\); use more --days"),
            (("2.4.0=0.1", "2.4.0=0.2"), "given twice"),
            (("2.4.0=0.7", "other=0.4"), "add up to 1.1, not to 1"),
            (("2.4.0=0.7", "other=0.1", "2.3.1=0.1"), "add up to 0.9, not to 1"),
        ],
    )
    def test_rejects_shares_that_do_not_fit(self, texts: tuple[str, ...], match: str):
        with fails(match, PopulationError):
            rollout.parse_shares(EXPERIMENT, texts, 2)

    def test_rejects_group_of_experiment_without_one(self):
        door = definition.parse(FILE.split("group =")[0] + '[budget]\nrule = "sum"\ncap = 8\n')
        with fails("crash has no open group; omit 2.4.0=1", PopulationError):
            rollout.parse_shares(door.experiment(), ["2.4.0=1"], 2)
        with fails("one number, such as 2.4.0=0.03, not 2.4.0=0,1", PopulationError):
            rollout.parse_shifts(EXPERIMENT, ["2.4.0=0,1"])


class TestOrderOfUpdates:
    POSITIONS = (np.arange(10_000) + 0.5) / 10_000

    def test_boards_have_the_shares(self):
        values = rollout.values_at(np.array([0.5, 0.2, 0.3]), self.POSITIONS)
        assert np.bincount(values).tolist() == [5_000, 2_000, 3_000]
        assert rollout.values_at(np.array([1 - 1e-9, 1e-9, 0]), np.array([0.99999999999])).tolist() == [OLD]

    def test_growing_version_loses_no_board(self):
        before = np.zeros(10_000, bool)
        for share in (0.01, 0.05, 0.25, 1):
            after = rollout.values_at(np.array([1 - share, share, 0]), self.POSITIONS) == NEW
            assert after.sum() == share * 10_000
            assert not (before & ~after).any()
            before = after

    def test_rollback_returns_boards_to_their_version(self):
        before, during, after = (
            rollout.values_at(np.array([0.9 - share, share, 0.1]), self.POSITIONS) for share in (0, 0.25, 0)
        )
        assert (before == after).all()
        assert (during[before == OTHER] == OTHER).all()


class TestDays:
    def test_draws_match_a_draw_for_each_call(self):
        """Compare 100,000 boards with as many drawn call by call here, by chi-square (false alarm 1e-10)."""
        n, rng = 100_000, np.random.default_rng(1)
        tested, expected, drawn = course(n, calls=2.0), Signatures(n), Signatures(n)
        phase, positions = rng.random(n), rng.random(n)
        for call in range(16):
            day_of_board = ((call + phase) / 2).astype(int)
            for day in range(8):
                values = rollout.values_at(tested.group_shares[day], positions)
                reports = (day_of_board == day) & (expected.numbers < 4)
                reports &= rng.random(n) < 1 / np.array([5, 1, 5])[values]
                expected.add(np.flatnonzero(reports), values[reports], day)
        for boards, groups, times in days.draw_report_times(tested, n, rng):
            drawn.add(boards, groups, times.astype(int))
        assert drawn.numbers.max() == expected.numbers.max() == 4
        assert _homogeneity(drawn.counts(), expected.counts()) > 1e-10

    def test_store_has_each_groups_reports(self, store_url: str):
        """Each of 16 counts is within 7 standard deviations of 40,000 boards' mean (false alarm 4e-11)."""
        unlimited = definition.parse(FILE.replace('"sum"\ncap = 8', '"unlimited"'))
        with Store(store_url) as store:
            written = fill(store, course(40_000, file=unlimited), np.random.default_rng(2))
            assert check(store).violations == ()
            (version,) = store.experiments("sim")
            by_window = store.group_reports("sim")[version.id]
            assert store.window_reports("sim") == {version.id: written.windows}
        assert {
            name: sum(n.get(i, 0) for n in by_window.values()) for i, name in enumerate(("2.3.1", "2.4.0"))
        } == written.groups
        for reports, share in zip(
            by_window.values(), (0.01, 0.01, 0.05, 0.05, 0.25, 0.25, 1, 1), strict=True
        ):
            for index, chance in ((NEW, share), (OLD, (1 - share) / 5)):
                assert abs(reports.get(index, 0) - 40_000 * chance) <= 7 * np.sqrt(
                    40_000 * chance * (1 - chance)
                )
        assert by_window[f"{TODAY - datetime.timedelta(days=1)}"] == {NEW: 40_000}

    def test_readings_of_a_group_may_be_worse(self, tmp_path: Path):
        """Estimates are within 6.5 standard errors of the truth (false alarm: 1 in 4e9)."""
        people = shift_groups(parse("weights:19:1"), EXPERIMENT, {NEW: 0.2})
        with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
            written = fill(store, course(20_000, people=people), np.random.default_rng(3))
        truths = {truth.group: truth for truth in written.truths if truth.group}
        assert list(truths) == ["2.3.1", "2.4.0"]
        for name, share in (("2.3.1", 0.05), ("2.4.0", 0.05 + 0.95 * 0.2)):
            row, reports = truths[name].row, truths[name].reports
            assert row.truth is not None
            assert abs(row.truth - share) < 6.5 * np.sqrt(share * (1 - share) / reports)
            assert abs(row.value - row.truth) < 6.5 * (row.high - row.low) / 2 / 1.96

    def test_usual_calls_leave_a_third_of_the_budget(self):
        """The mean rate of a call is 0.25 (0.05 + 0.25 + ...) over a rollout in four stages."""
        shares = rollout.default_shares(EXPERIMENT, 8)
        rate = np.mean([share + (1 - share) / 5 for share in rollout.STAGES])
        assert days.usual_calls(EXPERIMENT, shares) == pytest.approx(2 / 3 * 4 / 8 / rate, rel=0.05)


class TestOneMoment:
    def test_reports_follow_shares_and_every(self):
        """Counts are within 7 standard deviations of their means (false alarm: 3e-12 each)."""
        result = simulate(CRASH, devices=100_000, population="weights:19:1", calls=1, groups=["2.4.0=0.1"],
                          seed=1)  # fmt: skip
        old, new = result.groups
        assert (old.name, new.name, old.devices + new.devices) == ("2.3.1", "2.4.0", 100_000)
        assert abs(new.devices - 10_000) < 7 * np.sqrt(100_000 * 0.1 * 0.9)
        assert new.reports == new.devices
        assert abs(old.reports - old.devices / 5) < 7 * np.sqrt(old.devices * 0.2 * 0.8)
        assert result.reports == old.reports + new.reports

    def test_too_many_calls_of_real_clients_are_rejected(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(simulation, "MAX_FAITHFUL", 100)
        assert simulate(CRASH, devices=50, calls=2, faults=Faults(), seed=1).devices == 50
        with fails("--faithful makes 102 calls, more than the 100 allowed", PopulationError):
            simulate(CRASH, devices=51, calls=2, faults=Faults())

    def test_arrival_order_mixes_groups(self):
        """The hypergeometric counts of 20 batches are within 7 deviations of their means (5e-11)."""
        reports, rng = [30_000, 70_000], np.random.default_rng(5)
        batches = list(simulation._mixed(reports, [5_000] * 20, rng))
        assert np.sum(batches, axis=0).tolist() == reports
        deviation = np.sqrt(5_000 * 0.3 * 0.7 * (95_000 / 99_999))
        assert all(sum(batch) == 5_000 for batch in batches)
        assert all(abs(first - 1_500) < 7 * deviation for first, _ in batches)

    def test_real_clients_match(self):
        """Real clients' counts are within 7 deviations of their means (false alarm: 3e-12 each)."""
        result = simulate(
            CRASH,
            devices=1_000,
            population="weights:19:1",
            calls=2,
            groups=["2.4.0=0.5"],
            shifts=["2.4.0=0.9"],
            faults=Faults(),
            seed=2,
        )
        old, new = result.groups
        assert abs(new.devices - 500) < 7 * np.sqrt(250)
        assert new.reports == 2 * new.devices
        assert abs(old.reports - 2 * old.devices / 5) < 7 * np.sqrt(2 * old.devices * 0.2 * 0.8)
        for group, share in ((old, 0.05), (new, 0.05 + 0.95 * 0.9)):
            assert group.row is not None
            assert group.row.truth is not None
            assert abs(group.row.truth - share) < 7 * np.sqrt(share * (1 - share) / group.reports)


class TestRealClients:
    def test_reports_name_the_current_value(self):
        rng = np.random.default_rng(4)
        fleet = SimulatedFleet("f", [CRASH.payload()], size=200, rng=rng, repeatable=True)
        assert set(fleet.groups["firmware"]) <= {"2.3.1", "2.4.0"}
        for values in (["2.4.0"] * 200, ["2.4.0", "9.9"] * 100):
            fleet.groups["firmware"] = values
            for delivery in fleet.make_reports({"crash": [True] * 200}):
                fleet.acknowledge(delivery)
                index = report.decode(delivery.payload).group
                assert index == (NEW if values[delivery.position] == "2.4.0" else OTHER)
        by_group = [int(fleet.histogram(EXPERIMENT, group).sum()) for group in range(3)]
        assert by_group[:2] == [0, 300]
        assert sum(by_group) == fleet.histogram(EXPERIMENT).sum() == len(fleet.acknowledged)
        indices, missing = fleet.index_counts("crash", group=NEW)
        assert (indices.tolist(), missing) == ([0, 300], 0)


class TestFile:
    def people(self, folder: Path) -> Population:
        rows = ["2.3.1,no"] * 6 + ["2.4.0,yes", "2.4.0,no", "1.0,yes", ",no"]
        (folder / "crashes.csv").write_text("firmware,crashed\n" + "\n".join(rows) + "\n")
        return choose_population(CRASH, f"file:{folder / 'crashes.csv'}:crashed")[0]

    def test_column_gives_each_groups_readings(self, tmp_path: Path):
        people = self.people(tmp_path)
        shares = [people.of_group(i).probabilities(EXPERIMENT).tolist() for i in range(3)]
        assert shares == [[1, 0, 0], [0.5, 0.5, 0], [0.5, 0.5, 0]]
        assert people.probabilities(EXPERIMENT).tolist() == pytest.approx([0.8, 0.2, 0])

    def test_column_gives_shares_of_values(self, tmp_path: Path):
        shares = rollout.default_shares(EXPERIMENT, 2, self.people(tmp_path))
        assert shares.tolist() == [[0.6, 0.2, 0.2]] * 2

    def test_shift_applies_to_one_value(self, tmp_path: Path):
        people = self.people(tmp_path)
        with fails("recorded texts cannot drift|readings", PopulationError):
            shift_groups(people, definition.parse(FILE.replace('"bool"', '"text"')).experiment(), {NEW: 0.1})
        shifted = shift_groups(people, EXPERIMENT, {NEW: 0.5})
        assert shifted.of_group(NEW).probabilities(EXPERIMENT).tolist() == [0.25, 0.75, 0]
        assert shifted.of_group(OLD).probabilities(EXPERIMENT).tolist() == [1, 0, 0]


class Signatures:
    """Each board's number of reports, the days of the first and last, and the version of each of the two."""

    def __init__(self, n: int) -> None:
        self.numbers, self._first, self._last = (np.zeros(n, np.int64) for _ in range(3))

    def add(self, boards: np.ndarray, groups: np.ndarray, days: np.ndarray | int) -> None:
        """Add one later report of each of the boards."""
        self._last[boards] = days * 3 + groups
        is_first = self.numbers[boards] == 0
        self._first[boards[is_first]] = self._last[boards[is_first]]
        self.numbers[boards] += 1

    def counts(self) -> np.ndarray:
        """Return the number of boards with each signature."""
        return np.bincount((self.numbers * 24 + self._first) * 24 + self._last, minlength=5 * 24 * 24)


def _homogeneity(a: np.ndarray, b: np.ndarray) -> float:
    """Return the p-value of the hypothesis that two samples have one distribution; rare cells are joined."""
    is_rare = a + b < 40
    table = np.array([np.append(counts[~is_rare], counts[is_rare].sum()) for counts in (a, b)])
    result: Any = stats.chi2_contingency(table[:, table.sum(axis=0) > 0])
    return float(result.pvalue)
