"""A simulated fleet's days in a store, as real boards would have filled it."""

import datetime
from collections.abc import Iterator

import numpy as np
import pytest
from command_line import DOOR
from experiments import ROOM
from scipy import stats

from hushmote.server.experiments import definition
from hushmote.server.experiments.definition import Definition
from hushmote.server.store.check import check
from hushmote.server.store.number_set import NumberSet
from hushmote.server.store.store import Store
from hushmote.simulator import days, drift
from hushmote.simulator.days import Course, FilledFleet, SimulatedFleetError, fill
from hushmote.simulator.population import ByGroup, Population, PopulationError, normal, parse, zipf
from hushmote.simulator.rollout import default_shares

TODAY = datetime.date(2026, 11, 22)


@pytest.fixture
def empty(tmp_path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
        yield store


def filled(
    store: Store,
    seed: int,
    asked: Definition | None = None,
    devices: int = 3_000,
    days: int = 4,
    calls: float = 5,
    by: float = 0.0,
    fleet: str = "sim",
    people: Population | None = None,
) -> FilledFleet:
    population = people or normal(14, 2)
    course = Course(fleet, asked or definition.parse(ROOM), devices, population, days, calls, by, TODAY)
    return fill(store, course, np.random.default_rng(seed))


class TestFilledStore:
    @pytest.mark.slow
    def test_boards_report_by_draw_until_budgets_are_spent(self, empty: Store):
        """Test 60,000 boards by chi-square against Binomial(20, 1/3) cut off at 4 (false alarm 1e-9)."""
        seen: dict[int, int] = {}
        written = filled(empty, 1, devices=60_000)
        for _, _, numbers in empty.accepted_numbers("sim"):
            assert numbers == NumberSet(len(numbers))
            seen[len(numbers)] = seen.get(len(numbers), 0) + 1
        assert sum(n * boards for n, boards in seen.items()) == written.reports
        expected = 60_000 * np.array([*stats.binom.pmf(range(4), 20, 1 / 3), stats.binom.sf(3, 20, 1 / 3)])
        counts = [60_000 - sum(seen.values()), *(seen[n] for n in range(1, 5))]
        assert set(seen) == {1, 2, 3, 4}
        assert (written.reporting_devices, written.spent) == (sum(seen.values()), seen[4])
        assert stats.chisquare(counts, expected).pvalue > 1e-9

    def test_equals_an_aggregators_store(self, store_url: str):
        with Store(store_url) as store:
            written = filled(store, 2, by=1)
            checked = check(store)
            assert checked.violations == ()
            assert (checked.devices, checked.reports) == (written.reporting_devices, written.reports)
            (version,) = store.experiments("sim")
            assert (version.current, version.unit, version.owner) == (True, "°C", "heating@example.org")
            wanted = ("2026-11-18", "2026-11-19", "2026-11-20", "2026-11-21")
            assert store.windows("sim", version.experiment.digest) == wanted
            assert store.window_reports("sim") == {version.id: written.windows}
            assert store.fleets() == {"sim": False}

    @pytest.mark.parametrize(("window", "names"), [("hour", 48), ("all", 1)])
    def test_has_the_files_windows(self, empty: Store, window: str, names: int):
        question = definition.parse(ROOM.replace('"day"', f'"{window}"'))
        written = filled(empty, 4, question, days=2, calls=6)
        assert check(empty).violations == ()
        assert len(written.windows) == names
        assert window == "all" or list(written.windows)[::47] == ["2026-11-20T00", "2026-11-21T23"]

    def test_rare_calls_spread_over_days(self, empty: Store):
        """Each of 10 days has a tenth of 20,000 calls; 297 is 7 standard deviations."""
        question = definition.parse(ROOM.replace("every = 3", "every = 1"))
        written = filled(empty, 5, question, 20_000, 10, 0.1)
        assert written.reports == 20_000
        assert all(abs(n - 2_000) < 297 for n in written.windows.values())


class TestErrors:
    def test_simulated_reports_stay_out_of_real_fleets(self, empty: Store):
        empty.add_fleet("sim-keyed", keyed=True)
        with pytest.raises(SimulatedFleetError, match="such as simulated, not home: otherwise"):
            filled(empty, 6, fleet="home")
        with pytest.raises(SimulatedFleetError, match="is keyed"):
            filled(empty, 6, fleet="sim-keyed")
        assert empty.experiments() == ()
        filled(empty, 6)
        before = empty.window_reports("sim")
        with pytest.raises(SimulatedFleetError, match="already has reports of room_temp"):
            filled(empty, 6)
        assert empty.window_reports("sim") == before
        filled(empty, 6, definition.parse(DOOR), 500, 3, 1, 0.1, people=parse("weights:7:3"))
        assert check(empty).violations == ()

    def test_more_reports_than_can_be_drawn_are_rejected(self, empty: Store):
        with pytest.raises(PopulationError, match="the limit is 1,000,000,000"):
            filled(empty, 7, devices=10**15)
        assert empty.fleets() == {}


class TestDrift:
    @pytest.mark.slow
    def test_is_followed_by_estimates(self, empty: Store):
        """The means of three windows are within 6.5 standard errors of the truth (false alarm: 1 in 4e9)."""
        written = filled(empty, 3, devices=20_000, by=1)
        first, last, together = written.truths
        assert (first.window, last.window, together.window) == ("2026-11-18", "2026-11-21", "all")
        assert together.reports == written.reports
        assert first.row.truth == pytest.approx(14, abs=0.2)
        assert last.row.truth == pytest.approx(17, abs=0.2)
        for truth in written.truths:
            error = (truth.row.high - truth.row.low) / 2 / 1.96
            assert truth.row.truth is not None
            assert abs(truth.row.value - truth.row.truth) < 6.5 * error

    def test_moves_a_population_in_its_unit(self):
        experiment = definition.parse(ROOM).experiment()
        by = drift.shift_population(normal(14, 2), experiment, 1.5).probabilities(experiment)
        assert by == pytest.approx(normal(15.5, 2).probabilities(experiment), abs=1e-12)
        with pytest.raises(
            PopulationError, match="only a population in the reading's unit, such as normal:21:3, can drift"
        ):
            drift.shift_population(zipf(1), experiment, 1.5)

    def test_turns_boards_to_yes(self):
        experiment = definition.parse(DOOR).experiment()
        turned = drift.shift_population(parse("weights:7:3"), experiment, 0.5)
        assert turned.probabilities(experiment) == pytest.approx([0.35, 0.65, 0])
        sample = turned.sample(experiment, 4_000, np.random.default_rng(8))
        assert abs(sum(map(bool, sample)) / 4_000 - 0.65) < 7 * 0.0076  # 7 deviations
        with pytest.raises(PopulationError, match="from 0 to 1"):
            drift.shift_population(parse("weights:7:3"), experiment, 1.2)


class TestDefaultDrift:
    @pytest.mark.parametrize(
        ("file", "population", "drift_per_day"),
        [
            (ROOM, "normal:14:2", 0.4),  # an eighth of 32 °C in ten days
            (ROOM, "zipf:1", 0.0),  # has no unit to move in
            (DOOR, "weights:7:3", 0.02),  # a fifth of the fleet
        ],
    )
    def test_is_visible_after_the_days(self, file: str, population: str, drift_per_day: float):
        people = parse(population)
        for readings in (people, ByGroup(people)):
            assert drift.default_drift(definition.parse(file), readings, 10) == drift_per_day


class TestUsualCalls:
    def test_leave_a_third_of_the_budget(self):
        for file, reports in ((ROOM, 4 * 3), (DOOR, 2)):
            experiment = definition.parse(file).experiment()
            calls = days.usual_calls(experiment, default_shares(experiment, 30))
            assert calls == pytest.approx(2 / 3 * reports / 30, rel=0.05)
