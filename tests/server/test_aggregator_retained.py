"""Messages retained for boards stay unchanged, whoever publishes, on real brokers and both databases."""

import time

import pytest
from boards import FLEET_KEYS, SIGNING, ask_fleet, experiment, payload_of
from running_aggregator import running, until
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


def signed_payload(store):
    """Return the payload that boards of the keyed fleet should find, with the store's serial."""
    (version,) = store.experiments("keyed")
    return keys.sign_experiment(SIGNING, KEYED, version.payload, version.serial)


def serial(payload):
    body, _, rest = payload.partition(b"\0")
    assert body == payload_of(EXP)
    return int.from_bytes(rest[:4], "big")


in_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


class TestRetained:
    @pytest.mark.parametrize("protocol", ["5", "3.1.1"])
    def test_cleared_or_altered_experiment_is_published_again(self, store, protocol):
        with (
            MosquittoBroker() as broker,
            listening(broker) as announcements,
            running(store, broker, fleet_keys=FLEET_KEYS, protocol=protocol) as aggregator,
        ):
            until(lambda: len(announcements) == 2, announcements)
            before = signed_payload(store)
            assert announcements[KEYED][-1] == before
            for payload in (b"", b"{}", payload_of(experiment(epsilon=500_000))):
                publish(broker, [(topic, payload) for topic in (OPEN, KEYED)], retain=True)
                until(lambda p=payload: announcements[OPEN][-2:] == [p, payload_of(EXP)], announcements)
                # The same bytes, which cost a board nothing: in a keyed fleet it ignored the change.
                until(lambda p=payload: announcements[KEYED][-2:] == [p, before], announcements)
                assert signed_payload(store) == before
            messages, _ = crowd(10)
            publish(broker, messages)
            until(lambda: total(aggregator) == 10, aggregator.counters)
            assert aggregator.counters.rejected == {}  # messages on the experiments' topics are not reports
            with listening(broker) as payloads:
                until(lambda: len(payloads) == 2, payloads)
                assert payloads == {OPEN: [payload_of(EXP)], KEYED: [signed_payload(store)]}

    @in_sqlite
    def test_embedded_broker_gets_its_experiments_again(self, store):
        with (
            EmbeddedBroker() as broker,
            listening(broker) as announcements,
            running(store, broker, fleet_keys=FLEET_KEYS),
        ):
            until(lambda: len(announcements) == 2, announcements)
            publish(broker, [(OPEN, b"")], retain=True)
            until(lambda: announcements[OPEN][-2:] == [b"", payload_of(EXP)], announcements)

    def test_withdrawn_experiment_stays_withdrawn(self, store):
        with (
            MosquittoBroker() as broker,
            listening(broker) as announcements,
            running(store, broker, fleet_keys=FLEET_KEYS),
        ):
            until(lambda: len(announcements) == 2, announcements)
            old = announcements[KEYED][-1]
            for fleet in ("open", "keyed"):
                store.withdraw_experiment(fleet, "temp")
            withdrawal = keys.sign_experiment(SIGNING, KEYED, b"", serial(old) + 1)
            until(
                lambda: (announcements[KEYED][-1], announcements[OPEN][-1]) == (withdrawal, b""),
                announcements,
            )
            announcements.clear()  # it ends with the messages that are published again now
            publish(broker, [(KEYED, old), (OPEN, payload_of(EXP))], retain=True)
            until(lambda: announcements.get(KEYED, [])[-2:] == [old, withdrawal], announcements)
            until(lambda: announcements.get(OPEN, [])[-2:] == [payload_of(EXP), b""], announcements)
            with listening(broker) as payloads:  # as returning boards receive it
                until(lambda: KEYED in payloads, payloads)
                assert payloads == {KEYED: [withdrawal]}

    def test_two_aggregators_do_not_loop(self, store, monkeypatch):
        reloads, reload = [], KnownFleets.reload
        monkeypatch.setattr(KnownFleets, "reload", lambda fleets: reloads.append(fleets) or reload(fleets))
        options = {"fleet_keys": FLEET_KEYS, "share": "group"}
        with (
            MosquittoBroker() as broker,
            listening(broker) as announcements,
            running(store, broker, client_id="one", **options),
            running(store, broker, client_id="two", **options),
        ):
            until(lambda: len(announcements) == 2, announcements)
            began = time.monotonic()
            for _ in range(3):
                until(lambda: announcements[KEYED][-1] == signed_payload(store), announcements)
                before = len(announcements[KEYED])
                publish(broker, [(KEYED, b"")], retain=True)
                # Wait for a new message: the answer may have come before the next look.
                until(lambda n=before: len(announcements[KEYED]) > n, announcements)
            until(lambda: announcements[KEYED][-1] == signed_payload(store), announcements)
            new = experiment(epsilon=500_000)
            store.add_experiment("keyed", payload_of(new))
            until(lambda: announcements[KEYED][-1].startswith(payload_of(new)), announcements)
            # In a loop, each would respond to the other's publication at its next check.
            looks = len(reloads)
            until(lambda: len(reloads) >= looks + 6, reloads)
            seconds = time.monotonic() - began
            versions = {v.experiment.digest: v for v in store.experiments("keyed")}
            last = versions[new.digest]
            assert announcements[KEYED][-1] == keys.sign_experiment(SIGNING, KEYED, last.payload, last.serial)
            # At the start each publishes; then both answer each of four changes, once or, if the
            # other's answer arrives too late, twice.
            assert len(announcements[KEYED]) - announcements[KEYED].count(b"") <= 4 + 2 * 2 * 4, (
                seconds,
                announcements[KEYED],
            )
            assert len(announcements[OPEN]) <= 3

    @in_sqlite
    def test_repeated_clearing_does_not_make_it_spin(self, store):
        with (
            MosquittoBroker() as broker,
            listening(broker) as announcements,
            running(store, broker, fleet_keys=FLEET_KEYS),
        ):
            until(lambda: len(announcements) == 2, announcements)
            (before,) = store.experiments("keyed")
            began = time.monotonic()
            for _ in range(40):
                publish(broker, [(KEYED, b"")] * 50, retain=True)
            until(
                lambda: announcements[KEYED][-1] == signed_payload(store), lambda: announcements[KEYED][-3:]
            )
            seconds = time.monotonic() - began
            answers = [payload for payload in announcements[KEYED] if payload]
            assert len(answers) <= 2 + seconds / 2
            (after,) = store.experiments("keyed")
            assert after.serial == before.serial

    @in_sqlite
    def test_experiment_cleared_while_it_was_away_is_republished(self, store):
        before = signed_payload(store)
        with MosquittoBroker() as broker, listening(broker) as announcements:
            for is_cleared in (False, False, True):  # at first nothing is retained
                if is_cleared:
                    publish(broker, [(KEYED, b"")], retain=True)
                    until(lambda: announcements[KEYED][-1] == b"", announcements)
                count = len(announcements.get(KEYED, []))
                with running(store, broker, fleet_keys=FLEET_KEYS, client_id="one"):
                    # Require a new message: the right one may be left from the previous aggregator.
                    until(
                        lambda n=count: (
                            len(announcements.get(KEYED, [])) > n
                            and announcements[KEYED][-1] == signed_payload(store)
                        ),
                        announcements,
                    )
                assert signed_payload(store) == before
