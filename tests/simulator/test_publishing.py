"""Days of simulated boards through a real broker, to an aggregator whose clock hurries as they do."""

import datetime

import numpy as np
import pytest
from boards import ask_fleet
from experiments import ROOM
from running import running, until

from hushmote.server.experiments import definition
from hushmote.server.ingest.clock import HurryingClock
from hushmote.server.store.check import check
from hushmote.server.store.store import Store
from hushmote.simulator import texts
from hushmote.simulator.broker import EmbeddedBroker
from hushmote.simulator.days import Course, SimulatedFleetError
from hushmote.simulator.gateway import Gateways
from hushmote.simulator.population import normal
from hushmote.simulator.publishing import check_announced, publish

ASKED = definition.parse(ROOM)


def course(asked: definition.Definition = ASKED) -> Course:
    today = datetime.datetime.now(datetime.UTC).date()
    return Course("sim", asked, 300, normal(14, 2), 3, 4, 1.0, today)


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path / 's.sqlite'}") as store:
        ask_fleet(store, "sim", ASKED.payload(), ASKED.expires)
        yield store


def test_an_aggregator_counts_each_report_once_and_by_its_own_days(store: Store):
    """Day 1 of 3 takes a second: what is sent in it is counted in its window but for the last batch's."""
    wanted, clock, done = course(), HurryingClock(3, day_s=1), [0.0]
    first = wanted.dates[0]

    def advance(more: float) -> None:
        """Have day 1 begin with the first reports, however late they are counted, and end before the last."""
        done.append(more)
        until(lambda: aggregator.counters.accepted, "nothing is counted")
        until(lambda: sum(done) < 0.5 or clock.peek().date() > first, "day 1 does not end")

    with (
        EmbeddedBroker() as broker,
        running(store, broker, fleets=["sim"], clock=clock, batch_s=0.05) as aggregator,
    ):
        until(lambda: aggregator._retention._finished_hour, "nobody looks for windows that are too old")
        assert clock.peek() == clock.peek()  # it stands still
        with Gateways(broker.host, broker.port) as gateways:
            check_announced(gateways, wanted)
            sent = publish(gateways, wanted, np.random.default_rng(1), advance, day_s=1)
        until(lambda: aggregator.counters.accepted == sent.reports, "not all was counted")
    assert sum(done) == pytest.approx(1)
    assert aggregator.counters.rejected == {}
    found = check(store)
    assert (found.violations, found.reports) == ((), sent.reports)
    (counted,) = store.window_reports("sim").values()
    assert min(counted) == first.isoformat()
    assert len(counted) > 1


WORDS = """
name = "words"
purpose = "Which words are typed?"
owner = "ops@example.org"
expires = 9999-12-31
type = "text"
slots = 8192
prefixes = [2, 4, 4]
mechanism = "prefix"
epsilon = 4
window = "day"
[budget]
rule = "sum"
cap = 8
"""


def test_texts_that_nobody_listed_are_published(store: Store):
    asked = definition.parse(WORDS)
    ask_fleet(store, "sim", asked.payload(), asked.expires)
    words = texts.weighted(["cats", "dogs"], [3, 1])
    wanted = Course("sim", asked, 100, words, 1, 1, 0.0, datetime.datetime.now(datetime.UTC).date())
    with EmbeddedBroker() as broker, running(store, broker, fleets=["sim"], batch_s=0.05) as aggregator:
        with Gateways(broker.host, broker.port) as gateways:
            sent = publish(gateways, wanted, np.random.default_rng(1), day_s=0.1)
        until(lambda: aggregator.counters.accepted == sent.reports == 100, "not all was counted")
    assert (sent.statistic, sent.days[0][2]) == ("cats", pytest.approx(0.75, abs=0.3))


def test_boards_are_asked_by_the_broker_or_not_at_all(store: Store):
    with EmbeddedBroker() as broker, Gateways(broker.host, broker.port) as gateways:
        with pytest.raises(SimulatedFleetError, match="nobody asks fleet sim for room_temp"):
            check_announced(gateways, course())
        with running(store, broker):
            check_announced(gateways, course())
            other = definition.parse(ROOM.replace("epsilon = 2", "epsilon = 1"))
            with pytest.raises(SimulatedFleetError, match="another version of room_temp"):
                check_announced(gateways, course(other))
