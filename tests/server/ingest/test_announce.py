"""What is published and when, and how batches wait for a store that fails, without a broker."""

import logging

import pytest
from boards import FLEET_KEYS, experiment, payload_of

from hushmote.server.ingest.announce import Announcer
from hushmote.server.ingest.commit import Committer
from hushmote.server.ingest.pacing import Backoff
from hushmote.server.ingest.pipeline import KnownFleets
from hushmote.server.ingest.status import Status
from hushmote.server.store import Store, StoreError
from hushmote.server.wire import keys, report, topics

TEMP = topics.experiment_topic("open", "temp")


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
        store.add_fleet("open", keyed=False)
        store.add_experiment("open", payload_of(experiment()))
        yield store


@pytest.fixture
def status():
    return Status()


@pytest.fixture
def fleets(store, status):
    fleets = KnownFleets(store, status)
    fleets.load()
    return fleets


@pytest.fixture
def failing(store, monkeypatch):
    """Has the store fail where it is read and where it is written, until it is told not to."""

    def failing(fails):
        def fail(*_):
            raise StoreError("the disk is full")

        for name in ("experiments", "ingest"):
            monkeypatch.setattr(store, name, fail if fails else getattr(Store, name).__get__(store))

    return failing


def message(number, exp=None):
    return topics.report_topic("open", "a"), report.encode(exp or experiment(), number, 0)


def test_only_what_changed_is_published_every_two_seconds_and_all_on_a_new_connection(store, status, fleets):
    announcer, published = Announcer(fleets, status), []
    assert announcer.turn(lambda *what: published.append(what), 100.0)
    assert published == [(TEMP, payload_of(experiment()))]
    store.withdraw_experiment("open", "temp")
    assert announcer.experiments == 1
    assert not announcer.turn(lambda *what: published.append(what), 101.9)
    assert announcer.turn(lambda *what: published.append(what), 102.0)
    assert announcer.turn(lambda *what: published.append(what), 104.0)
    assert published[1:] == [(TEMP, b"")]
    assert announcer.experiments == 0
    announcer.begin()
    assert announcer.turn(lambda *what: published.append(what), 104.1)
    assert published[2:] == [(TEMP, b"")]


def test_a_store_that_cannot_be_read_publishes_nothing_and_is_read_again(status, fleets, failing, caplog):
    caplog.set_level(logging.INFO, "hushmote")
    announcer, published = Announcer(fleets, status), []
    failing(True)
    for now in (100.0, 102.0, 104.0):
        assert not announcer.turn(lambda *what: published.append(what), now)
    assert announcer.failing
    assert published == []
    failing(False)
    assert announcer.turn(lambda *what: published.append(what), 106.0)
    assert not announcer.failing
    assert len(published) == 1
    assert [r.getMessage() for r in caplog.records] == ["the disk is full", "the store can be read again"]


def test_a_keyed_fleet_added_meanwhile_without_a_key_leaves_the_others_as_they_were(store, status, fleets):
    store.add_fleet("keyed", keyed=True)
    fleets.reload()
    assert set(fleets.rules) == {"open"}
    assert "fleet keyed is keyed" in status.text
    with pytest.raises(keys.MasterKeyError):
        KnownFleets(store, status).load()
    with pytest.raises(StoreError, match="no fleet away"):
        KnownFleets(store, status, FLEET_KEYS, ["away"]).load()


def test_a_report_to_an_experiment_added_a_moment_ago_is_counted(store, status, fleets):
    new = store.add_experiment("open", payload_of(experiment(name="door")))
    committer = Committer(store, fleets, status)
    assert committer.commit([message(1, new)])
    assert committer.counters.accepted == 1


def test_a_batch_that_the_store_fails_is_not_to_be_acknowledged_and_is_counted_once(
    store, status, fleets, failing
):
    commits = []
    committer = Committer(store, fleets, status, on_commit=lambda *what: commits.append(what[0]))
    batch = [message(1), message(2), message(2)]
    failing(True)
    assert not committer.commit(batch)
    first = committer.not_before
    assert not committer.commit(batch)
    assert committer.not_before > first
    assert committer.failing
    assert committer.committed_at is None
    assert status.text == "the disk is full; reports wait at the broker"
    failing(False)
    assert committer.commit(batch)
    assert not committer.failing
    assert commits == [3]
    counters = committer.counters
    assert (counters.accepted, counters.batches, counters.failures) == (2, 1, 2)
    assert counters.rejected == {"duplicate": 1}
    assert store.histogram("open", experiment().digest).sum() == 2


def test_waits_double_up_to_the_most_and_begin_again():
    backoff = Backoff(most_s=1.0)
    assert [backoff.next_s() for _ in range(5)] == [0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.next_s() == 0.2
