"""Messages retained for boards stay unchanged, whoever publishes, on real brokers and both databases."""

import logging
import time

import pytest
from boards import FLEET_KEYS, SIGNING, ask_fleet, experiment, payload_of
from running_aggregator import running, until
from traffic import crowd, listening, publish, total

from hushmote.fleet.provisioning.master_key import without_signing
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


@in_sqlite
class TestUnknownExperiments:
    """Experiments at the broker that the store does not have cost boards budget for nothing."""

    UNKNOWN = topics.experiment_topic("open", "old")

    def test_are_logged_once_with_the_command_that_clears_them(self, store, caplog):
        signed_topic = topics.experiment_topic("keyed", "old")
        signed = keys.sign_experiment(SIGNING, signed_topic, payload_of(experiment(name="old")), 7)
        withdrawn = keys.sign_experiment(SIGNING, topics.experiment_topic("keyed", "gone"), b"", 8)
        retained = {
            self.UNKNOWN: payload_of(experiment(name="old")),
            signed_topic: signed,
            topics.experiment_topic("keyed", "gone"): withdrawn,
            topics.experiment_topic("away", "old"): payload_of(experiment(name="old")),
        }
        options = " --broker mqtt://host"
        with MosquittoBroker() as broker:
            publish(broker, list(retained.items()), retain=True)
            with running(store, broker, fleet_keys=FLEET_KEYS, clear_options=options) as aggregator:
                assert aggregator.condition.unknown == 2  # fleet away may be another store's
                until(lambda: len(_warnings(caplog)) == 3, caplog.text)
                publish(broker, [(self.UNKNOWN, retained[self.UNKNOWN])], retain=True)
                publish(broker, [(signed_topic, b"")], retain=True)
                until(lambda: aggregator.condition.unknown == 1, aggregator.condition)
                publish(broker, [(topics.experiment_topic("open", "new"), b"{}")], retain=True)
                until(lambda: aggregator.condition.unknown == 2, aggregator.condition)
        assert _warnings(caplog) == [
            "the broker retains experiment old of fleet away, but this store has no such fleet: if no other "
            "store has it, run `hushmote experiment clear old --fleet away --broker mqtt://host`",
            "the broker retains experiment old of fleet keyed, but this store does not have it: boards spend "
            "budget on reports that are not counted; add it, or run `hushmote experiment clear old --fleet "
            "keyed --signing-key FILE --broker mqtt://host`",
            "the broker retains experiment new of fleet open, but this store does not have it: boards spend "
            "budget on reports that are not counted; add it, or run `hushmote experiment clear new --fleet "
            "open --broker mqtt://host`",
            "the broker retains experiment old of fleet open, but this store does not have it: boards spend "
            "budget on reports that are not counted; add it, or run `hushmote experiment clear old --fleet "
            "open --broker mqtt://host`",
        ]

    def test_unknown_version_that_is_replaced_is_logged(self, store, caplog):
        other = payload_of(experiment(epsilon=500_000))
        with MosquittoBroker() as broker:
            publish(broker, [(OPEN, other)], retain=True)
            with listening(broker) as payloads, running(store, broker, fleet_keys=FLEET_KEYS):
                until(lambda: payloads.get(OPEN) == [other, payload_of(EXP)], payloads)
        assert f"{OPEN} had an experiment that this store does not have" in caplog.text

    def test_unknown_version_that_cannot_be_replaced_is_counted(self, store, caplog):
        other = keys.sign_experiment(SIGNING, KEYED, payload_of(experiment(epsilon=500_000)), 7)
        with MosquittoBroker() as broker:
            publish(broker, [(KEYED, other)], retain=True)
            with running(store, broker, fleet_keys=without_signing(FLEET_KEYS)) as aggregator:
                assert (aggregator.condition.unknown, aggregator.condition.unsigned) == (1, 1)
        assert "experiment temp of fleet keyed, but this store does not have this version" in caplog.text

    def test_many_are_logged_in_one_line(self, store, caplog):
        many = [(topics.experiment_topic("open", f"e{i}"), b"{}") for i in range(30)]
        with MosquittoBroker() as broker:
            publish(broker, many, retain=True)
            with running(store, broker, fleet_keys=FLEET_KEYS) as aggregator:
                assert aggregator.condition.unknown == 30
        assert len(_warnings(caplog)) == 10
        assert "20 more experiments are retained at the broker" in caplog.text


def _warnings(caplog):
    lines = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    return sorted((x for x in lines if "the broker retains" in x), key=lambda x: (x.split("fleet ")[1], x))
