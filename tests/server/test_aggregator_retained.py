"""What is retained for boards stays so, whoever may publish at the broker; real brokers, both databases."""

import time

import pytest
from boards import FLEET_KEYS, SIGNING, ask_fleet, experiment, payload_of
from running import running, until
from traffic import crowd, listening, publish, total

from hushmote.server.ingest.pipeline import KnownFleets
from hushmote.server.store import Store
from hushmote.server.wire import keys, topics
from hushmote.simulator.broker import EmbeddedBroker, MosquittoBroker

EXP = experiment()
OPEN, KEYED = (topics.experiment_topic(fleet, "temp") for fleet in ("open", "keyed"))


@pytest.fixture
def store(store_url):
    with Store(store_url) as store:
        for fleet in ("open", "keyed"):
            ask_fleet(store, fleet, EXP, keyed=fleet == "keyed")
        yield store


def signed(store):
    """What boards of the keyed fleet are to find, under the serial that the store has."""
    (version,) = store.experiments("keyed")
    return keys.sign_experiment(SIGNING, KEYED, version.payload, version.serial)


def serial(payload):
    body, _, rest = payload.partition(b"\0")
    assert body == payload_of(EXP)
    return int.from_bytes(rest[:4], "big")


in_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_what_somebody_clears_or_alters_is_published_again(store, protocol):
    with (
        MosquittoBroker() as broker,
        listening(broker) as heard,
        running(store, broker, fleet_keys=FLEET_KEYS, protocol=protocol) as aggregator,
    ):
        until(lambda: len(heard) == 2, heard)
        before = signed(store)
        assert heard[KEYED][-1] == before
        for payload in (b"", b"{}", payload_of(experiment(epsilon=500_000))):
            publish(broker, [(topic, payload) for topic in (OPEN, KEYED)], retain=True)
            until(lambda p=payload: heard[OPEN][-2:] == [p, payload_of(EXP)], heard)
            # The same bytes, which cost a board nothing: in a keyed fleet it took no notice.
            until(lambda p=payload: heard[KEYED][-2:] == [p, before], heard)
            assert signed(store) == before
        messages, _ = crowd(10)
        publish(broker, messages)
        until(lambda: total(aggregator) == 10, aggregator.counters)
        assert aggregator.counters.rejected == {}  # what is on the experiments' topics is no report
        with listening(broker) as retained:
            until(lambda: len(retained) == 2, retained)
            assert retained == {OPEN: [payload_of(EXP)], KEYED: [signed(store)]}


@in_sqlite
def test_the_embedded_broker_s_experiments_are_published_again_too(store):
    with (
        EmbeddedBroker() as broker,
        listening(broker) as heard,
        running(store, broker, fleet_keys=FLEET_KEYS),
    ):
        until(lambda: len(heard) == 2, heard)
        publish(broker, [(OPEN, b"")], retain=True)
        until(lambda: heard[OPEN][-2:] == [b"", payload_of(EXP)], heard)


def test_a_withdrawn_experiment_stays_withdrawn(store):
    with (
        MosquittoBroker() as broker,
        listening(broker) as heard,
        running(store, broker, fleet_keys=FLEET_KEYS),
    ):
        until(lambda: len(heard) == 2, heard)
        old = heard[KEYED][-1]
        for fleet in ("open", "keyed"):
            store.withdraw_experiment(fleet, "temp")
        withdrawal = keys.sign_experiment(SIGNING, KEYED, b"", serial(old) + 1)
        until(lambda: (heard[KEYED][-1], heard[OPEN][-1]) == (withdrawal, b""), heard)
        heard.clear()  # it ends with what is published again now
        publish(broker, [(KEYED, old), (OPEN, payload_of(EXP))], retain=True)
        until(lambda: heard.get(KEYED, [])[-2:] == [old, withdrawal], heard)
        until(lambda: heard.get(OPEN, [])[-2:] == [payload_of(EXP), b""], heard)
        with listening(broker) as retained:  # as boards find it that were away
            until(lambda: KEYED in retained, retained)
            assert retained == {KEYED: [withdrawal]}


def test_two_aggregators_publish_the_same_and_make_no_loop(store, monkeypatch):
    looked, reload = [], KnownFleets.reload
    monkeypatch.setattr(KnownFleets, "reload", lambda fleets: looked.append(fleets) or reload(fleets))
    options = {"fleet_keys": FLEET_KEYS, "share": "crew"}
    with (
        MosquittoBroker() as broker,
        listening(broker) as heard,
        running(store, broker, client_id="one", **options),
        running(store, broker, client_id="two", **options),
    ):
        until(lambda: len(heard) == 2, heard)
        began = time.monotonic()
        for _ in range(3):
            until(lambda: heard[KEYED][-1] == signed(store), heard)
            before = len(heard[KEYED])
            publish(broker, [(KEYED, b"")], retain=True)
            # Not until it differs: the answer may have come before anybody looked again.
            until(lambda n=before: len(heard[KEYED]) > n, heard)
        until(lambda: heard[KEYED][-1] == signed(store), heard)
        new = experiment(epsilon=500_000)
        store.add_experiment("keyed", payload_of(new))
        until(lambda: heard[KEYED][-1].startswith(payload_of(new)), heard)
        # A loop would show: whatever one published, the other would answer when it looks next.
        looks = len(looked)
        until(lambda: len(looked) >= looks + 6, looked)
        seconds = time.monotonic() - began
        versions = {v.experiment.digest: v for v in store.experiments("keyed")}
        last = versions[new.digest]
        assert heard[KEYED][-1] == keys.sign_experiment(SIGNING, KEYED, last.payload, last.serial)
        # At the start each publishes; then each of two answers each of four changes, once or, where it heard
        # of the other's answer too late, twice.
        assert len(heard[KEYED]) - heard[KEYED].count(b"") <= 4 + 2 * 2 * 4, (seconds, heard[KEYED])
        assert len(heard[OPEN]) <= 3


@in_sqlite
def test_who_clears_in_a_loop_makes_nobody_spin(store):
    with (
        MosquittoBroker() as broker,
        listening(broker) as heard,
        running(store, broker, fleet_keys=FLEET_KEYS),
    ):
        until(lambda: len(heard) == 2, heard)
        (before,) = store.experiments("keyed")
        began = time.monotonic()
        for _ in range(40):
            publish(broker, [(KEYED, b"")] * 50, retain=True)
        until(lambda: heard[KEYED][-1] == signed(store), lambda: heard[KEYED][-3:])
        seconds = time.monotonic() - began
        answers = [payload for payload in heard[KEYED] if payload]
        assert len(answers) <= 2 + seconds / 2
        (after,) = store.experiments("keyed")
        assert after.serial == before.serial


@in_sqlite
def test_what_was_cleared_while_no_aggregator_was_there_is_published_as_it_was(store):
    before = signed(store)
    with MosquittoBroker() as broker, listening(broker) as heard:
        for cleared in (False, False, True):  # at first nothing is there
            if cleared:
                publish(broker, [(KEYED, b"")], retain=True)
                until(lambda: heard[KEYED][-1] == b"", heard)
            told = len(heard.get(KEYED, []))
            with running(store, broker, fleet_keys=FLEET_KEYS, client_id="one"):
                # Not only what is right: it may stand there since the aggregator before.
                until(
                    lambda n=told: len(heard.get(KEYED, [])) > n and heard[KEYED][-1] == signed(store), heard
                )
            assert signed(store) == before
