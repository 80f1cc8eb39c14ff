"""The broker in rigs/odd_broker.py against a real mosquitto: the same packets get the same bytes."""

import socket
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from odd_broker import Habits, OddBroker
from running_aggregator import WAIT_S, until

from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.connection import BrokerConnection
from hushmote.server.ingest.link import SUCCESS, MqttLink
from hushmote.server.ingest.pacing import Pace
from hushmote.simulator.broker import MosquittoBroker

PING, PONG = b"\xc0\0", b"\xd0\0"
AnyBroker = MosquittoBroker | OddBroker


def text(content: str) -> bytes:
    return struct.pack("!H", len(content)) + content.encode()


class Conversation:
    """Sends packets of one MQTT version and records the answers."""

    def __init__(self, broker: AnyBroker, version: int) -> None:
        self._socket = socket.create_connection((broker.host, broker.port), WAIT_S)
        self._none = b"\0" if version == 5 else b""  # no properties
        self._version = version

    def send(self, first: int, body: bytes, pings: bool = True) -> bytes:
        """Send a packet, then a ping; return the answers up to the ping's, or with "closed" at the end."""
        try:
            self._socket.sendall(bytes((first, len(body))) + body + PING * pings)
        except OSError:
            return b"closed"
        received = b""
        while not received.endswith(PONG):
            try:
                part = self._socket.recv(4096)
            except ConnectionError:
                part = b""
            if not part:
                return received + b"closed"
            received += part
        return received[: -len(PONG)]

    def connect(self, client_id: str = "a", flags: int = 2, expiry: int = 0, will: bytes = b"") -> bytes:
        properties = b"\x05\x11" + struct.pack("!I", expiry) if self._version == 5 else b""
        head = text("MQTT") + bytes((self._version, flags, 0, 60)) + properties
        answer = self.send(0x10, head + text(client_id) + will)
        assert answer[:1] == b"\x20" or answer == b"closed"
        return answer[2:4] + answer[2 + answer[1] :]  # TestAnnouncements compares the properties

    def will(self) -> bytes:
        return self._none + text("will") + text("gone")

    def subscribe(self, name: str, options: int) -> bytes:
        return self.send(0x82, b"\0\x01" + self._none + text(name) + bytes((options,)))

    def unsubscribe(self, name: str) -> bytes:
        return self.send(0xA2, b"\0\x02" + self._none + text(name))

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: int = 0) -> bytes:
        mid = b"\0\x07" if qos else b""
        return self.send(0x30 | qos << 1 | retain, text(topic) + mid + self._none + payload)

    def acknowledge(self, mid: int) -> bytes:
        return self.send(0x40, struct.pack("!H", mid))

    def leave(self) -> bytes:
        return self.send(0xE0, b"", pings=False)


def talk_of_session(broker: AnyBroker, version: int) -> list[bytes]:
    """Subscribe, publish, come back for what was not acknowledged, and start anew."""
    first = Conversation(broker, version)
    answers = [
        first.connect(flags=0, expiry=3600),
        first.subscribe("t/+", 1),
        first.publish("t/x", b"acknowledged"),
        first.acknowledge(1),
        first.unsubscribe("none"),
        first.publish("t/y", b"not acknowledged"),
        first.leave(),
    ]
    back = Conversation(broker, version)
    answers += [back.connect(flags=0, expiry=3600), back.publish("t/z", b"kept", retain=1), back.leave()]
    anew = Conversation(broker, version)
    return [*answers, anew.connect(), anew.subscribe("t/#", 1), anew.subscribe("t/#", 0), anew.leave()]


def talk_of_limits(broker: AnyBroker, version: int) -> list[bytes]:
    """Subscribe and publish, retained and not, and with a will, in a connection each."""
    calls: list[Callable[[Conversation], bytes]] = [
        lambda c: c.subscribe("t", 1),
        lambda c: c.publish("t", b"0", 0),
        lambda c: c.publish("t", b"1"),
        lambda c: c.publish("t", b"retained", retain=1),
    ]
    answers = []
    for call in calls:
        conversation = Conversation(broker, version)
        answers += [conversation.connect(), call(conversation)]
    for flags in (0x0E, 0x26):  # with a will of QoS 1, and with a retained will
        conversation = Conversation(broker, version)
        answers.append(conversation.connect(flags=flags, will=conversation.will())[:2])
    return answers


@pytest.mark.parametrize("version", [4, 5])
class TestBytes:
    def test_are_mosquittos_without_habits(self, version: int) -> None:
        with OddBroker() as odd, MosquittoBroker() as real:
            assert talk_of_session(odd, version) == talk_of_session(real, version)

    @pytest.mark.parametrize(
        ("habits", "setting"),
        [
            (Habits(max_qos=0), "max_qos 0"),
            (Habits(max_qos=1), "max_qos 1"),
            (Habits(retain="refuses"), "retain_available false"),
            (Habits(connack={"MaximumPacketSize": 30}), "max_packet_size 30"),
        ],
        ids=["QoS 0", "QoS 1", "retain", "size"],
    )
    def test_are_mosquittos_with_its_limits(self, habits: Habits, setting: str, version: int) -> None:
        with OddBroker(habits) as odd, MosquittoBroker(settings=(setting,)) as real:
            assert talk_of_limits(odd, version) == talk_of_limits(real, version)

    def test_are_mosquittos_at_a_forbidden_topic(self, version: int, tmp_path: Path) -> None:
        (tmp_path / "acl").write_text("topic read #\n")

        def talk(broker: AnyBroker) -> list[bytes]:
            conversation = Conversation(broker, version)
            return [conversation.connect(), conversation.publish("t", b"", 0), conversation.publish("t", b"")]

        with MosquittoBroker(settings=(f"acl_file {tmp_path / 'acl'}",)) as real:
            expected = talk(real)
        answers = {}
        for reaction in ("refuses", "hangs up"):
            with OddBroker(Habits(forbidden={"#": reaction})) as odd:
                answers[reaction] = talk(odd)
        assert expected in answers.values()  # 2.0.11 hangs up with max_queued_messages 0


class Greeting(MqttLink):
    """A connection, for its CONNACK's properties."""

    def __init__(self, broker: AnyBroker, expiry: int = 0) -> None:
        super().__init__("5", "a", BrokerAddress("host"), None, {"SessionExpiryInterval": expiry})
        self.connect(broker.host, broker.port)
        until(lambda: self.read(0.05) != SUCCESS or self.answer is not None, "the broker answers")

    def announced(self) -> dict[str, int]:
        """Return what the broker announced, without what mosquitto always adds."""
        properties: dict[str, int] = getattr(self.connack_properties, "json", dict)()
        return {n: v for n, v in properties.items() if n not in ("TopicAliasMaximum", "ReceiveMaximum")}


class TestAnnouncements:
    @pytest.mark.parametrize(
        ("habits", "setting"),
        [
            (Habits(max_qos=0), "max_qos 0"),
            (Habits(max_qos=1), "max_qos 1"),
            (Habits(retain="refuses"), "retain_available false"),
            (Habits(connack={"ServerKeepAlive": 20}), "max_keepalive 20"),
        ],
        ids=["QoS 0", "QoS 1", "retain", "keepalive"],
    )
    def test_are_mosquittos(self, habits: Habits, setting: str) -> None:
        size = "max_packet_size 1000"
        habits = replace(habits, connack={**habits.connack, "MaximumPacketSize": 1000})
        with OddBroker(habits) as odd, MosquittoBroker(settings=(setting, size)) as real:
            assert Greeting(odd).announced() == Greeting(real).announced()

    def test_grant_a_shorter_session(self) -> None:
        with OddBroker(Habits(session_expiry=7200)) as broker:
            assert Greeting(broker, 3600).announced() == {}
            assert Greeting(broker, 0xFFFFFFFF).announced() == {"SessionExpiryInterval": 7200}
            broker.habits = Habits(announces=False, max_qos=0, wildcards=False)
            assert Greeting(broker).announced() == {}


class Subscriber:
    """An MQTT 5 aggregator's connection that is subscribed to the reports."""

    def __init__(self, broker: OddBroker, filters: tuple[str, ...] = ("t/+",)) -> None:
        self.link = BrokerConnection("5", "agg", BrokerAddress("host"), 100, Pace(100, 1.0))
        self.link.connect(broker.host, broker.port)
        self.wait(lambda: self.link.answer is not None)
        self.link.subscribe(filters)
        self.wait(lambda: self.link.subscribe_reason is not None)

    def wait(self, condition: Callable[[], bool]) -> None:
        until(lambda: not self.link.turn(0.05, 100) or condition(), "the broker does something")

    def has_ended(self) -> bool:
        return not self.link.turn(0.05, 100)


class TestHabits:
    def test_forgets_sessions(self) -> None:
        with OddBroker() as broker:
            for expected in (False, True, False):
                subscriber = Subscriber(broker)
                assert subscriber.link.session_present is expected
                subscriber.link.close()
                until(lambda: not broker.is_connected("agg"), "the broker notices")
                if expected:
                    broker.forget_sessions()
            broker.habits = Habits(session_expiry=0)
            Subscriber(broker).link.close()
            until(lambda: "agg" not in broker.sessions, "a session of 0 s ends with its connection")

    def test_refuses_subscriptions(self) -> None:
        cases = {
            "QoS 0": Habits(granted_qos=0),
            "Wildcard": Habits(wildcards=False),
            "Shared": Habits(shared=False),
            "Not authorized": Habits(unreadable=("t/+",)),
        }
        for expected, habits in cases.items():
            with OddBroker(habits) as broker:
                subscriber = Subscriber(broker, ("$share/group/t/+",))
                assert expected in str(subscriber.link.subscribe_reason), expected

    @pytest.mark.parametrize("reason", [0x87, 0x89, 0x8B, 0x8D, 0x8E, 0x93, 0x97, 0x98])
    def test_disconnects_with_reason(self, reason: int) -> None:
        with OddBroker() as broker:
            subscriber, reasons = Subscriber(broker), []
            subscriber.link.client.on_disconnect = lambda _c, _d, _f, code, _p: reasons.append(code.value)
            broker.disconnect("agg", reason)
            until(subscriber.has_ended, "the connection ends")
            assert reasons == [reason]

    @pytest.mark.parametrize("reaction", ["closes", "swallows", "refuses", "hangs up", "acknowledges"])
    @pytest.mark.parametrize("version", [4, 5])
    def test_reacts_to_forbidden_topic(self, reaction: Any, version: int) -> None:
        refusal = b"@\x03\0\x07\x87" if version == 5 else b"@\x02\0\x07"
        expected = {
            "closes": b"\xe0\x01\x87closed" if version == 5 else b"closed",
            "swallows": b"",
            "refuses": refusal,
            "hangs up": refusal + b"closed",
            "acknowledges": b"@\x02\0\x07",
        }
        with OddBroker(Habits(forbidden={"forbidden/+": reaction})) as broker:
            conversation = Conversation(broker, version)
            conversation.connect()
            conversation.subscribe("#", 0)
            conversation.publish("allowed", b"")
            assert conversation.publish("forbidden/a", b"secret") == expected[reaction]
            assert [p.topic for p in broker.published] == ["allowed", "forbidden/a"]

    def test_delivers_and_loses_acknowledgement(self) -> None:
        with OddBroker(Habits(lost_acks=("t/+",))) as broker:
            subscriber = Subscriber(broker)
            publisher = Conversation(broker, 4)
            publisher.connect("b")
            assert publisher.publish("t/x", b"1") == b""
            subscriber.wait(lambda: bool(subscriber.link.messages))
            assert subscriber.link.messages == [("t/x", b"1")]

    def test_refuses_wills(self) -> None:
        with OddBroker(Habits(refused_wills=("will",))) as broker:
            conversation = Conversation(broker, 4)
            assert conversation.connect(flags=0x0E, will=conversation.will()) == b"\0\5closed"
            assert broker.connects[0].will is not None

    def test_keeps_messages_over_restart(self) -> None:
        with OddBroker() as broker:
            Subscriber(broker).link.close()
            broker.publish("t/x", b"waits")
            broker.restart()
            subscriber = Subscriber(broker)
            subscriber.wait(lambda: bool(subscriber.link.messages))
            assert subscriber.link.session_present

    def test_shares_a_subscription(self) -> None:
        with OddBroker() as broker:
            members = [Conversation(broker, 5) for _ in range(2)]
            for i, member in enumerate(members):
                member.connect(f"member-{i}")
                member.subscribe("$share/group/t/+", 0)
            for _ in range(4):
                broker.publish("t/x", b"shared")
            assert [member.send(0xC0, b"").count(b"shared") for member in members] == [2, 2]
