"""A small MQTT broker with the habits of brokers that cannot be installed here.

It speaks MQTT 5 and 3.1.1 at QoS 0 and 1 in threads of the test's process. Without habits it behaves like
mosquitto; tests/whole/test_odd_broker.py compares the bytes.

    with OddBroker(Habits(forbidden={"hushmote/v1/+/status/+": "closes"})) as broker:
        ...                                 # broker.host, broker.port, broker.url
        broker.connects                     # every CONNECT, as Connect
        broker.published                    # every PUBLISH received, as Publication, forbidden ones included
        broker.forget_sessions()            # as when they expire; the next CONNACK says "not present"
        broker.disconnect("board-1", 0x89)  # DISCONNECT with a reason; before MQTT 5 the connection just ends
        broker.habits = Habits()            # for the next packets
        broker.restart()                    # sessions and retained messages survive

AWS IoT is about Habits(max_qos=1, session_expiry=3600, wildcards_get_retained=False), Azure Event Grid
Habits(session_expiry=28800), NATS Habits(shared=False), aedes Habits(retained_after_s=0.1), rumqttd
Habits(answers_vain_unsubscribe=False), and a broker with a strict list of permissions has `forbidden` and
`refused_wills`. To try a command by hand: python rigs/odd_broker.py max_qos=0 retain=refuses
"""

import contextlib
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from paho.mqtt.client import topic_matches_sub
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from hushmote.simulator.broker import Broker, free_port

NOT_AUTHORIZED, SESSION_TAKEN_OVER, PACKET_TOO_LARGE = 0x87, 0x8E, 0x95
RETAIN_NOT_SUPPORTED, QOS_NOT_SUPPORTED, SHARED_NOT_SUPPORTED, WILDCARDS_NOT_SUPPORTED = (
    0x9A,
    0x9B,
    0x9E,
    0xA2,
)
_NO_SUBSCRIBERS = 0x10  # a PUBACK's reason, not a failure
_FOREVER = 0xFFFFFFFF

Reaction = Literal["closes", "swallows", "refuses", "hangs up", "acknowledges"]


@dataclass(frozen=True)
class Habits:
    """What this broker does differently from mosquitto.

    Attributes:
        forbidden: Topic filters, and what a publication there causes: "closes" ends the connection,
            "swallows" sends no PUBACK, "refuses" sends a PUBACK with reason 0x87 (before MQTT 5, like
            "acknowledges"), "hangs up" does the same and ends the connection, as mosquitto 2.0.11 does
            with max_queued_messages 0 but not with 1000, its default, and "acknowledges" sends an
            ordinary PUBACK. Nobody gets the message.
        lost_acks: Topic filters of messages that are delivered, but never acknowledged.
        refused_wills: Topic filters of last wills that make it refuse the connection.
        unreadable: Topics and topic filters whose subscription the SUBACK refuses.
        session_expiry: The longest time that it keeps a session, in seconds, granted in the CONNACK; 0 ends
            each session with its connection. Time does not pass here: call forget_sessions().
        max_qos: The highest QoS of publications; a higher one ends the connection. The SUBACK grants no more.
        granted_qos: The highest QoS that a SUBACK grants.
        retain: "refuses" ends a connection that publishes a retained message or has a retained will, "drops"
            delivers the message without keeping it.
        retained_after_s: Seconds after a SUBACK at which it sends the retained messages.
        wildcards_get_retained: Whether a subscription with wildcards gets retained messages.
        answers_vain_unsubscribe: Whether it answers an UNSUBSCRIBE from filters without a subscription.
        wildcards: Whether a filter may have wildcards.
        shared: Whether there are shared subscriptions.
        announces: Whether an MQTT 5 CONNACK states these limits.
        says_why: Whether a DISCONNECT with the reason precedes the end of an MQTT 5 connection.
        connect_reason: The CONNACK's reason code; other than 0, it refuses every connection.
        connack: Other MQTT 5 CONNACK properties by paho's names, such as ReceiveMaximum, ServerKeepAlive and
            MaximumPacketSize; it also enforces the latter.
    """

    forbidden: Mapping[str, Reaction] = field(default_factory=dict[str, Any])
    lost_acks: Collection[str] = ()
    refused_wills: Collection[str] = ()
    unreadable: Collection[str] = ()
    session_expiry: int = _FOREVER
    max_qos: int = 2
    granted_qos: int = 2
    retain: Literal["keeps", "refuses", "drops"] = "keeps"
    retained_after_s: float = 0.0
    wildcards_get_retained: bool = True
    answers_vain_unsubscribe: bool = True
    wildcards: bool = True
    shared: bool = True
    announces: bool = True
    says_why: bool = True
    connect_reason: int = 0
    connack: Mapping[str, int] = field(default_factory=dict[str, int])

    def announcements(self) -> dict[str, int]:
        """Return the CONNACK's properties, except those that depend on the client."""
        limits = {
            "MaximumQoS": (self.max_qos, 2),
            "RetainAvailable": (int(self.retain == "keeps"), 1),
            "WildcardSubscriptionAvailable": (int(self.wildcards), 1),
            "SharedSubscriptionAvailable": (int(self.shared), 1),
        }
        announced = {n: v for n, (v, usual) in limits.items() if v != usual} if self.announces else {}
        return announced | dict(self.connack)


class Publication(NamedTuple):
    """A message as its publisher sent it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


class Connect(NamedTuple):
    """A CONNECT; session_expiry is None before MQTT 5."""

    client_id: str
    version: int
    clean: bool
    keepalive: int
    session_expiry: int | None
    receive_maximum: int
    will: Publication | None
    username: str | None


class _End(Exception):
    """Ends a connection; the argument is the DISCONNECT's reason."""


class _Session:
    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.filters: dict[str, tuple[int, bool]] = {}  # (QoS, no local)
        self.waiting: deque[Publication] = deque()
        self.unacknowledged: dict[int, Publication] = {}
        self.connection: _Connection | None = None
        self.keeps = False
        self._mid = 0

    def next_mid(self) -> int:
        self._mid = self._mid % 0xFFFF + 1
        return self._mid


class OddBroker(Broker):
    """A broker on a free port of 127.0.0.1; see the module's description."""

    name = "odd"
    description = "a broker with unusual habits, for tests"

    def __init__(self, habits: Habits | None = None) -> None:
        super().__init__("127.0.0.1", free_port())
        self.habits = habits or Habits()
        self.connects: list[Connect] = []
        self.published: list[Publication] = []
        self.retained: dict[str, Publication] = {}
        self.sessions: dict[str, _Session] = {}
        self.lock = threading.RLock()
        self._server: socket.socket | None = None
        self._turn = 0

    def start(self) -> None:
        """Listen for clients."""
        self._server = socket.create_server((self.host, self.port))
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = server.accept()[0]
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_Connection(self, client).run, daemon=True).start()

    def kill(self) -> None:
        """End all connections without a DISCONNECT and stop listening."""
        if self._server is not None:
            _shut(self._server)
            self._server = None
        for connection in self._connections():
            connection.close()

    terminate = stop = kill

    def restart(self) -> None:
        """Restart on the same port."""
        self.kill()
        self.start()

    def forget_sessions(self) -> None:
        """Discard every session of a client that is disconnected, and those of the others once they leave."""
        with self.lock:
            for session in self.sessions.values():
                session.keeps = False
            self.sessions = {n: s for n, s in self.sessions.items() if s.connection is not None}

    def disconnect(self, client_id: str, reason: int | None = None) -> None:
        """End a client's connection, in MQTT 5 with this reason."""
        with self.lock:
            connection = self.sessions[client_id].connection
        assert connection is not None, f"{client_id} is not connected"
        connection.end(reason)

    def is_connected(self, client_id: str) -> bool:
        """Return whether a client with this id is connected."""
        with self.lock:
            return client_id in self.sessions and self.sessions[client_id].connection is not None

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> None:
        """Publish a message that no habit concerns."""
        self.deliver(Publication(topic, payload, qos, retain), None)

    def deliver(self, message: Publication, publisher: _Session | None) -> bool:
        """Pass a message on to its subscribers and keep it if it is retained; return whether it had any."""
        with self.lock:
            if message.retain and self.habits.retain == "keeps":
                self.retained[message.topic] = message
                if not message.payload:
                    del self.retained[message.topic]
            groups: dict[str, list[_Session]] = {}
            has_subscribers = False
            for session in list(self.sessions.values()):
                granted = -1
                for name, (qos, no_local) in session.filters.items():
                    plain = _plain_filter(name)
                    if topic_matches_sub(plain, message.topic) and not (no_local and session is publisher):
                        if plain == name:
                            granted = max(granted, qos)
                        else:
                            groups.setdefault(name, []).append(session)
                if granted >= 0:
                    has_subscribers = True
                    self._send(session, message, granted)
            for name, members in groups.items():
                connected = [m for m in members if m.connection is not None] or members
                self._turn += 1
                chosen = connected[self._turn % len(connected)]
                self._send(chosen, message, chosen.filters[name][0])
            return has_subscribers or bool(groups)

    def _send(self, session: _Session, message: Publication, qos: int) -> None:
        message = message._replace(qos=min(qos, message.qos), retain=False)
        if message.qos:
            session.waiting.append(message)
        if session.connection is not None:
            session.connection.send_waiting() if message.qos else session.connection.send_message(message, 0)

    def _connections(self) -> list["_Connection"]:
        with self.lock:
            return [s.connection for s in self.sessions.values() if s.connection is not None]


class _Connection:
    def __init__(self, broker: OddBroker, client: socket.socket) -> None:
        self._broker = broker
        self._socket = client
        self._stream = client.makefile("rb")
        self._is_5 = False
        self._session = _Session("")
        self._will: Publication | None = None
        self._receive_maximum = 0xFFFF

    def run(self) -> None:
        """Serve the client until its connection ends."""
        try:
            self._connect(*self._read_packet())
            while self._handle(*self._read_packet()):
                pass
            self._will = None
        except _End as e:
            self.end(e.args[0])
        except (OSError, EOFError, ValueError):
            pass
        self.close()
        with self._broker.lock:
            if self._session.connection is self:
                self._session.connection = None
                if not self._session.keeps:
                    self._broker.sessions.pop(self._session.client_id, None)
        if self._will is not None and not self._reaction(self._will.topic):
            self._broker.deliver(self._will, None)

    def close(self) -> None:
        """End the connection without a DISCONNECT."""
        _shut(self._socket)

    def end(self, reason: int | None) -> None:
        """End the connection, in MQTT 5 with this reason."""
        if self._is_5 and reason is not None and self._broker.habits.says_why:
            with contextlib.suppress(OSError):
                self._write(0xE0, bytes((reason,)))
        self.close()

    def _read_packet(self) -> tuple[int, bytes]:
        first = self._stream.read(1)
        size = shift = 0
        while first and (byte := self._stream.read(1)):
            size |= (byte[0] & 127) << shift
            shift += 7
            if byte[0] < 128:
                if size + 1 + shift // 7 > self._broker.habits.connack.get("MaximumPacketSize", 1 << 28):
                    raise _End(PACKET_TOO_LARGE)
                body = self._stream.read(size)
                if len(body) == size:
                    return first[0], body
        raise EOFError

    def _write(self, first: int, body: bytes) -> None:
        size, length = bytearray(), len(body)
        while True:
            length, digit = length >> 7, length & 127
            size.append(digit | (128 if length else 0))
            if not length:
                break
        with self._broker.lock:
            self._socket.sendall(bytes((first,)) + size + body)

    def _connect(self, first: int, body: bytes) -> None:
        reader, habits = _Reader(body), self._broker.habits
        if first != 0x10 or reader.text() != "MQTT":
            raise EOFError
        version, flags, keepalive = reader.byte(), reader.byte(), reader.number()
        self._is_5 = version == 5
        wanted = reader.properties(PacketTypes.CONNECT) if self._is_5 else None
        client_id, clean = reader.text(), bool(flags & 2)
        if flags & 4:
            if self._is_5:
                reader.properties(PacketTypes.WILLMESSAGE)
            topic = reader.text()
            self._will = Publication(topic, reader.string(), flags >> 3 & 3, bool(flags & 0x20))
        expiry = getattr(wanted, "SessionExpiryInterval", 0) if self._is_5 else None
        self._receive_maximum = getattr(wanted, "ReceiveMaximum", 0xFFFF)
        will, username = self._will, reader.text() if flags & 0x80 else None
        self._broker.connects.append(
            Connect(client_id, version, clean, keepalive, expiry, self._receive_maximum, will, username)
        )
        reason, self._will = habits.connect_reason, None
        if will is not None and any(topic_matches_sub(f, will.topic) for f in habits.refused_wills):
            reason = NOT_AUTHORIZED
        if will is not None and will.retain and habits.retain == "refuses":
            reason = RETAIN_NOT_SUPPORTED
        if will is not None and will.qos > habits.max_qos:
            reason = QOS_NOT_SUPPORTED
        if reason:
            if self._is_5:
                self._write(0x20, bytes((0, reason, 0)))
            elif reason <= 5 or reason == NOT_AUTHORIZED:
                self._write(
                    0x20, bytes((0, min(reason, 5)))
                )  # MQTT 3.1.1 has codes up to 5, "not authorized"
            raise EOFError
        self._will = will
        properties = habits.announcements()
        if not client_id:
            client_id = f"odd-{len(self._broker.connects)}"
            properties["AssignedClientIdentifier"] = client_id  # pyright: ignore[reportArgumentType]
        granted = min(not clean if expiry is None else expiry, habits.session_expiry)
        if self._is_5 and granted != expiry:
            properties["SessionExpiryInterval"] = granted
        with self._broker.lock:
            present = self._take_session(client_id, clean)
            self._session.keeps = granted > 0
            self._write(0x20, bytes((present, 0)) + (_pack(properties) if self._is_5 else b""))
            self._session.connection = self
            for mid, message in self._session.unacknowledged.items():
                self.send_message(message, mid, is_again=True)
            self.send_waiting()

    def _take_session(self, client_id: str, clean: bool) -> bool:
        """Take the client's session over from its last connection; return whether it was present."""
        sessions = self._broker.sessions
        session = sessions.get(client_id)
        if session is not None and session.connection is not None:
            session.connection.end(SESSION_TAKEN_OVER)
            session.connection = None
        present = session is not None and session.keeps and not clean
        self._session = sessions[client_id] = session if session and present else _Session(client_id)
        return present

    def _handle(self, first: int, body: bytes) -> bool:
        """Handle a packet; return False after a DISCONNECT that cancels the will."""
        kind, reader = first >> 4, _Reader(body)
        if kind == PacketTypes.PUBLISH:
            self._take(first, reader)
        elif kind == PacketTypes.PUBACK:
            with self._broker.lock:
                self._session.unacknowledged.pop(reader.number(), None)
                self.send_waiting()
        elif kind == PacketTypes.SUBSCRIBE:
            self._subscribe(reader)
        elif kind == PacketTypes.UNSUBSCRIBE:
            mid, reasons = self._begin(reader, kind), bytearray()
            while reader.rest:
                reasons.append(0 if self._session.filters.pop(reader.text(), None) else 0x11)
            if self._broker.habits.answers_vain_unsubscribe or not all(reasons):
                self._write(0xB0, struct.pack("!H", mid) + (b"\0" + reasons if self._is_5 else b""))
        elif kind == PacketTypes.PINGREQ:
            self._write(0xD0, b"")
        elif kind == PacketTypes.DISCONNECT:
            reason = reader.byte() if body else 0
            expiry = reader.properties(kind) if reader.rest else None
            if getattr(expiry, "SessionExpiryInterval", 1) == 0:
                self._session.keeps = False
            if reason == 0:
                return False
            raise EOFError
        else:
            raise _End(0x82)
        return True

    def _begin(self, reader: "_Reader", kind: int) -> int:
        mid = reader.number()
        if self._is_5:
            reader.properties(kind)
        return mid

    def _take(self, first: int, reader: "_Reader") -> None:
        topic, qos, habits = reader.text(), first >> 1 & 3, self._broker.habits
        mid = reader.number() if qos else 0
        if self._is_5:
            reader.properties(PacketTypes.PUBLISH)
        message = Publication(topic, reader.rest, qos, bool(first & 1))
        self._broker.published.append(message)
        reaction = self._reaction(topic)
        if reaction == "closes":
            raise _End(NOT_AUTHORIZED)
        if qos > min(habits.max_qos, 1):
            raise _End(QOS_NOT_SUPPORTED)
        if message.retain and habits.retain == "refuses":
            raise _End(RETAIN_NOT_SUPPORTED)
        reason = NOT_AUTHORIZED if reaction in ("refuses", "hangs up") else 0
        if reaction is None and not self._broker.deliver(message, self._session):
            reason = _NO_SUBSCRIBERS
        is_lost = reaction == "swallows" or any(topic_matches_sub(f, topic) for f in habits.lost_acks)
        if qos and not is_lost:
            self._write(0x40, struct.pack("!H", mid) + (bytes((reason,)) if reason and self._is_5 else b""))
        if reaction == "hangs up":
            raise EOFError

    def _reaction(self, topic: str) -> str | None:
        forbidden = self._broker.habits.forbidden
        return next((forbidden[name] for name in forbidden if topic_matches_sub(name, topic)), None)

    def _subscribe(self, reader: "_Reader") -> None:
        mid, reasons, accepted = self._begin(reader, PacketTypes.SUBSCRIBE), bytearray(), []
        habits = self._broker.habits
        while reader.rest:
            name, options = reader.text(), reader.byte()
            plain, reason = _plain_filter(name), min(options & 3, habits.granted_qos, habits.max_qos, 1)
            if plain != name and not habits.shared:
                reason = SHARED_NOT_SUPPORTED
            elif not habits.wildcards and ("+" in plain or "#" in plain):
                reason = WILDCARDS_NOT_SUPPORTED
            elif any(plain == f or topic_matches_sub(f, plain) for f in habits.unreadable):
                reason = NOT_AUTHORIZED
            if reason < 0x80:
                accepted.append((name, reason))
                self._session.filters[name] = reason, bool(options & 4)
            reasons.append(reason if self._is_5 or reason < 0x80 else 0x80)
        with self._broker.lock:
            self._write(0x90, struct.pack("!H", mid) + (b"\0" if self._is_5 else b"") + reasons)
            if not habits.retained_after_s:
                self._send_retained(accepted)
        if habits.retained_after_s:
            threading.Timer(habits.retained_after_s, self._send_retained, (accepted,)).start()

    def _send_retained(self, filters: list[tuple[str, int]]) -> None:
        """Send the retained messages of topic filters, each with its QoS."""
        for name, qos in filters:
            if "+" in name and not self._broker.habits.wildcards_get_retained:
                continue
            for message in list(self._broker.retained.values()):
                if topic_matches_sub(name, message.topic):
                    self.send_message(message._replace(qos=min(qos, message.qos)), self._session.next_mid())

    def send_message(self, message: Publication, mid: int, *, is_again: bool = False) -> None:
        """Send a message; one with QoS 1 remains in the session until it is acknowledged."""
        with self._broker.lock:
            if message.qos:
                self._session.unacknowledged[mid] = message
            topic = message.topic.encode()
            body = struct.pack("!H", len(topic)) + topic + (struct.pack("!H", mid) if message.qos else b"")
            first = 0x30 | message.qos << 1 | int(message.retain) | (8 if is_again else 0)
            with contextlib.suppress(OSError):  # the reading thread notices
                self._write(first, body + (b"\0" if self._is_5 else b"") + message.payload)

    def send_waiting(self) -> None:
        """Send the session's waiting messages, as many as the client's Receive Maximum allows."""
        session = self._session
        while session.waiting and len(session.unacknowledged) < self._receive_maximum:
            self.send_message(session.waiting.popleft(), session.next_mid())


class _Reader:
    """Reads the fields of a packet; `rest` is what follows."""

    def __init__(self, body: bytes) -> None:
        self.rest = body

    def take(self, size: int) -> bytes:
        if size > len(self.rest):
            raise EOFError
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def string(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        return self.string().decode()

    def properties(self, kind: int) -> Properties:
        properties = Properties(kind)
        self.take(properties.unpack(self.rest)[1])
        return properties


def _pack(properties: Mapping[str, Any]) -> bytes:
    packed = Properties(PacketTypes.CONNACK)
    for name, value in properties.items():
        setattr(packed, name, value)
    return packed.pack()


def _plain_filter(name: str) -> str:
    """Return a filter without the group of a shared subscription."""
    return name.split("/", 2)[2] if name.startswith("$share/") else name


def _shut(s: socket.socket) -> None:
    with contextlib.suppress(OSError):  # a thread in accept() or recv() does not see close() alone
        s.shutdown(socket.SHUT_RDWR)
    s.close()


def _parse(argument: str) -> tuple[str, Any]:
    name, _, text = argument.partition("=")
    if name in ("forbidden", "connack"):
        return name, {
            k: int(v) if v.isdigit() else v for k, _, v in (p.partition(":") for p in text.split(","))
        }
    if name in ("lost_acks", "refused_wills", "unreadable"):
        return name, text.split(",")
    return name, int(text, 0) if text[:1].isdigit() else text


if __name__ == "__main__":
    with OddBroker(Habits(**dict(map(_parse, sys.argv[1:])))) as odd:
        print(odd.url, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)
