"""The C client's reporter, with its broker and clock simulated in Python."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_long, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from c_client import REPORT_BYTES, CBoard, Source, pointer
from enumeration import POLICY, MemoryStorage

CONNECT = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
SUBSCRIBE = ctypes.CFUNCTYPE(c_long, c_void_p, c_char_p)
PUBLISH = ctypes.CFUNCTYPE(c_long, c_void_p, c_char_p, c_void_p, c_size_t, ctypes.c_bool)
DISCONNECT = ctypes.CFUNCTYPE(None, c_void_p)
READ_KEPT = ctypes.CFUNCTYPE(c_long, c_void_p, c_char_p, c_void_p, c_size_t)
WRITE_KEPT = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
VERIFY = ctypes.CFUNCTYPE(ctypes.c_bool, c_void_p, c_void_p, c_void_p, c_void_p)
TIMES = {"delay": 0, "spread": 0, "backoff": 2000, "backoff_max": 60_000, "timeout": 30_000, "settle": 10_000}
STATUS = "hushmote/v1/home/status/board-1"
REPORT = "hushmote/v1/home/report/board-1"
TOPIC = "hushmote/v1/home/experiment/"


class Port(ctypes.Structure):
    """struct hushmote_port."""

    _fields_ = (
        ("context", c_void_p),
        ("connect", CONNECT),
        ("subscribe", SUBSCRIBE),
        ("publish", PUBLISH),
        ("disconnect", DISCONNECT),
        ("read_kept", READ_KEPT),
        ("write_kept", WRITE_KEPT),
        *((name, c_uint32) for name in TIMES),
        ("asker", c_void_p),
        ("questions", c_void_p),
        ("entries", c_void_p),
        ("prefix", ctypes.c_char_p),
        ("omit_status", ctypes.c_bool),
        ("omit_will", ctypes.c_bool),
    )


class Board:
    """A C client with a reporter that records its port calls.

    If the policy has "ask": "each", the board asks about each question.
    """

    def __init__(
        self, slots: Any = None, kept: Any = None, policy: Any = None, seed: int = 5, **settings: Any
    ):
        times = TIMES | {name: settings.pop(name) for name in TIMES if name in settings}
        omitted = {name: settings.pop(name, False) for name in ("omit_status", "omit_will")}
        storage = slots if hasattr(slots, "read") else MemoryStorage(slots)
        policy = policy or POLICY
        if not storage.slots:
            keyed = {"fleet": "home", "announce_key": settings.get("announce_key")}
            c_board = CBoard(policy, storage, entropy=Source(seed), begin=False, **keyed)
            assert c_board.provision(consent=2) == 0
        self.board = CBoard(policy, storage, entropy=Source(seed + 1), fleet="home", begin=False, **settings)
        self.verified = 0
        if settings.get("announce_key"):
            self.verify = VERIFY(lambda *arguments: self._verify(*arguments))
            self.board.config.verify = pointer(self.verify)
        assert self.board.c.hushmote_begin(self.board.client, self.board.config_pointer) == 0
        self.c, self.storage = self.board.c, storage
        self.kept: dict[str, bytes] = {} if kept is None else kept
        self.now, self.id = 2**32 - 5000, 0
        self.fails = self.mute = self.full = False
        self.refuses = 0  # what connect() returns
        self.answers_status = True
        self.unanswered: list[int] = []  # ids of status messages
        self.subscriptions: dict[str, int] = {}
        self.happened: list[tuple[Any, ...]] = []
        self.port = Port(
            None,
            CONNECT(self._connect),
            SUBSCRIBE(self._subscribe),
            PUBLISH(self._publish),
            DISCONNECT(lambda _: self.happened.append(("disconnect",))),
            READ_KEPT(self._read_kept),
            WRITE_KEPT(self._write_kept),
            *times.values(),
        )

        def buffer(name: str, count: int = 1) -> Any:
            return (c_uint64 * (c_size_t.in_dll(self.c, name).value * count // 8 + 1))()

        for name, value in omitted.items():
            setattr(self.port, name, value)
        self.reporter = buffer("test_reporter_bytes")
        self.topics = buffer("test_topic_bytes", len(policy["experiments"]))
        if policy.get("ask") == "each":
            self.questions = buffer("test_question_bytes", len(policy["experiments"]))
            self.port.asker = ctypes.addressof(c_size_t.in_dll(self.c, "hushmote_ask_each"))
            self.port.questions = ctypes.addressof(self.questions)
        self.buffer = ctypes.create_string_buffer(1113)
        if "log" in policy:
            self.entries = buffer("test_log_entry_bytes", len(policy["experiments"]))
            self.port.entries = ctypes.addressof(self.entries)
        assert self.begin() == 0

    def begin(self, keeps: bool = True) -> int:
        arguments = (self.board.client, ctypes.byref(self.port), self.topics, self.buffer if keeps else None)
        return self.c.hushmote_reporter_begin(self.reporter, *arguments)

    def _verify(self, _context: Any, key: Any, digest: Any, signature: Any) -> bool:
        self.verified += 1
        verify = self.c.hm_p256_verify
        verify.restype = ctypes.c_bool
        return verify(c_void_p(key), c_void_p(digest), c_void_p(signature))

    def _connect(self, _context: Any, topic: bytes, will: int, size: int) -> int:
        assert topic is None or topic.decode() == STATUS
        self.happened.append(("connect", topic and ctypes.string_at(will, size).decode()))
        return -1 if self.fails else self.refuses

    def _subscribe(self, _context: Any, topic: bytes) -> int:
        self.happened.append(("subscribe", topic.decode()))
        self.id += 1
        self.subscriptions[topic.decode().rpartition("/")[2]] = self.id
        return -1 if self.fails else self.id

    def _publish(self, _context: Any, topic: bytes, payload: int, size: int, retain: bool) -> int:
        if self.mute:
            return -1
        self.id += 1
        content = ctypes.string_at(payload, size)
        if topic.decode() == STATUS:
            assert retain
            self.unanswered.append(self.id)
            self.happened.append(("status", content.decode()))
        else:
            assert (topic.decode(), retain) == (REPORT, False)
            self.happened.append(("report", self.id, content))
        return self.id

    def _read_kept(self, _context: Any, name: bytes, data: int, size: int) -> int:
        content = self.kept.get(name.decode(), b"")
        ctypes.memmove(data, content, min(size, len(content)))
        return len(content)

    def _write_kept(self, _context: Any, name: bytes, data: int, size: int) -> int:
        if self.fails or self.full:
            return -1 if self.fails else 1
        self.kept.pop(name.decode(), None)
        if size:
            self.kept[name.decode()] = ctypes.string_at(data, size)
        return 0

    def tick(self, ms: int = 0) -> list[tuple[Any, ...]]:
        """Advance the clock; return and clear the recorded port calls."""
        self.now += ms
        self._answer()
        self.c.hushmote_reporter_tick(self.reporter, c_uint32(self.now & 0xFFFFFFFF))
        happened, self.happened = self.happened, []
        return happened

    def connected(self) -> list[tuple[Any, ...]]:
        """Wait for the board to connect; return the port calls that follow."""
        for _ in range(100):
            if [call[0] for call in self.tick(1000)] == ["connect"]:
                break
        else:
            raise AssertionError("it does not connect")
        self.c.hushmote_reporter_connected(self.reporter)
        happened, self.happened = self.happened, []
        return happened + self.tick()

    def _answer(self) -> None:
        while self.answers_status and self.unanswered:
            self.acknowledged(self.unanswered.pop())

    def lost(self) -> None:
        self._answer()
        self.unanswered.clear()
        self.c.hushmote_reporter_disconnected(self.reporter)

    def connecting(self) -> str | None:
        """Wait for the board to begin a connection; return its will."""
        for _ in range(400):
            if (calls := self.tick(1000)) and calls[0][0] == "connect":
                return calls[0][1]
        raise AssertionError("it does not connect")

    def subscribed(self, name: str, code: int) -> None:
        self.c.hushmote_reporter_subscribed(self.reporter, c_long(self.subscriptions[name]), code)

    def refused(self, code: int) -> None:
        """Refuse the connection in a CONNACK."""
        self.c.hushmote_reporter_refused(self.reporter, code)
        self.lost()

    def message(self, name: str, payload: bytes) -> None:
        topic = (TOPIC + name).encode()
        self.c.hushmote_reporter_message(self.reporter, topic, len(topic), payload or None, len(payload))

    def proof(self, name: str, proof: bytes) -> None:
        topic = f"hushmote/v1/home/proof/{name}".encode()
        self.c.hushmote_reporter_message(self.reporter, topic, len(topic), proof or None, len(proof))

    def leaf(self, name: str = "e") -> int:
        """Return the index in the log of the version in force."""
        self.c.test_leaf.restype = c_uint32
        return self.c.test_leaf(ctypes.byref(self.port), self.board.policy["experiments"].index(name))

    def take(self, name: str, payload: bytes) -> int:
        """Like message(), but return 0 or the rejection code."""
        at = self.board.policy["experiments"].index(name)
        return self.c.hm_take_message(self.reporter, at, payload or b"", len(payload), False)

    def agree(self, name: str, payload: bytes | None = None) -> int:
        size = len(payload or b"")
        return self.c.hushmote_agree(self.reporter, name.encode(), payload, c_size_t(size))

    def asking(self) -> dict[str, bytes]:
        """Return the payloads awaiting opt-in, by name."""
        waiting = {}
        for i, name in enumerate(self.board.policy["experiments"]):
            payload = ctypes.create_string_buffer(1093)
            if size := self.c.test_waiting(ctypes.byref(self.port), i, payload):
                waiting[name] = payload.raw[:size]
        return waiting

    def asking_groups(self) -> dict[str, str]:
        """Return the open groups of the experiments awaiting opt-in, by name; "" for no group."""
        self.c.test_waiting_group.restype = c_char_p
        names = self.board.policy["experiments"]
        return {
            name: self.c.test_waiting_group(ctypes.byref(self.port), names.index(name)).decode()
            for name in self.asking()
        }

    def acknowledged(self, number: int) -> None:
        self.c.hushmote_reporter_acknowledged(self.reporter, c_long(number))

    def report(self, name: str = "e", value: Any = True, group: str | None = None) -> int:
        out = ctypes.create_string_buffer(REPORT_BYTES)
        reading = self.board.reading(value)
        call = self.c.hushmote_reporter_report if group is None else self.c.hushmote_reporter_report_as
        call.argtypes = [c_void_p, c_char_p, type(reading), *[c_char_p] * (1 if group is None else 2)]
        return call(self.reporter, name.encode(), reading, *([] if group is None else [group.encode()]), out)

    def published(self, ms: int = 0) -> list[tuple[int, bytes]]:
        return [call[1:] for call in self.tick(ms) if call[0] == "report"]
