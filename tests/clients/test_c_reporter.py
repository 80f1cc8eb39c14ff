"""The C client's reporter with a broker and a clock in Python: what it sends, when, and when nothing."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_long, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import pytest
from boards import SIGNING
from c_client import CBoard, Source, pointer
from c_core import needs_gcc
from enumeration import POLICY, MemoryStorage
from experiments import experiment_json, number_json

from hushmote.device.kept_experiments import KeptExperiments
from hushmote.device.ldp_client import Client
from hushmote.server.wire import keys

pytestmark = needs_gcc

CONNECT = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
SUBSCRIBE = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p)
PUBLISH = ctypes.CFUNCTYPE(c_long, c_void_p, c_char_p, c_void_p, c_size_t, ctypes.c_bool)
DISCONNECT = ctypes.CFUNCTYPE(None, c_void_p)
READ_KEPT = ctypes.CFUNCTYPE(c_long, c_void_p, c_char_p, c_void_p, c_size_t)
WRITE_KEPT = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
VERIFY = ctypes.CFUNCTYPE(ctypes.c_bool, c_void_p, c_void_p, c_void_p, c_void_p)
TIMES = {"delay": 0, "spread": 0, "backoff": 2000, "backoff_max": 60_000, "timeout": 30_000, "settle": 10_000}
STATUS = "hushmote/v1/home/status/board-1"
REPORT = "hushmote/v1/home/report/board-1"
TOPIC = "hushmote/v1/home/experiment/"
PAYLOAD = experiment_json(budget={"rule": "sum", "cap": 40_000_000})
ANNOUNCE = keys.public_key_bytes(SIGNING)


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
    )


class Board:
    """A C client with a reporter; happened: what it asked of the port, which forgot() empties."""

    def __init__(
        self, slots: Any = None, kept: Any = None, policy: Any = None, seed: int = 5, **settings: Any
    ):
        times = TIMES | {name: settings.pop(name) for name in TIMES if name in settings}
        storage = slots if hasattr(slots, "read") else MemoryStorage(slots)
        policy = policy or POLICY
        if not storage.slots:
            made = CBoard(policy, storage, entropy=Source(seed), begin=False)
            assert made.provision(consent=2) == 0
        self.board = CBoard(policy, storage, entropy=Source(seed + 1), fleet="home", begin=False, **settings)
        self.verified = 0
        if settings.get("announce_key"):
            self.verify = VERIFY(self._verify)
            self.board.config.verify = pointer(self.verify)
        assert self.board.c.hushmote_begin(self.board.client, self.board.config_pointer) == 0
        self.c, self.storage = self.board.c, storage
        self.kept: dict[str, bytes] = {} if kept is None else kept
        self.now, self.id = 2**32 - 5000, 0
        self.fails = self.mute = False
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

        def room(name: str, count: int = 1) -> Any:
            return (c_uint64 * (c_size_t.in_dll(self.c, name).value * count // 8 + 1))()

        self.reporter = room("test_reporter_bytes")
        self.topics = room("test_topic_bytes", len(policy["experiments"]))
        self.buffer = ctypes.create_string_buffer(1101)
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
        assert topic.decode() == STATUS
        self.happened.append(("connect", ctypes.string_at(will, size).decode()))
        return -1 if self.fails else 0

    def _subscribe(self, _context: Any, topic: bytes) -> int:
        self.happened.append(("subscribe", topic.decode()))
        return -1 if self.fails else 0

    def _publish(self, _context: Any, topic: bytes, payload: int, size: int, retain: bool) -> int:
        if self.mute:
            return -1
        self.id += 1
        found = ctypes.string_at(payload, size)
        if topic.decode() == STATUS:
            assert retain
            self.happened.append(("status", found.decode()))
        else:
            assert (topic.decode(), retain) == (REPORT, False)
            self.happened.append(("report", self.id, found))
        return self.id

    def _read_kept(self, _context: Any, name: bytes, data: int, size: int) -> int:
        found = self.kept.get(name.decode(), b"")
        ctypes.memmove(data, found, min(size, len(found)))
        return len(found)

    def _write_kept(self, _context: Any, name: bytes, data: int, size: int) -> int:
        if self.fails:
            return -1
        self.kept.pop(name.decode(), None)
        if size:
            self.kept[name.decode()] = ctypes.string_at(data, size)
        return 0

    def tick(self, ms: int = 0) -> list[tuple[Any, ...]]:
        """Let time pass; returns what happened meanwhile, and forgets it."""
        self.now += ms
        self.c.hushmote_reporter_tick(self.reporter, c_uint32(self.now & 0xFFFFFFFF))
        happened, self.happened = self.happened, []
        return happened

    def connected(self) -> list[tuple[Any, ...]]:
        """Connect, as soon as it wants to; returns what it does then."""
        for _ in range(100):
            if [what[0] for what in self.tick(1000)] == ["connect"]:
                break
        else:
            raise AssertionError("it does not connect")
        self.c.hushmote_reporter_connected(self.reporter)
        happened, self.happened = self.happened, []
        return happened + self.tick()

    def lost(self) -> None:
        self.c.hushmote_reporter_disconnected(self.reporter)

    def message(self, name: str, payload: bytes) -> None:
        topic = (TOPIC + name).encode()
        self.c.hushmote_reporter_message(self.reporter, topic, len(topic), payload or None, len(payload))

    def acknowledged(self, number: int) -> None:
        self.c.hushmote_reporter_acknowledged(self.reporter, c_long(number))

    def report(self, name: str = "e", value: Any = True) -> int:
        out = ctypes.create_string_buffer(20)
        call = self.c.hushmote_reporter_report
        call.argtypes = [c_void_p, c_char_p, type(self.board.reading(None)), c_char_p]
        return call(self.reporter, name.encode(), self.board.reading(value), out)

    def published(self, ms: int = 0) -> list[tuple[int, bytes]]:
        return [what[1:] for what in self.tick(ms) if what[0] == "report"]


def test_it_subscribes_to_the_policy_s_names_and_says_online():
    board = Board(kept={})
    assert board.connected() == [*(("subscribe", TOPIC + name) for name in "efg"), ("status", "online")]
    assert board.tick(1000) == []


def test_reports_go_out_oldest_first_few_at_a_time_and_again_with_the_same_bytes():
    board = Board()
    board.connected()
    board.message("e", PAYLOAD)
    board.message("f", number_json(300, name="f"))  # with a longer code
    made = [board.report("eeffefe"[i], None) for i in range(7)]
    outbox = board.board.outbox()
    assert made == [len(report) for report in outbox]
    first = board.published()
    assert [report for _, report in first] == outbox[:4]
    assert board.published(20_000) == []
    board.acknowledged(first[2][0])
    board.acknowledged(first[2][0])
    board.acknowledged(99)
    assert board.board.outbox() == outbox[:2] + outbox[3:]
    (fifth,) = board.published()
    assert fifth[1] == outbox[4]
    board.lost()
    assert board.published() == []
    # What was on its way goes again, as it was; what an old connection acknowledges late does not count.
    again = [what[1:] for what in board.connected() if what[0] == "report"]
    assert [report for _, report in again] == [*outbox[:2], *outbox[3:5]]
    board.acknowledged(first[0][0])
    assert board.published() == []
    for number, _ in again:
        board.acknowledged(number)
    rest = board.published()
    assert [report for _, report in rest] == outbox[5:]
    # A broker that owes an answer for too long is left.
    assert board.tick(29_999) == []
    assert board.tick(1) == [("disconnect",)]
    again = [what[1:] for what in board.connected() if what[0] == "report"]
    assert [report for _, report in again] == outbox[5:]
    for number, _ in again:
        board.acknowledged(number)
    assert (board.board.outbox(), board.published()) == ([], [])


def test_without_a_yes_it_does_nothing_and_a_no_ends_it():
    made = CBoard(POLICY, MemoryStorage(), entropy=Source(3), begin=False)
    made.provision()
    board = Board(made.storage.slots)
    for _ in range(50):
        assert board.tick(3_600_000) == []
    board.message("e", PAYLOAD)
    assert board.report() == 0
    board.board.consent = True
    board.connected()
    assert board.report() > 0
    assert len(board.published()) == 1
    board.board.consent = False
    assert board.tick() == [("status", "offline"), ("disconnect",)]
    for _ in range(50):
        assert board.tick(3_600_000) == []
        assert board.report() == 0
    board.board.consent = True
    assert [what for what in board.connected() if what[0] == "report"] == []
    # From the network: a no always, a yes where the policy says so.
    network = board.c.hushmote_consent_from_network
    assert network(board.board.client, True) == -17
    assert network(board.board.client, False) == 0
    assert board.tick()[-1] == ("disconnect",)
    assert network(board.board.client, True) == -17
    assert board.board.consent is False
    board.board.rules.consent_from_network = True
    assert network(board.board.client, True) == 0
    assert board.board.consent is True


def test_each_report_waits_for_a_random_time():
    board = Board(delay=30_000)
    board.connected()
    board.message("e", PAYLOAD)
    waits = []
    for _ in range(30):
        assert board.report() > 0
        waited = 0
        while not (sent := board.published(100)):
            waited += 100
        board.acknowledged(sent[0][0])
        waits.append(waited)
    assert max(waits) <= 30_000
    assert (
        len({wait // 3000 for wait in waits}) >= 4
    )  # 30 draws hit fewer of 10 parts less than once in 10^12


def test_attempts_to_connect_back_off_at_random_and_start_again_after_a_good_connection():
    waits: list[list[int]] = []
    for seed in (5, 6):
        board = Board(seed=seed, spread=8_000)
        board.fails = True
        waits.append([])
        waited = 0
        while len(waits[-1]) < 12:
            waited += 100
            if board.tick(100):
                waits[-1].append(waited)
                waited = 0
        assert waits[-1][0] <= 8_100
        assert all(wait <= min(2000 << i, 60_000) + 100 for i, wait in enumerate(waits[-1][1:]))
        assert max(waits[-1]) > 8_100
        board.fails = False
        board.connected()
        for _ in range(31):
            assert board.tick(1000) == []
        board.lost()
        assert any(board.tick(100) for _ in range(81))
        # Nobody answers the attempt.
        assert board.tick(29_000) == []
        assert board.tick(2000) == [("disconnect",)]
    assert waits[0] != waits[1]


def test_the_status_says_what_a_person_should_see_to():
    names = ("e", *(f"n{i}" for i in range(8)))
    board = Board(policy=POLICY | {"experiments": names})
    board.connected()
    one = experiment_json(budget={"rule": "sum", "cap": 1_000_000})
    board.message("e", one)
    assert board.tick() == []
    assert board.report(value="no bool") > 0
    assert board.tick()[0] == ("status", "online spent:e")
    for i in range(6):
        board.message(f"n{i}", b"{}")
    assert board.tick() == [("status", "online spent:e " + " ".join(f"refused:n{i}" for i in range(6)))]
    board.message("n6", b"{}")
    refused = " ".join(f"refused:n{i}" for i in range(5))
    assert board.tick() == [("status", f"online spent:e {refused} more")]
    board.message("n7", b"{}")
    assert board.tick() == []
    board.board.entropy.stuck = True
    assert board.report() == -2
    assert board.tick()[0][1].startswith("online fault spent:e refused:n0 ")
    board.board.entropy.stuck = False
    board.report()
    assert board.tick()[0][1].startswith("online spent:e ")
    board.lost()
    for _ in range(100):
        if happened := board.tick(1000):
            break
    assert happened[0][1].startswith("offline spent:e ")


def test_a_coin_that_was_tossed_ahead_makes_a_report_of_every_reading():
    board = Board()
    board.message("e", experiment_json(every=90, budget={"rule": "unlimited"}))
    for value in [True, "no bool", None] * 4:
        assert (board.board.gap(10_000)[1], board.report(value=value) > 0) == (["e"], True)


def full(slot: int, data: bytes) -> None:
    raise OSError(28)


def test_flash_that_fails_at_a_puback_is_tried_again_a_minute_later():
    board = Board()
    board.connected()
    board.message("e", PAYLOAD)
    board.report()
    board.report()
    sent = board.published()
    write, board.storage.write = board.storage.write, full
    board.acknowledged(sent[0][0])
    board.acknowledged(sent[1][0])
    assert len(board.board.outbox()) == 2
    assert board.tick(1000) == [("status", "online fault")]
    assert (board.report(), board.tick()) == (0, [])
    board.storage.write = write
    board.tick(50_000)
    assert len(board.board.outbox()) == 2
    board.lost()
    assert [what for what in board.connected() if what[0] == "report"] == []
    for _ in range(10):
        assert board.published(1000) == []
    assert board.board.outbox() == []
    assert board.tick(1000) == []


def signed(name: str, body: bytes, serial: int) -> bytes:
    return keys.sign_experiment(SIGNING, TOPIC + name, body, serial)


def test_what_the_broker_repeats_costs_no_signature_and_a_restart_knows_it():
    board = Board(announce_key=ANNOUNCE)
    board.connected()
    first, second, withdrawal = signed("e", PAYLOAD, 1), signed("e", PAYLOAD + b" ", 3), signed("e", b"", 4)
    wrong = first[:-1] + bytes([first[-1] ^ 1])
    for payload, verified, reports in (
        (wrong, 1, False),
        (first, 1, True),
        (first, 0, True),
        (wrong, 1, True),
        (second, 1, True),
        (first, 0, True),  # an old one
        (b"", 0, True),
        (withdrawal, 1, False),
        (withdrawal, 0, False),
        (second, 0, False),
        (signed("f", PAYLOAD, 9), 1, False),
    ):
        board.verified = 0
        board.message("e", payload)
        assert (board.verified, board.report() > 0) == (verified, reports), payload[:40]
        board.message("e", payload)
        assert board.verified == verified
        board = Board(board.storage, board.kept, announce_key=ANNOUNCE)
        assert (board.report() > 0, board.verified) == (reports, 0)
        board.connected()


def test_in_an_open_fleet_what_is_no_longer_there_is_withdrawn():
    board = Board()
    board.connected()
    board.message("e", PAYLOAD)
    board.message("f", experiment_json(name="e"))  # not its own topic
    assert board.board.status()["experiments"]["f"]["refused"] == "REFUSED"
    board.board.during = lambda where: board.message("f", experiment_json(name="f"))
    assert board.report() > 0  # and meanwhile nothing else, which is not remembered as refused
    board.board.during = lambda where: None
    board.message("f", experiment_json(name="f"))
    assert board.report("f") > 0
    board.tick(10_000)
    assert board.report() > 0
    board.lost()
    board.connected()
    board.tick(9_000)
    assert board.report() > 0
    board.tick(1_000)
    assert (board.report(), board.kept) == (0, {})
    board.message("e", PAYLOAD)
    assert board.report() > 0
    board.message("e", b"")
    assert (board.report(), board.kept) == (0, {})
    keyed = Board(announce_key=ANNOUNCE)
    for wrong in (b"", PAYLOAD):  # in a keyed fleet the one says nothing, and the other is unsigned
        keyed.connected()
        if not keyed.verified:
            keyed.message("e", signed("e", PAYLOAD, 1))
        assert keyed.tick(10_000) == []
        keyed.message("e", wrong)
        assert keyed.tick() == [("status", "online refused:e")]
        keyed.message("e", signed("e", PAYLOAD, 1))
        assert keyed.tick() == [("status", "online")]
        keyed.lost()
    assert keyed.report() > 0


@pytest.mark.parametrize("announce", [None, ANNOUNCE])
def test_kept_files_are_those_of_the_micropython_client(announce: bytes | None, tmp_path: Path):
    board = Board(announce_key=announce)
    board.connected()
    folder = tmp_path / "experiments"

    def other() -> tuple[Any, KeptExperiments]:
        storage: Any = board.storage
        client: Any = Client(POLICY, storage, device_id="board-1", announce_key=announce, fleet="home")
        return client, KeptExperiments(client, str(folder))

    _, theirs = other()
    payloads = [PAYLOAD, signed("e", PAYLOAD, 7)] + [signed("e", b"", 9)] * (announce is not None)
    for payload in payloads[announce is not None :]:
        board.message("e", payload)
        theirs.take("e", payload)
        assert board.kept == {"e": (folder / "e").read_bytes()}
        again = Board(board.storage, {"e": (folder / "e").read_bytes()}, announce_key=announce)
        client, kept = other()
        enrolled = again.board.status()["experiments"]["e"]["enrolled"]
        assert enrolled == (client.status()["experiments"]["e"]["left"] is not None)
        assert again.board.serial("e") == client.serials.get("e", 0)
        assert kept.known.keys() == ({"e"} if enrolled else set())
    # Another fleet's, damaged, cut: none is taken, and the broker's next is.
    whole = board.kept["e"]
    for wrong in (whole[:-1], whole[:9], b"", whole + b"\0", bytes([whole[0] ^ 1]) + whole[1:], bytes(1200)):
        again = Board(board.storage, {"e": wrong}, announce_key=announce)
        assert not again.board.status()["experiments"]["e"]["enrolled"]
        assert again.board.serial("e") == 0
    fails = Board(board.storage, announce_key=announce)
    fails.connected()
    fails.fails = True
    fails.message("e", payloads[1])
    assert fails.tick()[0][1] == "online fault"
    assert fails.report() > 0


def test_a_connection_that_takes_nothing_is_left():
    board = Board()
    board.message("e", PAYLOAD)
    board.c.hushmote_reporter_connected(board.reporter)  # which nobody asked for
    assert board.happened == []
    for fails, mute, happened in (
        (True, False, [("subscribe", TOPIC + "e"), ("disconnect",)]),
        (False, True, [*(("subscribe", TOPIC + name) for name in "efg"), ("disconnect",)]),
    ):
        while not board.tick(1000):
            pass
        board.fails, board.mute = fails, mute
        board.c.hushmote_reporter_connected(board.reporter)
        assert board.happened == happened
        board.happened.clear()
        board.fails = board.mute = False
    board.connected()
    # What cannot be published now is tried at the next step.
    board.mute = True
    board.report()
    board.message("f", b"{}")
    assert board.tick() == []
    board.mute = False
    assert [what[0] for what in board.tick()] == ["status", "report"]
    board.c.hushmote_reporter_close(board.reporter)
    assert board.happened == [("status", "offline refused:f"), ("disconnect",)]
    board.happened.clear()
    board.c.hushmote_reporter_close(board.reporter)
    board.lost()
    assert board.happened == []
    assert board.tick()[0][0] == "connect"


def test_another_client_on_its_ledger_is_a_word_of_its_status():
    board = Board()
    board.connected()
    board.message("e", experiment_json(budget={"rule": "sum", "cap": 1_000_000}))
    other = CBoard(POLICY, board.storage, entropy=Source(9))
    other.consent = True
    assert board.report() == 0
    assert board.tick() == [("status", "online locked fault")]


def test_it_begins_with_what_it_needs_and_may_keep_nothing():
    for field in ("connect", "subscribe", "publish", "disconnect", "read_kept", "write_kept"):
        board = Board()
        setattr(board.port, field, type(getattr(board.port, field))())
        assert board.begin() == -1
    assert board.begin(keeps=False) == 0
    board.connected()
    board.message("e", PAYLOAD)
    assert board.report() > 0
    assert board.kept == {}
    board.board.config.fleet = None
    assert board.begin(keeps=False) == -1
    board.board.config.fleet = b"home"
    board.board.entropy.stuck = True
    assert board.begin(keeps=False) == -2
    board.board.client = (c_uint64 * len(board.board.client))()  # one that did not begin
    assert board.begin(keeps=False) == -1
    assert board.c.hushmote_consent_from_network(board.board.client, True) == -17
    # What a smaller policy no longer allows is not taken from flash.
    large = Board()
    large.connected()
    large.message("e", experiment_json(epsilon=4_000_000))
    small = Board(large.storage, large.kept, POLICY | {"epsilon": 1_000_000})
    assert small.board.status()["experiments"]["e"]["refused"] == "REFUSED_POLICY"
    assert small.report() == 0
