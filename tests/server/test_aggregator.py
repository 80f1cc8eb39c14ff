"""The aggregator with real brokers: it loses nothing and counts nothing twice, whatever fails."""

import datetime
import itertools
import logging
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Literal

import pytest
from boards import FLEET_KEYS, SIGNING, MemoryStorage, ask_fleet, client, experiment, payload_of
from doors import open_door
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from refusals import fails
from running_aggregator import WAIT_S, running, until
from traffic import counted_reports, crowd, full_disk, listening, publish, total

from hushmote.device import ldp_client
from hushmote.server.aggregator import Aggregator, BrokerRefused, Counting
from hushmote.server.ingest import pipeline as ingest
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.connection import BrokerConnection
from hushmote.server.ingest.pacing import Backoff
from hushmote.server.store import Description, Store, StoreError
from hushmote.server.store.database import StoreLocked
from hushmote.server.store.erase import erase
from hushmote.server.wire import keys, report, topics
from hushmote.simulator.broker import EmbeddedBroker, MosquittoBroker, free_port


@pytest.fixture(scope="module")
def mosquitto():
    with MosquittoBroker() as broker:
        yield broker


class TestErasing:
    def test_expires_windows_while_counting_and_blocks_others(self, store, tmp_path):
        store.add_experiment("open", payload_of(experiment()), description=Description(keep="2d"))
        messages, _ = crowd(10)
        four_days_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=4)
        assert ingest.ingest(store, messages, ingest.fleets(store), four_days_ago).accepted == 10
        with EmbeddedBroker() as broker, running(store, broker) as aggregator:
            until(lambda: store.experiments()[0].erased == 10, aggregator.counters)
            publish(broker, crowd(30, prefix="new")[0])
            until(lambda: total(aggregator) == 30, aggregator.counters)
            url = f"sqlite:///{tmp_path}/store.sqlite"
            with Store(url) as other, pytest.raises(StoreLocked, match="is in use, and nothing was erased"):
                erase(other, "open", device="new1")
            publish(broker, messages + crowd(1, prefix="last")[0])
            until(lambda: total(aggregator) == 41, aggregator.counters)
            assert (aggregator.counters.accepted, aggregator.counters.failures) == (31, 0)
        assert counted_reports(store) == 31
        assert erase(store, "open", device="new1").reports == 1
        devices = {device for device, _, _ in store.accepted_numbers("open")}
        assert "new1" not in devices
        assert devices >= {"new10", "d1", "last0"}


SCRIPT = """
import logging, signal, sys
from hushmote.server.aggregator import Aggregator, Counting
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.store import Store

logging.basicConfig(level=logging.INFO, stream=sys.stderr)
aggregator = Aggregator(
    Store(sys.argv[1]),
    BrokerAddress("127.0.0.1", int(sys.argv[2])),
    Counting(batch_reports=50, batch_s=0.05),
    on_ready=lambda: print("ready", flush=True),
)
signal.signal(signal.SIGTERM, lambda *_: aggregator.stop())
aggregator.run()
"""


def spawn(store, broker):
    command = [sys.executable, "-c", SCRIPT, f"sqlite:///{store.where}", str(broker.port)]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


class TestCrash:
    def test_kill_in_mid_stream_neither_loses_nor_double_counts(self, store):
        messages, counts = crowd(2000)
        digest = experiment().digest
        with MosquittoBroker() as broker:
            process = spawn(store, broker)
            stream = threading.Thread(target=publish, args=(broker, messages))
            stream.start()
            for stop_at in (300, 1000):
                until(lambda at=stop_at: store.histogram("open", digest).sum() >= at, "counting")
                process.kill()
                process.wait()
                assert store.histogram("open", digest).sum() <= 2000
                process = spawn(store, broker)
            stream.join()
            until(lambda: store.histogram("open", digest).sum() >= 2000, "all counted")
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=WAIT_S)
            assert process.returncode == 0, log
        assert list(store.histogram("open", digest)) == counts
        assert store.participation("open")["temp"].reports == 2000
        assert "d17" not in log  # no device ids

    def test_stop_commits_received_messages(self, store, mosquitto):
        messages, counts = crowd(15)  # a pause right after the 20th, the usual window, would commit them
        with running(store, mosquitto, batch_s=1000.0) as aggregator:
            publish(mosquitto, messages)
            until(lambda: aggregator.condition.uncommitted == 15, lambda: aggregator.condition)
            assert aggregator.counters.accepted == 0  # neither full nor old
        assert aggregator.counters.accepted == 15
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_killed_brokers_messages_are_counted(self, store):
        messages, counts = crowd(15)
        with MosquittoBroker() as broker, running(store, broker, batch_s=1000.0) as aggregator:
            publish(broker, messages)
            until(lambda: aggregator.condition.uncommitted == 15, lambda: aggregator.condition)
            broker.kill()
            until(lambda: aggregator.counters.accepted == 15, aggregator.counters)
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_waits_for_a_broker_and_survives_its_restart(self, store, caplog, monkeypatch):
        caplog.set_level(logging.INFO, "hushmote")
        waits, next_s = [], Backoff.next_s
        monkeypatch.setattr(Backoff, "next_s", lambda backoff: waits.append(next_s(backoff)) or waits[-1])
        messages, counts = crowd(200)
        broker = MosquittoBroker(port=free_port())
        aggregator = Aggregator(store, BrokerAddress(broker.host, broker.port), Counting(batch_s=0.2))
        thread = threading.Thread(target=aggregator.run, daemon=True)
        thread.start()
        until(lambda: len(waits) >= 3, "several tries")
        assert not aggregator.ready.is_set()
        with broker:
            assert aggregator.ready.wait(WAIT_S)
            publish(broker, messages[:100])
            until(lambda: total(aggregator) >= 100, aggregator.counters)
            broker.restart()
            until(aggregator.ready.is_set, "ready again")
            publish(broker, messages[100:])
            until(lambda: aggregator.counters.accepted == 200, aggregator.counters)
            aggregator.stop()
            thread.join(WAIT_S)
        assert list(store.histogram("open", experiment().digest)) == counts
        lines = [r.getMessage() for r in caplog.records if r.name.startswith("hushmote")]
        assert not any("\n" in line for line in lines)
        places = [i for i, line in enumerate(lines) if "Connection refused" in line]
        assert "no broker at" in lines[0]
        assert not any(b - a == 1 for a, b in itertools.pairwise(places))  # once per state, not per attempt
        assert sum("lost the broker" in line for line in lines) == 1


class TestFailingStore:
    def test_keeps_reports_at_the_broker_until_store_works(self, store, mosquitto, caplog):
        messages, counts = crowd(300)
        limit = full_disk(store)
        with running(store, mosquitto) as aggregator:
            publish(mosquitto, messages)
            until(lambda: "the disk is full" in caplog.text, "a full disk")
            before = aggregator.counters.accepted  # small batches may still have fitted
            until(lambda: aggregator.counters.failures >= 3, lambda: aggregator.counters)
            assert aggregator.counters.accepted == before < 300
            limit["pages"] = 1 << 30
            until(lambda: aggregator.counters.accepted == 300, aggregator.counters)
            assert aggregator.counters.rejected == {}
        assert list(store.histogram("open", experiment().digest)) == counts
        assert all("\n" not in r.getMessage() for r in caplog.records)

    def test_holds_at_most_20_batches_in_memory(self, store):
        # The broker would send all 500 immediately; three more store retries are enough time to read them.
        messages, counts = crowd(500)
        limit = full_disk(store)
        with (
            MosquittoBroker(settings=("max_inflight_messages 0",)) as broker,
            running(store, broker, protocol="3.1.1", batch_reports=5) as aggregator,
        ):
            publish(broker, messages)
            until(lambda: aggregator.condition.uncommitted >= 100, lambda: aggregator.condition)
            tries = aggregator.counters.failures
            until(lambda: aggregator.counters.failures >= tries + 3, lambda: aggregator.counters)
            assert aggregator.condition.uncommitted == 100
            limit["pages"] = 1 << 30
            until(lambda: aggregator.counters.accepted == 500, lambda: aggregator.counters)
        assert list(store.histogram("open", experiment().digest)) == counts


class TestRetained:
    def test_boards_enroll_in_signed_and_open_experiments(self, store):
        exp = ask_fleet(store, "keyed", experiment(), keyed=True)
        keyed_topic, open_topic, door_topic = (
            topics.experiment_topic(*names)
            for names in (("keyed", "temp"), ("open", "temp"), ("open", "door"))
        )
        with (
            MosquittoBroker() as broker,
            running(store, broker, fleet_keys=FLEET_KEYS),
            listening(broker) as messages,
        ):
            until(lambda: len(messages) == 2, messages)
            storage = MemoryStorage()
            board = client("k3", exp, storage=storage)
            announce = keys.public_key_bytes(SIGNING)
            strict = ldp_client.Client(board._policy, storage, "k3", None, announce, "keyed")
            assert strict.enroll(messages[keyed_topic][-1]).digest == exp.digest
            with pytest.raises(ldp_client.ExperimentRefused):
                strict.enroll(payload_of(exp))
            assert messages[open_topic][-1] == payload_of(experiment())
            # What another process adds or withdraws while it runs is published and counted.
            store.add_experiment("open", payload_of(experiment(name="door")))
            new = store.add_experiment("open", payload_of(experiment(epsilon=500_000)))
            store.withdraw_experiment("keyed", "temp")
            publish(broker, [(topics.report_topic("open", "a"), report.encode(new, 1, 0))])
            until(lambda: store.histogram("open", new.digest).sum() == 1, "counted")
            until(lambda: len(messages) == 3, messages)
            until(lambda: messages[keyed_topic][-1][:1] == b"\0", messages)
            strict.withdraw("temp", messages[keyed_topic][-1])
            assert strict.status()["experiments"]["temp"]["state"] == "absent"
            # An experiment whose last day is over is withdrawn.
            store.add_experiment("open", payload_of(experiment(name="door")), datetime.date(2020, 1, 1))
            until(lambda: messages[door_topic][-1] == b"", messages)
            assert messages[open_topic][-1] == payload_of(experiment(epsilon=500_000))

    def test_everything_is_published_again_from_time_to_time(self, store, mosquitto, caplog):
        other_topic, topic_of_temp = (
            topics.experiment_topic("open", "beside"),
            topics.experiment_topic("open", "temp"),
        )
        with (
            running(store, mosquitto, retained_messages=lambda: {other_topic: b"1"}, again_s=0.3),
            listening(mosquitto) as messages,
        ):
            until(
                lambda: min(len(messages.get(topic, ())) for topic in (other_topic, topic_of_temp)) > 3,
                messages,
            )
        assert set(messages[other_topic]) == {b"1"}
        assert set(messages[topic_of_temp]) == {payload_of(experiment())}
        assert "someone else" not in caplog.text


class TestCounting:
    @pytest.mark.parametrize("kind", ["mosquitto 5", "mosquitto 3.1.1", "amqtt"])
    def test_counts_each_report_once(self, store, kind):
        messages, counts = crowd(100)
        broker = EmbeddedBroker() if kind == "amqtt" else MosquittoBroker()
        protocol = "5" if kind == "mosquitto 5" else "3.1.1"
        with broker, running(store, broker, protocol=protocol) as aggregator:
            start = time.monotonic()
            publish(broker, messages + messages)
            publish(broker, messages)
            until(lambda: total(aggregator) == 300, aggregator.counters)
            assert aggregator.counters.accepted == 100
            assert aggregator.counters.rejected == {"duplicate": 200}
            # Each batch is a whole window of the broker, at least 10, or 0.2 s old.
            assert aggregator.counters.batches <= 300 / 10 + (time.monotonic() - start) / 0.2 + 2
        assert list(store.histogram("open", experiment().digest)) == counts
        assert store.rejects() == {"open": {"duplicate": 200}}

    def test_falls_back_to_mqtt_3_1_1(self, store):
        messages, counts = crowd(30)
        with EmbeddedBroker() as broker, running(store, broker, protocol="auto") as aggregator:
            publish(broker, messages)
            until(lambda: total(aggregator) == 30, aggregator.counters)
        assert list(store.histogram("open", experiment().digest)) == counts

    @pytest.mark.parametrize("protocol", ["5", "3.1.1"])
    def test_counts_reports_published_while_it_was_away(self, store, mosquitto, protocol):
        messages, counts = crowd(1500)  # above mosquitto's own default of 1,000 queued messages
        name = f"absent-{protocol.replace('.', '-')}"
        with running(store, mosquitto, protocol=protocol, client_id=name):
            pass
        publish(mosquitto, messages)
        assert counted_reports(store) == 0
        with running(store, mosquitto, protocol=protocol, client_id=name) as aggregator:
            until(lambda: total(aggregator) == 1500, aggregator.counters)
            assert aggregator.counters.rejected == {}
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_small_receive_maximum_does_not_stall_it(self, store, mosquitto, monkeypatch):
        # Mosquitto obeys a Receive Maximum of 20, like brokers that cap a client's request.
        monkeypatch.setattr(
            "hushmote.server.aggregator.BrokerConnection",
            lambda protocol, client_id, address, _most, pace, tls: BrokerConnection(
                protocol, client_id, address, 20, pace, tls
            ),
        )
        messages, counts = crowd(100)
        # All wait before it reads: mosquitto 2.0.11 exceeds its window if both directions are busy.
        with running(store, mosquitto, client_id="few"):
            pass
        publish(mosquitto, messages)
        with running(store, mosquitto, batch_s=1000.0, client_id="few") as aggregator:
            # No batch becomes full or old for a quarter of an hour; only the window shows that the broker
            # waits.
            until(lambda: aggregator.counters.accepted >= 20, aggregator.counters)
            # The last window is committed at the end, once it has arrived.
            until(lambda: total(aggregator) + aggregator.condition.uncommitted == 100, aggregator.counters)
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_rejects_malformed_reports_on_every_topic(self, store):
        rubbish = [
            ("hushmote/v1/open/report/a", b""),
            ("hushmote/v1/open/report/a", bytes(1 << 20)),
            ("hushmote/v1/open/report/A", b"x"),
            ("hushmote/v1/away/report/a", b"x"),
            ("hushmote/v1/" + "x" * 60_000 + "/report/a", b"x"),
            ("hushmote/v1/open/report/\U0001f600", b"x"),
        ]
        messages, _ = crowd(1)
        # With MQTT 5 a broker does not deliver messages that are too large.
        broker = MosquittoBroker(settings=("max_packet_size 268435455",))
        with broker, running(store, broker, protocol="3.1.1") as aggregator:
            publish(broker, rubbish + messages)
            until(lambda: total(aggregator) == 7, aggregator.counters)
            assert aggregator.counters.rejected == {"malformed": 2, "unknown device": 2, "unknown fleet": 2}
            assert aggregator.counters.accepted == 1

    def test_properties_that_paho_rejects_end_no_connection(self, store, caplog):
        caplog.set_level("INFO", "hushmote")
        odd = Properties(PacketTypes.PUBLISH)
        odd.UserProperty = "k", "\ufeff"
        with MosquittoBroker() as broker:
            publish(broker, [(topics.experiment_topic("open", "odd"), b"{}")], retain=True, properties=odd)
            with running(store, broker, protocol="5") as aggregator, open_door(broker) as door:
                publish(broker, [("hushmote/v1/open/report/a", b"x")], properties=odd)
                publish(broker, crowd(1)[0])
                until(lambda: total(aggregator) == 2, aggregator.counters)
                assert aggregator.counters.rejected == {"malformed": 1}
                until(
                    lambda: door.ask("GET", "/v1/open/experiment").json == ["odd", "temp"],
                    "both fleets are known",
                )
        assert caplog.text.count("subscribed at") == 1

    def test_counts_reports_with_large_properties(self, store):
        large = Properties(PacketTypes.PUBLISH)
        large.UserProperty = [("added by a bridge", "x" * 60_000), ("by another one", "y" * 60_000)]
        broker = MosquittoBroker(settings=("max_packet_size 268435455",))
        with broker, running(store, broker, protocol="5") as aggregator:
            publish(broker, crowd(20)[0], properties=large)
            until(lambda: total(aggregator) == 20, aggregator.counters)
            assert aggregator.counters.accepted == 20

    def test_shared_client_id_warns_and_counts_once(self, store, mosquitto, caplog):
        messages, counts = crowd(200)
        options = {"client_id": "twins"}
        with running(store, mosquitto, **options) as first, running(store, mosquitto, **options) as two:
            publish(mosquitto, messages)
            until(
                lambda: first.counters.accepted + two.counters.accepted == 200, (first.counters, two.counters)
            )
            until(lambda: "another client with the id twins?" in caplog.text, "a warning")
        assert list(store.histogram("open", experiment().digest)) == counts

    def test_counts_only_the_selected_fleet(self, store, mosquitto):
        ask_fleet(store, "other", experiment())
        payload = report.encode(experiment(), 1, 0)
        with running(store, mosquitto, fleets=["other"]) as aggregator:
            for fleet in ("open", "other"):  # the first would arrive before the second
                publish(mosquitto, [(f"hushmote/v1/{fleet}/report/a", payload)])
            until(lambda: aggregator.counters.accepted >= 1, lambda: aggregator.counters)
        assert aggregator.counters.accepted == 1
        assert aggregator.counters.rejected == {}


class TestErrors:
    def test_rejected_login_is_one_line(self, store, tmp_path):
        if shutil.which("mosquitto_passwd") is None:
            pytest.skip("mosquitto_passwd is not installed")
        passwords = tmp_path / "passwords"
        command = ["mosquitto_passwd", "-b", "-c", passwords, "agg", "right"]
        subprocess.run(command, check=True, capture_output=True)
        with MosquittoBroker(password_file=passwords) as broker:
            protocols: list[Literal["auto", "5", "3.1.1"]] = ["auto", "5", "3.1.1"]
            for protocol in protocols:
                for username, password in ((None, None), ("agg", "wrong")):
                    address = BrokerAddress(broker.host, broker.port, username, password)
                    aggregator = Aggregator(store, address, Counting(protocol=protocol))
                    with fails("refuses the connection", BrokerRefused):
                        aggregator.run()
            with running(store, broker, username="agg", password="right"):
                pass

    def test_missing_key_fleet_or_limit_fails_before_connecting(self, store):
        store.add_fleet("keyed", keyed=True)
        with pytest.raises(keys.MasterKeyError, match="fleet keyed is keyed"):
            Aggregator(store).run()
        with pytest.raises(StoreError, match="no fleet away"):
            Aggregator(store, counting=Counting(fleets=["away"])).run()
        with pytest.raises(ValueError, match="batch_reports"):
            Counting(batch_reports=0)

    @pytest.mark.parametrize("option", [{"share": "count"}, {"retire": True}], ids=str)
    def test_mqtt_3_can_neither_share_nor_retire(self, option: dict[str, Any]):
        assert Counting(**option).protocol == "auto"
        with pytest.raises(ValueError, match="share and retire require MQTT 5"):
            Counting(protocol="3.1.1", **option)
