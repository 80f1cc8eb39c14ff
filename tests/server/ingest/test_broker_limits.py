"""Brokers that grant less than `serve` asks for, or end its connection with a reason."""

import json
import logging
import threading
from typing import Any

import pytest
from boards import ask_fleet, experiment
from command_line import hushmote
from odd_broker import Habits, OddBroker
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from running_aggregator import running, until
from serve_process import get, served
from traffic import counted_reports, crowd, publish, total

from hushmote.fleet.door.publisher import ReportPublisher
from hushmote.server.aggregator import Aggregator, BrokerRefused, Counting
from hushmote.server.ingest.broker_limits import ending, impossibility, loss_warnings
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.device_health import BrokerUnreachable, read
from hushmote.server.store import Store
from hushmote.server.wire import topics
from hushmote.simulator.broker import MosquittoBroker, free_port

ID = "agg"


@pytest.fixture(autouse=True)
def _info(caplog):
    caplog.set_level(logging.INFO)


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
        ask_fleet(store, "open", experiment())
        yield store


def refusal_at(store, habits, **options):
    """Return the line with which an aggregator ends at a broker with these habits."""
    with OddBroker(habits) as broker:
        address = BrokerAddress(broker.host, broker.port)
        aggregator = Aggregator(store, address, Counting(client_id=ID, **options))
        with pytest.raises(BrokerRefused) as refusal:
            aggregator.run()
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


class TestImpossible:
    @pytest.mark.parametrize("announces", [True, False])
    @pytest.mark.parametrize(
        ("habits", "words"),
        [
            ({"max_qos": 0}, "only QoS 0, at which reports are lost without notice: allow QoS 1"),
            ({"retain": "refuses"}, "does not support retained messages, in which boards find experiments"),
            ({"wildcards": False}, "wildcard"),
        ],
        ids=["qos", "retain", "wildcards"],
    )
    def test_ends_with_one_line(self, store, habits, words, announces):
        assert words in refusal_at(store, Habits(**habits, announces=announces))

    def test_granted_qos_0_ends_with_one_line(self, store):
        for protocol in ("5", "3.1.1"):
            line = refusal_at(store, Habits(granted_qos=0), protocol=protocol)
            assert "grants the subscription, but it supports only QoS 0" in line

    def test_group_without_shared_subscriptions_ends_with_one_line(self, store):
        assert "omit share" in refusal_at(store, Habits(shared=False), share="all")

    def test_serve_exits_with_1(self, store):
        with OddBroker(Habits(max_qos=0)) as broker, served(*_options(store, broker)) as process:
            assert process.wait() == 1
        assert process.log().count("\n") == 1

    def test_retiring_needs_no_retained_messages(self, store):
        with OddBroker() as broker:
            with running(store, broker, client_id=ID):
                pass
            broker.habits = Habits(retain="drops")
            Aggregator(
                store, BrokerAddress(broker.host, broker.port), Counting(client_id=ID, retire=True)
            ).run()

    def test_door_refuses_qos_0_and_keeps_trying(self):
        with (
            OddBroker(Habits(max_qos=0)) as broker,
            ReportPublisher(BrokerAddress(broker.host, broker.port)) as publisher,
        ):
            until(lambda: publisher.refusal is not None, "the door refuses the broker")
            assert "only QoS 0" in str(publisher.refusal)
            broker.habits = Habits()
            until(publisher.ready.is_set, "the door is ready")


class TestWarnings:
    @pytest.mark.parametrize(
        ("expiry_s", "words"),
        [
            (7200, "the broker discards this aggregator's session 2 h after it disconnects"),
            (0, "the broker keeps no reports while this aggregator is disconnected"),
        ],
    )
    def test_short_session_is_logged_once_and_shown(self, store, caplog, expiry_s, words):
        with (
            OddBroker(Habits(session_expiry=expiry_s)) as broker,
            running(store, broker, client_id=ID) as aggregator,
        ):
            assert words in aggregator.condition.warnings[0]
            broker.disconnect(ID)
            until(lambda: caplog.text.count("subscribed at") == 2, caplog.text)
        assert caplog.text.count(words) == 1

    def test_lost_session_is_logged_with_both_times(self, store, caplog):
        with OddBroker() as broker, running(store, broker, client_id=ID) as aggregator:
            publish(broker, crowd(5)[0])
            until(lambda: total(aggregator) == 5, aggregator.counters)
            assert aggregator.condition.warnings == ()
            broker.forget_sessions()
            broker.restart()
            until(lambda: aggregator.condition.warnings, caplog.text)
            assert (
                "the broker forgot this aggregator: reports that boards sent between 20"
                in (aggregator.condition.warnings[0])
            )
            broker.disconnect(ID)
            until(lambda: caplog.text.count("subscribed at") == 3, caplog.text)
        assert caplog.text.count("the broker forgot this aggregator") == 1

    def test_session_lost_before_the_start_is_logged(self, store):
        with OddBroker() as broker:
            with running(store, broker, client_id=ID) as aggregator:
                publish(broker, crowd(5)[0])
                until(lambda: total(aggregator) == 5, aggregator.counters)
            with running(store, broker, client_id=ID) as aggregator:
                assert aggregator.condition.warnings == ()
            broker.forget_sessions()
            with running(store, broker, client_id=ID) as aggregator:
                (warning,) = aggregator.condition.warnings
                assert "if it was there before, reports that boards sent between 20" in warning

    def test_refused_experiment_is_logged_once_and_counted_on(self, store, caplog):
        forbidden: dict[str, Any] = {"hushmote/v1/+/experiment/+": "refuses"}
        with (
            OddBroker(Habits(forbidden=forbidden)) as broker,
            running(store, broker, client_id=ID) as aggregator,
        ):
            until(lambda: aggregator.condition.warnings, caplog.text)
            publish(broker, crowd(5)[0])
            until(lambda: total(aggregator) == 5, aggregator.counters)
            assert "the broker refuses 1 experiment" in aggregator.condition.warnings[0]
        topic = topics.experiment_topic("open", "temp")
        assert caplog.text.count(f"{topic} is refused by the broker (not authorized)") == 1

    def test_status_and_metrics_show_them(self, store, tmp_path):
        port = free_port()
        with (
            OddBroker(Habits(session_expiry=7200, connack={"MaximumPacketSize": 1000})) as broker,
            served(*_options(store, broker), "--http", f"127.0.0.1:{port}") as process,
        ):
            process.ready()
            url = f"http://127.0.0.1:{port}"
            assert "\nhushmote_broker_warnings 2.0\n" in get(f"{url}/metrics")[1]
            status, body = get(f"{url}/healthz")
            assert (status, len(json.loads(body)["warnings"])) == (200, 2)
            output = hushmote("status", "--store", _url(store), "--aggregator", url, cwd=tmp_path)
            assert process.end() == 0
        line = next(line for line in process.log().splitlines() if "subscribed at" in line)
        assert " WARNING " in line
        assert "; the broker discards this aggregator's session 2 h after it disconnects, with" in line
        text = " ".join(output.split())
        assert "The broker discards this aggregator's session 2 h after it disconnects, with the" in text
        assert "The broker accepts messages of at most 1,000 bytes" in text

    def test_usual_broker_has_none(self, store):
        with MosquittoBroker() as broker, running(store, broker) as aggregator:
            assert aggregator.condition.warnings == ()


class TestEnding:
    @pytest.mark.parametrize(
        ("reason", "words"),
        [
            (0x8B, "it is shutting down"),
            (0x8D, "it received nothing for too long: this machine or the network may be overloaded"),
            (0x8E, "another client with the id agg, or with its login, has connected"),
            (0x95, "a message was larger than it accepts: raise its maximum packet size"),
            (0x97, "a quota was exceeded: raise its limits for this user"),
            (0x98, "its operator or one of its rules ended the connection"),
            (0x9C, "use another server for now"),
            (0x9D, "it has moved to another server: correct the address"),
        ],
    )
    def test_reason_is_logged_and_counting_goes_on(self, store, caplog, reason, words):
        with OddBroker() as broker, running(store, broker, client_id=ID) as aggregator:
            broker.disconnect(ID, reason)
            until(lambda: caplog.text.count("subscribed at") == 2, caplog.text)
            publish(broker, crowd(5)[0])
            until(lambda: total(aggregator) == 5, aggregator.counters)
        assert f"ended the connection: {words}; connecting again" in caplog.text
        assert "is there another client" not in caplog.text
        assert counted_reports(store) == 5

    def test_takeover_at_mosquitto_names_the_other_client(self, store, caplog):
        with MosquittoBroker() as broker, running(store, broker, client_id=ID) as aggregator:
            with running(store, broker, client_id=ID):
                until(lambda: "another client with the id agg" in caplog.text, caplog.text)
            until(lambda: aggregator.condition.subscribed, caplog.text)

    def test_connack_reason_is_explained(self, store, caplog):
        with OddBroker(Habits(connect_reason=0x9C)) as broker:
            aggregator = Aggregator(store, BrokerAddress(broker.host, broker.port), Counting(client_id=ID))
            thread = _in_background(aggregator)
            until(lambda: "refuses the connection: use another server" in caplog.text, caplog.text)
            aggregator.stop()
            thread.join()

    def test_server_reference_is_shown_on_one_line(self):
        properties = Properties(PacketTypes.DISCONNECT)
        properties.ServerReference = "b.example:8883\n" + 200 * "x"
        reason = ReasonCode(PacketTypes.DISCONNECT, identifier=0x9D)
        words, can_retry = ending(reason, properties, ID)
        assert can_retry
        assert "(b.example:8883" in words
        assert "\n" not in words
        assert len(words) < 200

    def test_unknown_reason_keeps_its_name(self):
        reason = ReasonCode(PacketTypes.DISCONNECT, identifier=0x94)
        assert ending(reason, None, ID) == ("topic alias invalid", True)


class TestStatusOfBoards:
    def test_refused_subscription_is_an_error(self):
        with (
            OddBroker(Habits(unreadable=["hushmote/v1/+/status/+"])) as broker,
            pytest.raises(BrokerUnreachable, match="does not let this user read the devices' status"),
        ):
            read(BrokerAddress(broker.host, broker.port), ["open"])


class TestWithoutConnection:
    def test_before_mqtt_5_nothing_is_known(self):
        assert loss_warnings(None) == ()
        assert impossibility(None, counts=True, in_group=True) == ""

    def test_durations_are_short(self):
        texts = []
        for seconds in (30, 90, 5400, 3 * 86_400, 30 * 86_400, 31 * 86_400):
            properties = Properties(PacketTypes.CONNACK)
            properties.SessionExpiryInterval = seconds
            texts += [text.split("session ")[1].split(" after")[0] for text in loss_warnings(properties)]
        assert texts == ["30 s", "1.5 min", "1.5 h", "3 days", "30 days"]


def _url(store):
    return f"sqlite:///{store.where}"


def _options(store, broker):
    return "--store", _url(store), "--broker", broker.url


def _in_background(aggregator):
    thread = threading.Thread(target=aggregator.run, daemon=True)
    thread.start()
    return thread
