"""Each event is recorded once and sent once per receiver, in SQLite and in PostgreSQL."""

import datetime
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import update

from hushmote.fleet.alerts import outbox as module
from hushmote.fleet.alerts.alert import BEGIN, Alert
from hushmote.fleet.alerts.outbox import CLAIM_S, MAX_ATTEMPTS, AlertOutbox
from hushmote.server.store import Store, schema

DAY = datetime.date(2026, 11, 20)
CHANGE = Alert("change", ("door", "", "yes", "Yes"), "Yes is up", "Yes: 30%", DAY, DAY, "home", "door", "up")
SILENCE = Alert("silence", ("door",), "No reports", "None came.", DAY, DAY, "home", "door", BEGIN)
RECEIVERS = ("one", "two")


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    with Store(store_url) as opened:
        opened.add_fleet("home", keyed=False)
        yield opened


@pytest.fixture
def outbox(store: Store) -> AlertOutbox:
    return AlertOutbox(store, RECEIVERS)


def days_later(alert: Alert, days: int) -> Alert:
    by = datetime.timedelta(days=days)
    return replace(alert, first=alert.first + by, last=alert.last + by)


def pass_time(store: Store, seconds: int) -> None:
    """Move all claims and pauses into the past."""
    with store.writing() as connection:
        due = schema.alert_delivery.c.due
        connection.execute(update(schema.alert_delivery).values(due=due - seconds))


class TestOnce:
    def test_same_days_and_direction_are_the_same_event(self, outbox: AlertOutbox):
        wide = replace(CHANGE, first=DAY - datetime.timedelta(days=1))
        assert outbox.record([CHANGE]) == [CHANGE]
        for again in (CHANGE, wide, replace(CHANGE, text="Yes: 31%")):
            assert outbox.record([again]) == []
        for other in (days_later(CHANGE, 1), replace(CHANGE, direction="down"), replace(CHANGE, key=("b",))):
            assert outbox.record([other]) == [other]

    def test_silence_begins_again_only_after_its_end(self, outbox: AlertOutbox):
        ended = SILENCE.ended("Reports again", "They come.", DAY)
        steps = [
            (ended, False),
            (SILENCE, True),
            (SILENCE, False),
            (ended, True),
            (ended, False),
            (SILENCE, True),
        ]
        for alert, is_new in steps:
            assert bool(outbox.record([alert])) is is_new
        assert [event.direction for event in outbox.alerts()[SILENCE.subject]] == ["begin", "end", "begin"]
        assert [event.experiment for event in outbox.open_events("silence")] == ["door"]

    def test_two_aggregators_record_and_claim_each_event_once(self, store_url: str, store: Store):
        alerts = [days_later(CHANGE, 2 * i) for i in range(10)]

        def work(_: int) -> tuple[int, list[tuple[int, str]]]:
            with Store(store_url) as opened:
                mine = AlertOutbox(opened, RECEIVERS)
                recorded = sum(len(mine.record([alert])) for alert in alerts)
                sent = list[tuple[int, str]]()
                while (delivery := mine.claim()) or mine.waiting():
                    if delivery:
                        sent.append((delivery.number, delivery.receiver))
                        mine.note_sent(delivery)
                return recorded, sent

        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(work, range(4)))
        assert sum(recorded for recorded, _ in results) == 10
        sent = [each for _, sent in results for each in sent]
        assert sorted(sent) == [(number, name) for number in range(1, 11) for name in RECEIVERS]


class TestDelivery:
    def test_is_claimed_until_it_is_sent(self, store: Store, outbox: AlertOutbox):
        outbox.record([CHANGE])
        first, second = outbox.claim(), outbox.claim()
        assert first is not None
        assert second is not None
        assert {first.receiver, second.receiver} == set(RECEIVERS)
        assert (first.title, first.text, first.attempts) == (CHANGE.title, CHANGE.text, 1)
        outbox.note_sent(first)
        assert outbox.claim() is None
        pass_time(store, CLAIM_S)
        again = outbox.claim()  # whoever claimed it was killed
        assert again is not None
        assert (again.receiver, again.attempts) == (second.receiver, 2)
        outbox.note_sent(again)
        assert outbox.waiting() == 0

    def test_is_tried_again_with_growing_pauses_and_given_up(self, store: Store):
        outbox = AlertOutbox(store, ["one"])
        outbox.record([CHANGE])
        pauses = list[int]()
        for attempt in range(1, MAX_ATTEMPTS + 1):
            delivery = outbox.claim()
            assert delivery is not None
            assert delivery.attempts == attempt
            assert outbox.note_failure(delivery) is (attempt < MAX_ATTEMPTS)
            if attempt < MAX_ATTEMPTS:
                assert outbox.claim() is None
                (row,) = store.read(schema.alert_delivery.select())
                with store.reading() as connection:
                    pauses.append(row.due - module.database_time(connection))
                pass_time(store, module.MAX_PAUSE_S + 1)
        assert pauses[0] <= 30 < pauses[1]
        assert pauses[-1] <= module.MAX_PAUSE_S
        assert 3 * 86_400 < sum(pauses) < 7 * 86_400
        assert outbox.waiting() == 0
        assert outbox.record([CHANGE]) == []

    def test_recorded_without_delivery_sends_nothing(self, outbox: AlertOutbox):
        assert outbox.record([CHANGE], deliver=False) == [CHANGE]
        assert outbox.waiting() == 0
        assert outbox.claim() is None

    def test_survives_a_claim_with_a_clock_far_ahead(self, store: Store, outbox: AlertOutbox):
        outbox.record([CHANGE])
        pass_time(store, -10 * 365 * 86_400)
        assert outbox.claim() is not None

    def test_leaves_other_aggregators_receivers_to_them(self, store: Store, outbox: AlertOutbox):
        outbox.record([CHANGE])
        assert AlertOutbox(store, ["three"]).claim() is None


class TestAllowance:
    def test_never_gets_smaller(self, outbox: AlertOutbox):
        assert [outbox.raise_comparisons("home", n) for n in (3, 13, 5)] == [3, 13, 13]
