"""Releases on a fleet of 20,000 boards, from the boards through a broker to the verdict of each day.

The boards are real clients that draw in advance whether a call makes a report, as boards that sleep do. A
report describes the day before it arrives, so that the version that it names is that of the day before. All
draws are seeded.
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from running_aggregator import running, until

from hushmote.server.aggregator import Aggregator
from hushmote.server.answers.query import Facts
from hushmote.server.answers.releases.first_plan import PlanRequest
from hushmote.server.answers.releases.installed import read_installed
from hushmote.server.answers.releases.judge import judge
from hushmote.server.answers.releases.result import JudgedRelease
from hushmote.server.experiments import definition
from hushmote.server.store.store import Store
from hushmote.server.wire.experiments import every_by_index, group_values
from hushmote.simulator import rollout
from hushmote.simulator.broker import MosquittoBroker
from hushmote.simulator.faithful import Delivery, SimulatedFleet
from hushmote.simulator.gateway import Gateways

BOARDS, DAYS = 20_000, 14
OLD, NEW = "2.3.1", "2.4.0"
PROCEED, STOP, NOT_YET = 0, 3, 4  # exit statuses of hushmote release
FILE = """
name = "board_crash"
purpose = "Does the new firmware version crash more often than the old one?"
owner = "firmware@example.org"
expires = 9999-12-31
type = "bool"
epsilon = 2
group = "firmware"
groups = ["2.3.1", "2.4.0"]
every = {"2.4.0" = 4, other = 20}
worse_by = 0.02
window = "day"
[budget]
rule = "sum"
cap = 8
"""
EXPERIMENT = definition.parse(FILE)


@dataclass
class Clock:
    """The aggregator's clock, which the test sets to noon of each day."""

    now: datetime.datetime

    def __call__(self) -> datetime.datetime:
        return self.now


@dataclass
class Release:
    """A fleet while a version rolls out.

    Attributes:
        stages: The share of boards with the new version, by stage of equal length.
        crashes: The share of boards that crash on a day, by version.
        silent: The share of boards with the new version that no longer report.
    """

    stages: str
    crashes: Mapping[str, float]
    silent: float = 0.0
    seed: int = 1
    first: datetime.date = field(init=False)

    def __post_init__(self) -> None:
        # A store accepts no reports from before the experiment was added.
        self.first = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1)
        self.experiment = EXPERIMENT.experiment()
        self._rng = np.random.default_rng(self.seed)
        self.fleet = SimulatedFleet(
            "home", [EXPERIMENT.payload()], size=BOARDS, rng=self._rng, repeatable=True
        )
        shares = rollout.parse_shares(self.experiment, [f"{NEW}={self.stages}"], DAYS)
        positions = self._rng.random(BOARDS)
        self._is_silent = self._rng.random(BOARDS) < self.silent
        # On the evening before the first day, no board has the new version.
        self.values = [np.zeros(BOARDS, np.int64), *(rollout.values_at(row, positions) for row in shares)]

    def at(self, day: int) -> datetime.datetime:
        """Return noon of a day."""
        noon = datetime.datetime.combine(self.first, datetime.time(12), datetime.UTC)
        return noon + datetime.timedelta(days=day)

    def reports(self, day: int) -> Iterator[Delivery]:
        """Yield the reports of a day, which describe the day before."""
        values, names = self.values[day], group_values(self.experiment)
        every = np.array(every_by_index(self.experiment))
        is_drawn = self._rng.random(BOARDS) < 1 / every[values]
        has_crashed = (
            self._rng.random(BOARDS) < np.array([self.crashes.get(name, 0) for name in names])[values]
        )
        is_silent = self._is_silent & (self.values[day + 1] == names.index(NEW))
        for position in np.flatnonzero(is_drawn & ~is_silent).tolist():
            value = int(values[position])
            payload = self.fleet.client(position).report(
                self.experiment.name,
                bool(has_crashed[position]),
                drawn=self.experiment.digest + bytes((value,)),
                group=names[value],
            )
            if payload is not None:
                yield Delivery(self.fleet.ids[position], payload, position)

    def installed(self, days: int) -> dict[str, dict[str, int]]:
        """Return the update server's table: the devices with each version at the end of each of the days."""
        new = [int((values == 1).sum()) for values in self.values]
        table = {}
        for day, n in enumerate(new[: days + 1]):
            date = self.first + datetime.timedelta(days=day - 1)
            table[date.isoformat()] = {NEW: n, OLD: BOARDS - n}
        return table


def verdicts(release: Release, store: Store) -> list[JudgedRelease]:
    """Run all days; return the verdict after each."""
    results: list[JudgedRelease] = []
    store.add_fleet("home", keyed=False)
    described = EXPERIMENT.description()
    store.add_experiment("home", EXPERIMENT.payload(), EXPERIMENT.expires, description=described)
    clock = Clock(release.at(0))
    with (
        MosquittoBroker() as broker,
        running(store, broker, clock=clock) as aggregator,
        Gateways(broker.host, broker.port) as gateways,
    ):
        delivered = 0
        for day in range(DAYS):
            clock.now = release.at(day)
            delivered += gateways.deliver(release.fleet, release.reports(day))
            wait_until_counted(aggregator, delivered)
            facts = Facts(store, release.at(day + 1))
            installed = read_installed(release.installed(day + 1))
            request = PlanRequest(NEW, (OLD,), DAYS)
            results.append(judge(facts, "home", request, store.add_release_plan, installed=installed))
    for group in range(2):
        counted = sum(reports_of(store, release, group))
        assert counted == release.fleet.histogram(release.experiment, group).sum()
    return results


def wait_until_counted(aggregator: Aggregator, delivered: int) -> None:
    until(lambda: aggregator.counters.accepted == delivered, lambda: f"{aggregator.counters}, {delivered}")


def statuses(results: Sequence[JudgedRelease]) -> list[int]:
    """Return the exit status of each day."""
    return [result.exit_status for result in results]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as opened:
        yield opened


def reports_of(store: Store, release: Release, group: int) -> list[int]:
    """Return the counted reports of a version by day."""
    (by_window,) = store.group_reports("home").values()
    dates = [(release.first + datetime.timedelta(days=day)).isoformat() for day in range(DAYS)]
    return [by_window[date].get(group, 0) for date in dates]


@pytest.mark.slow
class TestRelease:
    """A share of 5% of the boards crashes on a day; the new version reaches 5% of the boards first.

    The plan allows a false "stop" with a chance of 5%, so other seeds may stop the good release. The
    crashes rise by 15 points; in 14 days, these reports detect a rise of 2.5 points with a chance of 80%.
    """

    def test_good_release_proceeds(self, store: Store):
        release = Release("0.05,0.25,0.25", {OLD: 0.05, NEW: 0.05})
        results = verdicts(release, store)
        assert statuses(results) == [NOT_YET] * 10 + [PROCEED] * 4
        assert results[-1].sentence().startswith("Proceed: board_crash is at most 2 points worse on 2.4.0")
        progress = results[6].rollout.progress
        assert progress is not None
        assert progress.part == pytest.approx(0.25, abs=0.05)
        # A budget pays four reports; by the last day, too many boards with the new version have made them.
        assert results[-1].rollout.progress is None
        assert "have no reports left" in results[-1].rollout_sentence()

    def test_crashing_release_is_stopped(self, store: Store):
        release = Release("0.05", {OLD: 0.05, NEW: 0.2})
        results = verdicts(release, store)
        assert statuses(results) == [NOT_YET] * 3 + [STOP] * 11
        for result in results[3:]:
            assert result.sentence().startswith("Stop: board_crash is worse on 2.4.0 than on 2.3.1, by 1")

    def test_rollback_keeps_the_stop(self, store: Store):
        """After 7 days, all boards return to the old version; their last reports name the new one."""
        release = Release("0.05,0", {OLD: 0.05, NEW: 0.2})
        results = verdicts(release, store)
        assert statuses(results) == [NOT_YET] * 3 + [STOP] * 11
        reports = reports_of(store, release, group=1)
        assert [n > 0 for n in reports] == [False] + [True] * 7 + [False] * 6
        assert release.installed(8)[f"{release.first + datetime.timedelta(days=7)}"][NEW] == 0
        # The evidence remains that of the days before, and no board is missed that no longer has the version.
        assert results[-1].sentence() == results[7].sentence()
        # Boards that made all their reports with the new version cannot say that they no longer have it.
        assert results[-1].rollout.progress is None
        assert "have no reports left" in results[-1].rollout_sentence()

    def test_silent_boards_stop_a_release(self, store: Store):
        """Of the boards with the new version, 95% are bricked; the readings of the others show nothing."""
        release = Release("0.05", {OLD: 0.05, NEW: 0.05}, silent=0.95)
        results = verdicts(release, store)
        assert statuses(results) == [NOT_YET] + [STOP] * 13
        for result in results[1:]:
            assert result.sentence().startswith("Stop: boards with 2.4.0 are silent; ")
        facts = Facts(store, release.at(DAYS))
        blind = judge(facts, "home", PlanRequest(NEW, (OLD,), DAYS), store.add_release_plan)
        assert blind.exit_status == NOT_YET
        assert "the number of installed devices is needed for a verdict" in blind.sentence()
