"""The reporter on real MicroPython with the real umqtt.simple, a real mosquitto and the real aggregator.

It runs firmware_tests/reporter/*.py in a runtime with sockets that firmware_tests/runtimes.py finds or
installs.
"""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paho.mqtt.client as paho
import pytest
import reference_board as ref
import reference_log
from certificates import Authority
from enumeration import memory
from experiments import number_json
from micropython import find_runtime, load
from paho.mqtt.enums import CallbackAPIVersion
from retained_messages import (
    REFUSED_WORDS,
    WAITING,
    WAITING_NAMES,
    WAITING_POLICY,
    WAITING_REASONS,
    digests_in_force,
    digests_of,
)
from running_aggregator import WAIT_S, running, until
from scripted_broker import CONNECT, PUBLISH, SUBSCRIBE, ScriptedBroker, forbidding, polite
from scripted_broker import message as message_of
from tcp_proxy import Proxy

from hushmote.device import async_reporter, ldp_client, mqtt_reporter, reporter_base
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.fleet.provisioning import usb
from hushmote.server.store import Store
from hushmote.server.wire import keys, topics
from hushmote.simulator.broker import MosquittoBroker, free_port
from hushmote.simulator.nats_servers import NatsServers

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "firmware_tests" / "reporter"
RIGS = ROOT / "firmware_tests" / "emulation"
FLEET = "house"
DEVICE = "k3f9x1"
MASTER = bytes(range(32))
POLICY = {
    "sum": 40_000_000,
    "squares": 0,
    "epsilon": 2_000_000,
    "rules": ("sum", "count"),
    "experiments": ("room_temp", "door_open"),
}
SIGNING = bytes(31) + b"\x05"
LOG_KEYS = (0x1101, 0x2202, 0x3303)
LOG = {"origin": "example.org/questions", "keys": [ref.public_key(key).hex() for key in LOG_KEYS], "need": 2}
HANGS_MS = 60_000  # a board that takes longer is considered hung
# In tests that silence the broker, a response is overdue after a second; see Board.silence().
FAST = {"delay_s": 0, "spread_s": 1, "timeout_s": 60, "backoff_s": 1, "backoff_max_s": 1, "settle_s": 1}


def experiment(name: str = "room_temp", epsilon: int = 1_000_000) -> bytes:
    budget = {"rule": "sum", "cap": 30_000_000}
    return number_json(8, name=name, high=40_000, epsilon=epsilon, budget=budget, window="all")


_TOPIC = topics.experiment_topic(FLEET, "room_temp")
LOGGED = keys.sign_experiment(SIGNING, _TOPIC, experiment(epsilon=500_000), 1)
PROOF = reference_log.proof_of(str(LOG["origin"]), LOG_KEYS, (0, 1, 2), _TOPIC, LOGGED, 17, 1000)


@pytest.fixture(scope="module")
def runtime() -> tuple[str, ...]:
    return find_runtime()


@pytest.fixture(scope="module")
def umqtt() -> Path:
    return load(ROOT / "firmware_tests" / "emulation" / "get_umqtt.py").fetch(ROOT / ".rig" / "lib")


@pytest.fixture
def mosquitto():
    # The broker checks nothing, so the board has to cope.
    with MosquittoBroker(settings=("max_packet_size 268435455",)) as broker:
        yield broker


class Watcher:
    """A paho client that publishes experiments and receives reports and statuses, below a topic prefix."""

    def __init__(self, port: int, prefix: str = "") -> None:
        self._prefix = prefix
        self.reports: list[bytes] = []
        self.statuses: list[bytes] = []
        self._client = paho.Client(CallbackAPIVersion.VERSION2)
        self._client.on_connect = self._subscribe
        self._client.on_message = self._take
        self._client.reconnect_delay_set(0.1, 0.2)  # pyright: ignore[reportArgumentType]
        subscribed = threading.Event()
        self._client.on_subscribe = lambda *_: subscribed.set()
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        assert subscribed.wait(WAIT_S)

    def _subscribe(self, client: Any, *_: Any) -> None:
        client.subscribe(
            [(f"{self._prefix}hushmote/v1/{FLEET}/{kind}/+", 1) for kind in ("report", "status")]
        )

    def _take(self, _client: Any, _data: Any, message: Any) -> None:
        if "/report/" in message.topic:
            assert message.topic == self._prefix + topics.report_topic(FLEET, DEVICE)
            self.reports.append(message.payload)
        else:
            self.statuses.append(message.payload)

    def publish(self, name: str, payload: bytes, kind: str = "experiment") -> None:
        until(self._client.is_connected, "the watcher reconnects to the restarted broker")
        topic = f"{self._prefix}hushmote/v1/{FLEET}/{kind}/{name}"
        info = self._client.publish(topic, payload, 1, True)
        info.wait_for_publish(WAIT_S)
        assert info.is_published()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def watcher(mosquitto: MosquittoBroker):
    client = Watcher(mosquitto.port)
    yield client
    client.close()


@pytest.fixture
def proxy(mosquitto: MosquittoBroker):
    between = Proxy(mosquitto.port)
    yield between
    between.close()


class Board:
    """A MicroPython process with client and reporter, in which ask() runs a command from board.py."""

    def __init__(self, runtime: tuple[str, ...], umqtt: Path, port: int, **settings: Any) -> None:
        modules = f"{umqtt}{os.pathsep}{ROOT / 'device'}"
        self._process = subprocess.Popen(
            [*runtime, str(SCRIPTS / "board.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={
                **os.environ,
                "MICROPYPATH": f"{modules}{os.pathsep}.frozen",
                "PYTHONPATH": modules,
                "PYTHONUNBUFFERED": "1",
            },
        )
        self.waits = settings.get("kind") != "asyncio"  # whether a silent broker may hold a poll up
        # A board that hangs must not hang the suite.
        self._watchdog = threading.Timer(300, self._process.kill)
        self._watchdog.start()
        fast = FAST | settings.pop("reporter", {})
        all_settings = {"host": "127.0.0.1", "port": port, "device": DEVICE, "fleet": FLEET, "policy": POLICY}
        self._write(all_settings | {"reporter": fast} | settings)
        assert self._read() == "ready"

    def _write(self, what: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the board's process ended"
        return json.loads(line)

    def tell(self, command: str, *arguments: Any) -> None:
        self._write([command, *arguments])

    def ask(self, command: str, *arguments: Any) -> Any:
        self.tell(command, *arguments)
        answer = self._read()
        assert not (isinstance(answer, dict) and "raised" in answer), answer
        return answer

    def reach(self, what: str, value: Any, ms: int = HANGS_MS) -> int:
        """Poll until board.py's <what>() returns the value; return the longest poll in ms."""
        reached, longest = self.ask("until", what, value, ms)
        assert reached, f"{what} is {self.ask(what)}, not {value}; {self.ask('status')}"
        return longest

    def silence(self, proxy: Proxy, *ways: str) -> None:
        """Silence the proxy, with responses overdue after a second; without `ways`, let it work again."""
        self.ask("timeout", 1000 if ways else 60_000)
        proxy.silence(*ways)

    def kill(self) -> None:
        self._watchdog.cancel()
        self._process.kill()
        self._process.communicate()


def starting(runtime: tuple[str, ...], modules: Path, **always: Any):
    boards: list[Board] = []

    def start(port: int, **settings: Any) -> Board:
        boards.append(Board(runtime, modules, port, **always | settings))
        return boards[-1]

    yield start
    for board in boards:
        board.kill()


@pytest.fixture
def start_board(runtime: tuple[str, ...], umqtt: Path):
    yield from starting(runtime, umqtt)


KINDS = ("umqtt.simple 1.3.4", "bundled umqtt.simple", "asyncio", "asyncio on CPython")
every_kind = pytest.mark.parametrize("start_any", KINDS, indirect=True)
each_reporter = [kind if kind in KINDS[1:3] else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS]


@pytest.fixture(params=each_reporter)
def start_any(request: pytest.FixtureRequest, runtime: tuple[str, ...], umqtt: Path):
    """Provide each reporter, with every supported client if sockets matter and in `make long`.

    All must behave alike in an outage.
    """
    yield from {
        "umqtt.simple 1.3.4": lambda: starting(runtime, umqtt),
        "bundled umqtt.simple": lambda: starting(runtime, ROOT / "device"),
        "asyncio": lambda: starting(runtime, load(RIGS / "get_asyncio.py").fetch(), kind="asyncio"),
        "asyncio on CPython": lambda: starting((sys.executable,), ROOT / "device", kind="asyncio"),
    }[request.param]()


@pytest.fixture
def board(watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any) -> Board:
    """Provide a connected board that participates in room_temp."""
    watcher.publish("room_temp", experiment())
    started = start_any(mosquitto.port)
    started.reach("state", "reporting")
    started.reach("connected", True)
    return started


class Counting:
    """The reports that an aggregator has counted for one keyed fleet."""

    def __init__(self, store: Store) -> None:
        self.store = store
        store.add_fleet(FLEET, keyed=True)
        self.digest = store.add_experiment(FLEET, experiment()).digest

    def count(self) -> int:
        return int(self.store.histogram(FLEET, self.digest).sum())


FLEET_KEYS = keys.FleetKeys((MASTER,), MASTER)


@pytest.fixture
def aggregator(mosquitto: MosquittoBroker, tmp_path: Path):
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
        counting = Counting(store)
        with running(store, mosquitto, fleets=[FLEET], fleet_keys=FLEET_KEYS, batch_s=0.05):
            yield counting


def keyed() -> dict[str, Any]:
    return {"key": list(keys.device_key(MASTER, FLEET, DEVICE))}


def assert_blocked_for_timeout(board: Board, fed: int) -> None:
    """Check by events, without a clock, that an overdue response blocked the board for its 1 s timeout.

    umqtt.simple waits in slices of at most a second and feeds the watchdog before each; on asyncio, other
    tasks continue.
    """
    turns = board.ask("feeds") - fed
    assert 1 < turns <= 6 if board.waits else turns > 3


@pytest.fixture
def tls_port(tmp_path: Path):
    """Return a broker's TLS and plain ports."""
    certificate, key = Authority(tmp_path).sign("127.0.0.1", "127.0.0.1")
    port = free_port()
    tls = (f"certfile {certificate}", f"keyfile {key}")
    lines = (f"listener {port} 127.0.0.1", "allow_anonymous true", *tls)
    with MosquittoBroker(settings=lines) as broker:
        yield port, broker.port


class TestConnection:
    @every_kind
    def test_counts_resent_report_once_and_notices_dead_idle_link(
        self, mosquitto: MosquittoBroker, aggregator: Counting, watcher: Watcher, proxy: Proxy, start_any: Any
    ) -> None:
        board = start_any(proxy.port, **keyed())
        board.reach("state", "reporting")
        first = board.ask("report", "room_temp", 21.4)
        assert first is not None
        board.reach("pending", 0)
        until(lambda: aggregator.count() == 1, "the first report is counted")

        board.silence(proxy, "down")  # the broker gets the next report, but its acknowledgement is lost
        second = board.ask("report", "room_temp", 30.0)
        third = board.ask("report", "room_temp", 3.0)
        board.reach("connected", False)
        assert board.ask("outbox") == [second, third]
        assert "the broker did not answer in time" in board.ask("status")
        until(lambda: aggregator.count() == 2, "the second report is counted")

        board.silence(proxy)
        board.reach("pending", 0)
        until(lambda: aggregator.count() == 3, "the third report is counted")
        assert [r.hex() for r in watcher.reports] == [first, second, second, third]
        assert board.ask("spent") == 3_000_000
        assert aggregator.store.rejects() == {FLEET: {"duplicate": 1}}

        for _ in range(2):
            board.ask("pass_ms", 31_000)  # a ping is due after half of keepalive_s
            board.ask("poll", 200)
        assert board.ask("connected")
        assert board.ask("connects") == 2
        board.silence(proxy, "up", "down")
        board.ask("pass_ms", 31_000)
        board.reach("connected", False)
        assert "the broker did not answer in time" in board.ask("status")

    @every_kind
    def test_restarted_broker_gets_outbox_and_subscriptions(
        self, mosquitto: MosquittoBroker, aggregator: Counting, watcher: Watcher, start_any: Any
    ) -> None:
        board = start_any(mosquitto.port, **keyed())
        board.reach("state", "reporting")
        assert board.ask("report", "room_temp", 21.4) is not None
        board.reach("pending", 0)
        mosquitto.terminate()
        board.reach("connected", False)
        reports = []
        for value in (None, 5, 39.9, -1, *range(12)):
            reports.append(board.ask("report", "room_temp", value))
            board.ask("poll", 10)
        board.reach("error", "nothing listens at the broker's address and port")
        assert [board.ask("report", "room_temp", 21.4) for _ in range(2)] == [None, None], (
            "the outbox must be full"
        )
        assert board.ask("outbox") == reports
        assert "16 waiting; nothing listens at the broker's address and port" in board.ask("status")
        mosquitto.start()
        board.reach("pending", 0)
        until(lambda: aggregator.count() == 17, "all reports are counted")
        assert board.ask("connects") == 2
        assert board.ask("spent") == 17_000_000
        assert board.ask("state", "room_temp") == "reporting"
        watcher.publish("door_open", experiment("door_open"))
        board.reach("states", ["reporting", "reporting"])

    @every_kind
    def test_blocks_for_at_most_timeout_while_half_open(
        self, watcher: Watcher, proxy: Proxy, start_any: Any
    ) -> None:
        watcher.publish("room_temp", experiment())
        board = start_any(proxy.port, busy=True)
        board.reach("state", "reporting")
        board.reach("connected", True)
        board.silence(proxy, "up", "down")
        report = board.ask("report", "room_temp", 21.4)
        fed = board.ask("feeds")
        board.reach("connected", False)
        assert_blocked_for_timeout(board, fed)
        board.ask("timeout", 200)
        # While the proxy takes connections and no more, every attempt ends too: umqtt.simple alone would wait
        # for CONNACK for ever.
        board.reach("lost", 2)
        assert board.ask("connects") == 1
        assert board.ask("outbox") == [report]
        board.silence(proxy)
        board.reach("pending", 0)
        until(lambda: [r.hex() for r in watcher.reports] == [report], "the watcher receives it")

    @pytest.mark.parametrize("start_any", KINDS[:2], indirect=True)  # on asyncio, applications feed it
    def test_feeds_watchdog_during_every_wait(self, watcher: Watcher, proxy: Proxy, start_any: Any) -> None:
        watcher.publish("room_temp", experiment())
        board = start_any(proxy.port)
        board.reach("state", "reporting")
        board.silence(proxy, "up", "down")
        board.ask("timeout", 2500)
        board.ask("report", "room_temp", 21.4)
        for losses in (1, 2):  # neither PUBACK comes nor, then, CONNACK
            board.ask("slices")
            board.reach("lost", losses)
            fed, asked_ms = zip(*board.ask("slices"), strict=True)
            assert max(asked_ms) == 1000
            assert len(set(fed)) == len(fed), "the watchdog must be fed before each wait"

    @pytest.mark.parametrize("start_any", ["asyncio"], indirect=True)
    def test_keeps_bytes_read_as_wait_ends(self, start_any: Any) -> None:
        assert start_any(free_port()).ask("slow_read") == [None, 0xD0]

    def test_passes_timeout_to_clients_that_accept_it(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_board: Any
    ) -> None:
        watcher.publish("room_temp", experiment())
        board = start_board(mosquitto.port, kind="timeout")
        board.reach("state", "reporting")
        assert board.ask("seen_timeout") == FAST["timeout_s"]
        assert board.ask("report", "room_temp", 1) is not None
        board.reach("pending", 0)

    @pytest.mark.parametrize(
        "how", [{"kind": "tls"}, {"kind": "asyncio", "tls": True}], ids=["umqtt", "asyncio"]
    )
    def test_tls_works_with_the_same_timeouts(
        self, how: dict[str, Any], umqtt: Path, tls_port: tuple[int, int]
    ) -> None:
        runtime = find_runtime("tls")
        port, plain = tls_port
        watcher = Watcher(plain)
        watcher.publish("room_temp", experiment())
        proxy = Proxy(port)
        board = Board(runtime, umqtt, proxy.port, **how)
        try:
            board.reach("state", "reporting")
            board.reach("connected", True)
            reports = [board.ask("report", "room_temp", i) for i in range(3)]
            board.reach("pending", 0)
            board.silence(proxy, "down")
            reports.append(board.ask("report", "room_temp", 3))
            board.reach("connected", False)
            board.reach("lost", 2)  # the handshake times out too
            board.silence(proxy)
            board.reach("pending", 0)
            assert board.ask("connects") == 2
            until(lambda: len(watcher.reports) == 5, "all reports")
            assert [r.hex() for r in watcher.reports] == reports[:3] + [reports[3]] * 2
        finally:
            board.kill()
            proxy.close()
            watcher.close()


class TestNats:
    @pytest.mark.long
    def test_needs_no_other_settings_on_boards(self, start_board: Any, tmp_path: Path) -> None:
        with (
            Store(f"sqlite:///{tmp_path}/store.sqlite") as store,
            NatsServers() as servers,
            contextlib.ExitStack() as stack,
        ):
            count = Counting(store).count
            stack.enter_context(running(store, servers, fleets=[FLEET], fleet_keys=FLEET_KEYS, again_s=2.0))
            watcher = Watcher(servers.nodes[2].mqtt)
            board = start_board(servers.port, **keyed(), folder=str(tmp_path / "ldp"))
            board.reach("state", "reporting")  # retained messages arrive
            until(lambda: watcher.statuses[-1:] == [b"online"], "online")
            reports = [board.ask("report", "room_temp", value) for value in (21.4, None, 3)]
            board.reach("pending", 0)
            until(lambda: count() == 3, "three reports are counted")

            servers.terminate(0)
            board.reach("connected", False)
            reports += [board.ask("report", "room_temp", value) for value in (5, 39.9)]
            assert board.ask("outbox") == reports[3:]
            board.reach("error", "nothing listens at the broker's address and port")
            servers.start_node(0)
            servers.wait()
            board.reach("pending", 0)
            until(lambda: count() == 5, "the queued reports are counted")
            assert store.rejects().get(FLEET, {}).keys() <= {"duplicate"}
            store.add_experiment(FLEET, experiment("door_open"))
            board.reach("states", ["reporting", "reporting"])  # experiments announced while connected
            board.kill()
            until(lambda: watcher.statuses[-1:] == [b"offline"], "offline, published by the last will")

            asleep = start_board(servers.nodes[1].mqtt, **keyed(), folder=str(tmp_path / "ldp"), again=True)
            assert asleep.ask("flush", HANGS_MS, {"room_temp": 21.4})[
                0
            ]  # a sleeping board does everything in one call
            until(lambda: count() == 6, "the report of a wake-up is counted")
            until(lambda: watcher.statuses[-2:] == [b"online", b"offline"], "both statuses")
            assert {r.hex() for r in watcher.reports} >= set(reports)
            watcher.close()


def wait_for_status(board: Board, watcher: Watcher, status: bytes) -> None:
    """Poll until the status topic has this value."""

    def is_it() -> bool:
        board.ask("poll", 10)
        return watcher.statuses[-1:] == [status]

    until(is_it, lambda: f"{status!r}, not {watcher.statuses}, {board.ask('status')}")


class TestStatus:
    def test_shows_refused_experiments_while_connected(self, watcher: Watcher, board: Board) -> None:
        cases = {
            "epsilon is above the policy's 2000000": experiment("door_open", 3_000_000),
            "its name is room_temp": experiment("room_temp", 2_000_000),
            "v is missing": b"{}",
            "1024": b" " * 300_000,  # more than a board's memory
        }
        for reason, payload in cases.items():
            watcher.publish("door_open", payload)

            def refuses(reason: str = reason) -> bool:
                board.ask("poll", 20)
                return reason in board.ask("refused").get("door_open", "")

            until(refuses, lambda: board.ask("status"))
            assert "door_open refused: " in board.ask("status")
            assert board.ask("states") == ["refused", "reporting"]
        assert board.ask("report", "room_temp", 20) is not None
        board.reach("pending", 0)  # acknowledged after the 300,000 bytes, so none of them is overdue
        board.ask("pass_ms", 61_000)
        board.ask("poll", 1200)
        assert board.ask("lost") == 0
        assert board.ask("spent") == 1_000_000  # not 2_000_000, from the experiment on the wrong topic
        assert board.ask("report", "door_open", 1) is None
        watcher.publish("door_open", experiment("door_open"))
        board.reach("states", ["reporting", "reporting"])
        assert board.ask("refused") == {}
        assert board.ask("report", "door_open", 1) is not None
        watcher.publish("door_open", b"")
        board.reach("states", ["absent", "reporting"])
        assert board.ask("report", "door_open", 1) is None
        board.reach("pending", 0)
        assert board.ask("spent") == 2_000_000

    def test_shows_online_offline_and_locked(
        self, watcher: Watcher, mosquitto: MosquittoBroker, board: Board
    ) -> None:
        wait_for_status(board, watcher, b"online")
        board.ask("close")
        until(lambda: watcher.statuses == [b"online", b"offline"], "offline, published by the board")
        board.reach("connected", True)
        wait_for_status(board, watcher, b"online")
        board.ask("overwrite")
        assert board.ask("report", "room_temp", 1) is None
        wait_for_status(board, watcher, b"online locked fault")
        board.kill()
        until(lambda: watcher.statuses[-1:] == [b"offline"], "offline, published by the last will")
        late = Watcher(mosquitto.port)
        until(lambda: late.statuses == [b"offline"], "it is retained")
        late.close()

    def test_marks_only_the_experiment_whose_budget_is_spent(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any
    ) -> None:
        watcher.publish("room_temp", experiment(epsilon=2_000_000))
        # More than the policy allows.
        watcher.publish("door_open", experiment("door_open", epsilon=3_000_000))
        board = start_any(mosquitto.port)
        board.reach("states", ["refused", "reporting"])
        board.reach("connected", True)
        wait_for_status(board, watcher, b"online refused:door_open")
        for _ in range(15):  # 15 x 2 = 30, the cap
            assert board.ask("report", "room_temp", 21.4) is not None
            board.reach("pending", 0)
        assert board.ask("report", "room_temp", 21.4) is None
        wait_for_status(board, watcher, b"online refused:door_open spent:room_temp")
        board.ask("close")
        until(lambda: watcher.statuses[-1] == b"offline refused:door_open spent:room_temp", "asleep")
        board.reach("connected", True)
        watcher.publish("door_open", experiment("door_open"))
        board.reach("states", ["reporting", "spent"])
        assert board.ask("report", "door_open", 1) is not None
        board.reach("pending", 0)
        until(lambda: len(watcher.reports) == 16, "all reports")
        board.kill()
        until(lambda: watcher.statuses[-1].startswith(b"offline refused"), "the last will has it as well")


class TestBrokers:
    @pytest.mark.long
    @pytest.mark.parametrize("start_any", ["bundled umqtt.simple", "asyncio"], indirect=True)
    def test_switches_brokers_when_one_is_dead(self, start_any: Any) -> None:
        with NatsServers(3) as cluster:
            watcher = Watcher(cluster.nodes[2].mqtt)
            watcher.publish("room_temp", experiment())
            first, second = cluster.nodes[:2]
            nobody = free_port()
            host = f"127.0.0.1:{first.mqtt},127.0.0.1,127.0.0.1:{second.mqtt}"
            # Servers that have lost their leader elect another before they answer.
            board = start_any(nobody, host=host, reporter={"timeout_s": 10})
            # A server that missed a retained message as it started delivers it only after it is published
            # again.
            while not board.ask("until", "state", "reporting", 10_000)[0]:
                watcher.publish("room_temp", experiment())
            cluster.kill(0)  # whichever of the two the board is on, it ends on the other
            reports = [board.ask("report", "room_temp", 21.4)]
            board.reach("pending", 0)
            cluster.start_node(0)
            cluster.wait()
            cluster.kill(1)
            reports.append(board.ask("report", "room_temp", 25.0))
            board.reach("pending", 0)
            until(lambda: len(set(watcher.reports)) == 2, "both reports")
            assert sorted({r.hex() for r in watcher.reports}) == sorted(reports)
            watcher.close()

    def test_flush_tries_every_broker_in_a_call(
        self, watcher: Watcher, mosquitto: MosquittoBroker, proxy: Proxy, start_board: Any
    ) -> None:
        watcher.publish("room_temp", experiment())
        proxy.silence("up", "down")  # one broker accepts connections and stays silent, one is absent
        host = f"127.0.0.1:{proxy.port},127.0.0.1,127.0.0.1:{mosquitto.port}"
        # Only the silent broker reaches its timeout, because the board's clock runs ahead when it is polled.
        patient = {"silent": proxy.port, "reporter": {"timeout_s": 100}}
        board = start_board(free_port(), host=host, **patient)
        for number in range(1, 5):
            assert board.ask("flush", 10 * HANGS_MS, {"room_temp": 21.4})[0], board.ask("status")
            assert board.ask("spent") == number * 1_000_000, "a second attempt must not spend again"
        until(lambda: len(watcher.reports) == 4, "the reports")
        board.kill()

        nobody = f"127.0.0.1,127.0.0.1:{proxy.port}"
        board = start_board(free_port(), host=nobody, reporter={"timeout_s": 1})
        assert board.ask("flush", 1500, {"room_temp": 21.4})[0]

    @every_kind
    @pytest.mark.parametrize("host", ["::1", "[::1]:{port}"])
    def test_may_have_an_ipv6_address(self, start_any: Any, host: str) -> None:
        port = free_port()
        lines = (f"listener {port} ::1", "allow_anonymous true")
        with MosquittoBroker(settings=lines) as broker, contextlib.closing(Watcher(broker.port)) as watcher:
            watcher.publish("room_temp", experiment())
            board = start_any(port, host=host.format(port=port))
            board.reach("state", "reporting")
            report = board.ask("report", "room_temp", 21.4)
            board.reach("pending", 0)
            until(lambda: [sent.hex() for sent in watcher.reports] == [report], lambda: watcher.reports)

    @every_kind
    def test_may_have_a_topic_prefix(self, mosquitto: MosquittoBroker, start_any: Any) -> None:
        with contextlib.closing(Watcher(mosquitto.port, "tenants/acme/")) as watcher:
            watcher.publish("room_temp", experiment())
            board = start_any(mosquitto.port, reporter={"topic_prefix": "tenants/acme"})
            board.reach("state", "reporting")
            report = board.ask("report", "room_temp", 21.4)
            board.reach("pending", 0)
            until(lambda: [sent.hex() for sent in watcher.reports] == [report], lambda: watcher.reports)
            until(lambda: watcher.statuses, "the status")

    def test_order_starts_anywhere_and_goes_either_way(self) -> None:
        # With 400 draws, one of ten orders is missing with a probability below 10 (9/10)**400 < 6e-18.
        orders = set()
        for _ in range(400):
            brokers = reporter_base.Brokers("a,b:1884,fe80::1,[fd00::5],[fd00::5]:1885", 1883)
            orders.add(tuple(brokers.next() for _ in range(5)))
        assert len(orders) == 10
        assert {order[0] for order in orders} == {
            ("a", 1883),
            ("b", 1884),
            ("fe80::1", 1883),
            ("fd00::5", 1883),
            ("fd00::5", 1885),
        }
        assert all(len(set(order)) == 5 for order in orders)
        alone = reporter_base.Brokers("broker.example", 8883)
        assert [alone.next(), alone.next()] == [("broker.example", 8883)] * 2

    @pytest.mark.parametrize("text", ["", "a,,b", "a:x", ":1883", "a,b:", "[::1", "[::1]x", "[]:1"])
    def test_rejects_invalid_addresses(self, text: str) -> None:
        with pytest.raises(ldp_client.SettingsError, match="write brokers as host or host:port"):
            reporter_base.Brokers(text, 1883)


class TestSleepingBoard:
    def test_flush_does_everything_and_keeps_unsent_reports(
        self, watcher: Watcher, mosquitto: MosquittoBroker, proxy: Proxy, start_board: Any, tmp_path: Path
    ) -> None:
        watcher.publish("room_temp", experiment())
        settings = {"folder": str(tmp_path / "ldp")}
        board = start_board(proxy.port, **settings)
        assert board.ask("flush", HANGS_MS, {"room_temp": 21.4})[0]
        until(lambda: len(watcher.reports) == 1, "the report")
        until(lambda: watcher.statuses == [b"offline"], "the status, after the report")
        board.reach("connected", True)
        board.silence(proxy, "up", "down")
        assert not board.ask("flush", 2000, {"room_temp": 21.4})[0]
        board.kill()

        # It wakes up without a broker and uses its stored experiment.
        board = start_board(free_port(), again=True, **settings)
        assert not board.ask("flush", HANGS_MS, {"room_temp": 21.4})[0]
        assert "nothing listens at the broker's address and port" in board.ask("status")
        assert board.ask("spent") == 3_000_000
        outbox = board.ask("outbox")
        assert len(outbox) == 2
        board.kill()

        board = start_board(mosquitto.port, again=True, **settings)
        assert board.ask("flush", HANGS_MS, {"room_temp": 1})[0]
        until(lambda: len(watcher.reports) == 4, "all reports")
        assert [r.hex() for r in watcher.reports[1:3]] == outbox
        assert board.ask("spent") == 4_000_000

    @pytest.mark.parametrize(
        ("is_keyed", "withdraws", "state"),
        [(False, False, "absent"), (True, True, "absent"), (True, False, "reporting")],
        ids=["open", "keyed", "keyed but cleared"],
    )
    def test_flush_honors_withdrawal_while_asleep(
        self,
        watcher: Watcher,
        mosquitto: MosquittoBroker,
        start_board: Any,
        tmp_path: Path,
        is_keyed: bool,
        withdraws: bool,
        state: str,
    ) -> None:
        settings: dict[str, Any] = {"folder": str(tmp_path / "ldp")}
        if is_keyed:
            settings["announce_key"] = list(keys.public_key_bytes(SIGNING))
        names = ["room_temp", "door_open"]
        for name in names:
            watcher.publish(name, signed(name, 5) if is_keyed else experiment(name))
        board = start_board(mosquitto.port, **settings)
        assert board.ask("flush", HANGS_MS, dict.fromkeys(names, 1))[0]
        assert board.ask("states") == ["reporting", "reporting"]
        board.kill()
        topic = topics.experiment_topic(FLEET, "room_temp")
        watcher.publish("room_temp", keys.sign_experiment(SIGNING, topic, b"", 6) if withdraws else b"")
        board = start_board(mosquitto.port, again=True, **settings)
        assert board.ask("flush", HANGS_MS, dict.fromkeys(names, 1))[0]
        assert board.ask("states") == ["reporting", state]
        count = 4 - (state == "absent")
        assert board.ask("spent") == count * 1_000_000
        until(lambda: len(watcher.reports) == count, "the reports")

    def test_flush_does_not_limit_later_polls(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_board: Any
    ) -> None:
        watcher.publish("room_temp", experiment())
        board = start_board(mosquitto.port)
        assert board.ask("flush", HANGS_MS, {})[0]
        board.ask("pass_ms", HANGS_MS)
        board.reach("connected", True)
        assert board.ask("report", "room_temp", 21.4) is not None
        board.reach("pending", 0, 20_000)
        assert board.ask("connects") == 2

    def test_reports_without_broker_from_kept_experiments(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any, tmp_path: Path
    ) -> None:
        watcher.publish("room_temp", experiment())
        settings = {"folder": str(tmp_path / "ldp")}
        board = start_any(mosquitto.port, **settings)
        board.reach("state", "reporting")
        board.reach("connected", True)
        board.kill()
        mosquitto.terminate()
        board = start_any(mosquitto.port, again=True, **settings)
        report = board.ask("report", "room_temp", 21.4)
        assert report is not None
        mosquitto.start()
        late = Watcher(mosquitto.port)
        board.reach("pending", 0)
        until(lambda: [r.hex() for r in late.reports] == [report], "the report")
        board.kill()
        late.publish("room_temp", b"")  # withdrawn while the board is disconnected
        board = start_any(mosquitto.port, again=True, **settings)
        assert board.ask("state") == "reporting"
        board.reach("state", "absent")
        board.kill()
        board = start_any(mosquitto.port, again=True, **settings)
        assert board.ask("state") == "absent"
        late.close()


class TestWaitingMessages:
    @pytest.mark.parametrize(
        ("start_any", "wake_up"),
        [("bundled umqtt.simple", "poll"), ("bundled umqtt.simple", "flush"), ("asyncio", "poll")],
        indirect=["start_any"],
    )
    def test_decide_what_the_board_answers(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any, tmp_path: Path, wake_up: str
    ) -> None:
        settings = {"folder": str(tmp_path / "ldp"), "policy": WAITING_POLICY}
        earlier = [case.name for case in WAITING if case.before is not None]
        for case in WAITING:
            watcher.publish(case.name, case.before or b"")
        board = start_any(mosquitto.port, **settings)
        board.reach("states", ["reporting" if name in earlier else "absent" for name in WAITING_NAMES])
        assert all(board.ask("report", name, True) for name in earlier)
        board.reach("pending", 0)
        until(lambda: len(watcher.reports) == len(earlier), "the earlier reports")
        board.kill()
        until(lambda: watcher.statuses[-1:] == [b"offline"], "its last will")

        for case in WAITING:
            watcher.publish(case.name, case.message)
        board = start_any(mosquitto.port, again=True, **settings)
        if wake_up == "flush":
            assert board.ask("flush", HANGS_MS, dict.fromkeys(WAITING_NAMES, True))[0]
            assert board.ask("refused") == WAITING_REASONS
            state = "offline"
        else:
            board.reach("connected", True)
            board.ask("pass_ms", FAST["settle_s"] * 1000)
            board.reach("refused", WAITING_REASONS)
            for name in WAITING_NAMES:
                board.ask("report", name, True)
            board.reach("pending", 0)
            state = "online"
        count = len(earlier) + board.ask("sent")
        until(lambda: len(watcher.reports) == count, "the reports")
        assert digests_of(watcher.reports[len(earlier) :]) == digests_in_force()
        until(lambda: watcher.statuses[-1].startswith(state.encode()), state)
        assert watcher.statuses[-1].decode() == state + REFUSED_WORDS


def opens_no_connection(board: Board, watcher: Watcher) -> None:
    """Check that the board opens no connection for any experiment until someone opts in."""
    assert board.ask("report", "room_temp", 1) is None
    board.ask("pass_ms", 3_600_000)
    board.ask("poll", 200)
    if board.waits:  # umqtt.simple's reporter
        assert board.ask("flush", 2000, {"room_temp": 1})[0]
    assert (board.ask("connected"), board.ask("connects"), board.ask("error")) == (False, 0, None)
    assert board.ask("status").startswith("silent: nobody said yes yet")
    assert watcher.reports == []


class TestConsent:
    def test_connects_only_after_opt_in_and_opt_out_sends_offline(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any
    ) -> None:
        watcher.publish("room_temp", experiment())
        board = start_any(mosquitto.port, asks=True)
        opens_no_connection(board, watcher)
        assert "locked" not in board.ask("status")
        board.ask("consent", True)
        board.reach("state", "reporting")
        assert board.ask("report", "room_temp", 1) is not None
        board.reach("pending", 0)
        until(lambda: len(watcher.reports) == 1, "the first report")

        assert board.ask("report", "room_temp", 1) is not None  # it is sent by the next poll
        board.ask("consent", False)
        assert board.ask("report", "room_temp", 1) is None
        board.reach("connected", False)
        until(lambda: watcher.statuses[-2:] == [b"online", b"offline"], "offline")
        board.ask("pass_ms", 3_600_000)
        board.ask("poll", 200)
        assert (board.ask("connects"), board.ask("pending")) == (1, 0)
        assert board.ask("status").startswith("silent: someone said no")
        assert len(watcher.reports) == 1
        board.ask("consent", True)
        board.reach("connects", 2)
        assert board.ask("report", "room_temp", 1) is not None

    def test_withdrawal_while_away_ends_the_question(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any, tmp_path: Path
    ) -> None:
        settings = {"folder": str(tmp_path / "ldp"), "policy": POLICY | {"ask": "each"}}
        for name in ("room_temp", "door_open"):
            watcher.publish(name, experiment(name))
        board = start_any(mosquitto.port, **settings)
        board.reach("asking", ["door_open", "room_temp"])
        until(lambda: watcher.statuses[-1:] == [b"online refused:door_open refused:room_temp"], "the status")
        board.kill()
        watcher.publish("room_temp", b"")
        board = start_any(mosquitto.port, again=True, **settings)
        assert board.ask("asking") == ["door_open", "room_temp"]
        board.reach("asking", ["door_open"], 20_000)
        assert list(board.ask("refused")) == ["door_open"]
        board.ask("close")
        watcher.publish("door_open", b"")
        board.reach("asking", [], 20_000)
        assert board.ask("refused") == {}
        board.ask("poll", 100)
        until(lambda: watcher.statuses[-1:] == [b"online"], "the status")


SIGNING = bytes(31) + b"\x05"
NAMES = tuple(f"n{i}" for i in range(16))


def message(name: str, payload: bytes) -> bytes:
    return message_of(FLEET, name, payload)


def signed(name: str, serial: int, key: bytes = SIGNING, epsilon: int = 1_000_000) -> bytes:
    return keys.sign_experiment(key, topics.experiment_topic(FLEET, name), experiment(name, epsilon), serial)


def forged(serial: int) -> bytes:
    """Return two messages per name with another key's signature."""
    key = bytes(31) + b"\x07"
    return b"".join(message(name, signed(name, serial - i, key)) for i in (1, 0) for name in NAMES)


class TestOddBroker:
    @every_kind
    def test_blocks_for_at_most_timeout_without_acknowledgment(
        self,
        start_any: Any,
    ) -> None:
        broker = ScriptedBroker(lambda kind, body: None if kind == PUBLISH else polite(kind, body))
        board = start_any(broker.port, busy=True, reporter={"timeout_s": 1})
        fed = board.ask("feeds")
        board.reach("failed", True)
        if not board.waits:  # each message from the broker is an event, so their number means nothing
            assert_blocked_for_timeout(board, fed)
        assert not board.ask("connected")
        assert "the broker did not answer in time" in board.ask("status")
        broker.close()

    @every_kind
    def test_shows_forbidden_subscription_and_continues(self, start_any: Any) -> None:
        def answers(kind: int, body: bytes) -> bytes:
            answer = polite(kind, body)
            if kind == SUBSCRIBE and b"door_open" in body:
                return answer[:-1] + b"\x80"
            if kind == SUBSCRIBE:
                answer += message("room_temp", experiment())
            return answer

        broker = ScriptedBroker(answers)
        board = start_any(broker.port)
        board.reach("state", "reporting")
        board.reach("connected", True)
        assert board.ask("refused") == {"door_open": "the broker forbids the subscription"}
        assert board.ask("report", "room_temp", 1) is not None
        board.reach("pending", 0)
        broker.close()

    @every_kind
    def test_shows_why_connection_was_refused(self, start_any: Any) -> None:
        cases = {
            b"\x20\x02\x00\x05": "the broker does not authorize this client",
            b"\x20\x02\x00\x04": "the broker refuses the user name or password",
            b"\x20\x02\x00\x87": "the broker refuses the connection, code 135",
            b"HTTP/1.1 400 Bad Request\r\n": "the broker sent something that is not MQTT",
            b"\x20": "the broker did not answer in time",
        }
        answers = [*cases][:1]
        broker = ScriptedBroker(lambda kind, body: answers[-1] if kind == CONNECT else b"")
        board = start_any(broker.port, reporter={"timeout_s": 1})
        for answer, line in cases.items():
            answers.append(answer)
            board.reach("error", line)
            assert line in board.ask("status")
            assert "\n" not in board.ask("status")
            assert not board.ask("connected")
        broker.close()

    @every_kind
    def test_malformed_packets_end_only_the_connection(self, start_any: Any) -> None:
        odd = [b"\x30\x03\x00\x09abc", b"\x30\xff\xff\xff\x7f", b"\x30\x02\xff\xff", b"\xff\xff"]

        def answers(kind: int, body: bytes) -> bytes:
            answer = polite(kind, body)
            return answer + odd.pop() if kind == PUBLISH and odd else answer

        broker = ScriptedBroker(answers)
        board = start_any(broker.port, reporter={"timeout_s": 2})  # a message of 268 MB never arrives
        board.reach("connects", len(odd) + 1)  # each odd answer ends a connection
        board.reach("connected", True)
        board.ask("poll", 300)
        assert (board.ask("connected"), odd) == (True, [])
        broker.close()

    def test_forgeries_cost_one_verification_per_turn(
        self,
        start_any: Any,
    ) -> None:
        later = [forged(9), forged(7)]
        last = NAMES[-1]

        def answers(kind: int, body: bytes) -> bytes:
            answer = polite(kind, body)
            if kind == SUBSCRIBE and last.encode() in body:
                return answer + forged(7) + message(last, signed(last, 5))
            if kind == PUBLISH and b"/report/" in body and later:
                return later.pop() + message(last, signed(last, 5)) + answer  # the acknowledgement is last
            return answer

        broker = ScriptedBroker(answers)
        board = start_any(
            broker.port,
            policy=POLICY | {"experiments": NAMES},
            announce_key=list(keys.public_key_bytes(SIGNING)),
            reporter={"timeout_s": 30},
            busy=True,
        )

        def checks(count: int) -> None:
            board.reach("check_count", count)
            check_count = board.ask("checks")
            turns, fed = zip(*check_count, strict=True)
            assert len(set(fed)) == count, check_count
            if board.waits:
                assert len(set(turns)) == count, check_count

        others = ["refused"] * (len(NAMES) - 1)
        checks(16)  # the newest message for each name
        board.reach("all_states", [*others, "reporting"])
        assert board.ask("report", last, 20) is not None
        board.reach("pending", 0)
        board.ask("poll", 300)
        checks(16)  # the same bytes again
        assert board.ask("report", last, 20) is not None
        board.reach("pending", 0)
        checks(31)
        board.ask("close")  # the broker repeats its retained messages
        board.reach("connects", 2)
        board.ask("poll", 300)
        assert "n0 refused: its signature is missing or wrong" in board.ask("status")
        broker.close()


STATUS_TOPIC = topics.status_topic(FLEET, DEVICE)


def with_experiment(kind: int, body: bytes) -> bytes:
    """Accept everything, and deliver an experiment."""
    answer = polite(kind, body)
    return (
        answer + message("room_temp", experiment()) if kind == SUBSCRIBE and b"room_temp" in body else answer
    )


class TestForbiddingBroker:
    @every_kind
    @pytest.mark.parametrize(
        ("what", "left_out"),
        {
            "closes at the will": "will",
            "refuses the will": "will",
            "closes at the status": "status",
            "drops the status": "status",
        }.items(),
    )
    def test_gets_reports_without_status_or_will(self, start_any: Any, what: str, left_out: str) -> None:
        broker = ScriptedBroker(forbidding(what, with_experiment))
        board = start_any(broker.port, reporter={"timeout_s": 1})
        board.reach("state", "reporting")
        assert board.ask("report", "room_temp", 21) is not None
        board.reach("pending", 0)
        board.reach("left_out", [left_out])
        board.reach("connected", True)
        connects = board.ask("connects")
        board.ask("poll", 1500)  # longer than an answer may take
        assert (board.ask("connects"), board.ask("connected"), board.ask("failures")[2]) == (
            connects,
            True,
            0,
        )
        line = f"{left_out} left out: the broker does not permit it on {STATUS_TOPIC}"
        assert line in board.ask("status")
        broker.close()

    @pytest.mark.parametrize("what", ["closes at the will", "refuses the will"])
    def test_gets_reports_of_a_single_flush_without_will(self, start_board: Any, what: str) -> None:
        """A board in deep sleep makes one flush and forgets."""
        broker = ScriptedBroker(forbidding(what, with_experiment))
        board = start_board(broker.port)
        assert board.ask("flush", HANGS_MS, {"room_temp": 21})[0]
        assert (board.ask("sent"), board.ask("left_out")) == (1, ["will"])
        broker.close()

    def test_flush_does_not_lose_reports_to_the_status(self, start_board: Any) -> None:
        broker = ScriptedBroker(forbidding("closes at the status", with_experiment))
        board = start_board(broker.port)
        for sent in (1, 2, 3):
            assert board.ask("flush", HANGS_MS, {"room_temp": 21})[0]
            assert board.ask("sent") == sent
        assert board.ask("left_out") == ["status"]
        assert board.ask("connects") == 3
        broker.close()

    @every_kind
    def test_settings_turn_status_and_will_off(self, start_any: Any) -> None:
        packets: list[tuple[int, bytes]] = []

        def answers(kind: int, body: bytes) -> bytes:
            packets.append((kind, body))
            return with_experiment(kind, body)

        broker = ScriptedBroker(answers)
        board = start_any(broker.port, reporter={"status": False, "will": False})
        board.reach("state", "reporting")
        assert board.ask("report", "room_temp", 21) is not None
        board.reach("pending", 0)
        board.ask("close")
        assert not [body for _, body in packets if b"/status/" in body]
        assert "left out" not in board.ask("status")
        broker.close()

    @every_kind
    def test_error_names_the_topic_at_which_it_closed(self, start_any: Any) -> None:
        broker = ScriptedBroker(forbidding("closes at reports", with_experiment))
        board = start_any(broker.port)
        board.reach("state", "reporting")
        assert board.ask("report", "room_temp", 21) is not None
        topic = topics.report_topic(FLEET, DEVICE)
        board.reach("error", f"the broker closed the connection: may this device use {topic}?")
        assert board.ask("failures") == [0, 0, 0]
        broker.close()

    def test_gets_status_again_after_a_lasting_connection(self, tmp_path: Path) -> None:
        reporter = mqtt_reporter.Reporter(make_client(tmp_path, FLEET), lambda: None)
        for topic in (True, reporter._status_topic):
            for _ in range(2):
                reporter.topic = topic
                reporter._mark_lost(reporter.reason(OSError(104)))
        assert reporter.failures[:2] == [2, 2]
        reporter._start_session()
        reporter._mark_lost(reporter.reason(OSError(104)))  # it was short
        assert reporter.failures[:2] == [2, 2]
        reporter._start_session()
        reporter._steady_ms = reporter_base.ticks_ms() - 1
        reporter._settle()
        reporter._mark_lost(reporter.reason(OSError(104)))
        assert reporter.failures[:2] == [1, 1]
        reporter._start_session()
        assert reporter.failures[:2] == [1, 0]

    def test_refusal_without_will_has_another_cause(self, tmp_path: Path) -> None:
        reporter = mqtt_reporter.Reporter(make_client(tmp_path, FLEET), lambda: None)
        counts = []
        for code in (5, 5, 5, 5, 4, 110):
            reporter.topic = True
            error = OSError(code) if code > 5 else reporter_base.ConnectionRefused(code)
            reporter._mark_lost(reporter.reason(error))
            counts.append(reporter.failures[1])
        assert counts == [1, 2, 0, 1, 1, 1]


class TestSameDeviceTwice:
    @every_kind
    def test_is_reported_until_a_connection_lasts(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any
    ) -> None:
        boards = [start_any(mosquitto.port) for _ in range(2)]
        for _ in range(20):
            for board in boards:
                board.tell("poll", 2000)
            for board in boards:
                board._read()
            if any(status.startswith(b"online duplicate-id") for status in watcher.statuses):
                break
        else:
            pytest.fail(f"{[board.ask('status') for board in boards]}")
        assert any("another device may be using this id" in board.ask("status") for board in boards)
        boards[1].kill()
        boards[0].reach("connected", True)
        boards[0].ask("pass_ms", 31_000)
        boards[0].reach("failures", [0, 0, 0])
        wait_for_status(boards[0], watcher, b"online")
        assert "another device" not in boards[0].ask("status")


class TestSwallowedConnections:
    @every_kind
    @pytest.mark.parametrize("is_refused", [True, False], ids=["refused", "swallowed"])
    def test_leave_no_descriptor_open(self, start_any: Any, is_refused: bool) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as server, contextlib.ExitStack() as stack:
            port = free_port() if is_refused else server.getsockname()[1]
            for _ in range(3):  # fill the backlog, so that later connections get no answer
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(("127.0.0.1", server.getsockname()[1]))
            board = start_any(port, reporter={"timeout_s": 1})
            folder = f"/proc/{board._process.pid}/fd"
            counts = []
            for attempts in (2, 5):
                board.reach("lost", attempts)
                while board.ask("connected"):
                    board.ask("poll", 20)
                board.ask("poll", 50)
                counts.append(len(os.listdir(folder)))
            assert counts[1] <= counts[0] + 1  # an attempt may be in progress
            expected = "nothing listens" if is_refused else "did not answer in time"
            assert expected in board.ask("status")


class TestStorage:
    def test_full_flash_spends_nothing_and_keeps_unacked_report(self, watcher: Watcher, board: Board) -> None:
        report = board.ask("report", "room_temp", 21.4)
        board.ask("full", True)
        assert board.ask("report", "room_temp", 21.4) is None
        board.reach("sent", 1)
        until(lambda: watcher.reports, "the report")
        board.ask("poll", 600)
        assert board.ask("outbox") == [report]
        assert "storage failed: errno 28" in board.ask("status")
        assert board.ask("spent") == 1_000_000
        assert [r.hex() for r in watcher.reports] == [report]  # sent only once
        board.ask("full", False)
        board.ask("close")  # a new connection retries flash; otherwise it is retried once a minute
        second = board.ask("report", "room_temp", 21.4)
        board.reach("pending", 0)
        assert "storage" not in board.ask("status")
        until(lambda: len(watcher.reports) == 2, "the second report")
        assert [r.hex() for r in watcher.reports] == [report, second]

    def test_failed_removal_is_repeated_once_a_minute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now_ms = [0]
        writes_ms: list[int] = []

        def fail(_slot: int, _data: bytes) -> None:
            writes_ms.append(now_ms[0])
            raise OSError(28)

        monkeypatch.setattr(reporter_base, "ticks_ms", lambda: now_ms[0])
        storage = memory()
        ldp_client.provision(storage, consent=True)
        client = ldp_client.Client(POLICY, storage, DEVICE, fleet=FLEET)
        client.enroll(experiment())
        report = client.report("room_temp", 20)
        reporter = mqtt_reporter.Reporter(client, lambda: None, KeptExperiments(client, None))
        monkeypatch.setattr(storage, "write", fail)
        assert not reporter._handle_ack(report)
        for now_ms[0] in range(1_000, 121_000, 1_000):
            assert reporter._due_report(True) is None
        assert writes_ms == [0, 60_000, 120_000]

    def test_missing_ledger_blocks_connection(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any
    ) -> None:
        watcher.publish("room_temp", experiment())
        board = start_any(mosquitto.port, again=True)
        opens_no_connection(board, watcher)
        assert "locked: no ledger; provision this board" in board.ask("status")

    def test_only_signed_withdrawal_ends_keyed_experiment(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any, tmp_path: Path
    ) -> None:
        def start(again: bool = False) -> Board:
            announce_key = list(keys.public_key_bytes(SIGNING))
            return start_any(
                mosquitto.port, folder=str(tmp_path / "ldp"), announce_key=announce_key, again=again
            )

        watcher.publish("room_temp", signed("room_temp", 5))
        board = start()
        board.reach("state", "reporting")
        board.reach("connected", True)
        watcher.publish("room_temp", b"")
        board.reach("refused", {"room_temp": "its signature is missing or wrong"})
        board.ask("close")  # nor does it end if the broker no longer has it
        board.reach("connects", 2)
        board.ask("poll", 1500)  # settle_s is 1
        assert board.ask("state") == "reporting"
        withdrawal = keys.sign_experiment(SIGNING, topics.experiment_topic(FLEET, "room_temp"), b"", 6)
        watcher.publish("room_temp", withdrawal)
        board.reach("state", "absent")
        board.kill()
        watcher.publish("room_temp", signed("room_temp", 5))  # replayed
        board = start(again=True)
        board.reach("refused", {"room_temp": "a newer version was published"})
        assert board.ask("state") == "refused"

    def test_requires_kept_experiments_without_folder(self) -> None:
        storage = memory()
        ldp_client.provision(storage, consent=True)
        client = ldp_client.Client(POLICY, storage, DEVICE, fleet=FLEET)
        with pytest.raises(ldp_client.SettingsError, match="not a folder: pass kept, a KeptExperiments"):
            mqtt_reporter.Reporter(client, lambda: None)
        reporter = mqtt_reporter.Reporter(client, lambda: None, KeptExperiments(client, None))
        assert reporter.status().endswith("; nothing is stored")


DAY_MS = 24 * 3_600_000
# MicroPython's millisecond counter wraps after 12.43 days, and its differences after 6.21.
OUTAGES_MS = [int(days * DAY_MS) for days in (0.04, 6.3, 12.5, 25.1)]
if os.environ.get("LONG"):
    OUTAGES_MS += [10_000, *(int(days * DAY_MS) for days in (1, 7, 9, 12.3, 20, 30))]
PACE = {"delay_s": 10, "backoff_s": 2, "backoff_max_s": 30, "timeout_s": 5, "settle_s": 10}
NEVER_MS = 1_800_000  # by the board's clock; the awaited events take about a minute


def live_until(board: Board, what: str, value: Any) -> None:
    passed_ms = board.ask("live_until", what, value, NEVER_MS)
    assert passed_ms < NEVER_MS, (what, board.ask("status"))


def poll_until_status(board: Any, watcher: Watcher, status: bytes) -> None:
    """Poll the board, whose event loop runs only then, until it has published this status."""
    until(lambda: board.ask("poll", 100) is not None and watcher.statuses[-1] == status, watcher.statuses)


class TestLongPause:
    def test_sends_queued_report_afterwards(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any
    ) -> None:
        watcher.publish("room_temp", experiment())
        board = start_any(mosquitto.port, reporter=PACE)
        live_until(board, "state", "reporting")
        for outage_ms in OUTAGES_MS:
            live_until(board, "connected", True)
            while not board.ask("pending"):  # a report with a delay of 0 is already sent
                assert board.ask("report", "room_temp", 21.4) is not None
                board.ask("poll", 10)
            mosquitto.terminate()
            board.reach("connected", False)
            board.ask("pass_ms", outage_ms)
            mosquitto.start()
            live_until(board, "pending", 0)

    def test_notices_dead_connection_afterwards(self, proxy: Proxy, start_any: Any) -> None:
        board = start_any(proxy.port, reporter=PACE)
        for outage_ms in OUTAGES_MS:
            live_until(board, "connected", True)
            proxy.silence("up", "down")
            board.ask("pass_ms", outage_ms)
            live_until(board, "connected", False)
            proxy.silence()

    def test_retries_failed_removal_of_report_afterwards(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any
    ) -> None:
        watcher.publish("room_temp", experiment())
        board = start_any(mosquitto.port, reporter=PACE | {"delay_s": 0, "settle_s": 16_000})
        live_until(board, "state", "reporting")
        for i, outage_ms in enumerate(OUTAGES_MS):
            assert board.ask("report", "room_temp", 21.4) is not None
            board.ask("full", True)
            live_until(board, "sent", i + 1)
            assert "storage failed" in board.ask("status")
            poll_until_status(board, watcher, b"online fault")
            board.ask("pass_ms", outage_ms)
            board.ask("full", False)
            live_until(board, "pending", 0)
            poll_until_status(board, watcher, b"online")

    def test_honors_withdrawal_afterwards(
        self, watcher: Watcher, mosquitto: MosquittoBroker, start_any: Any
    ) -> None:
        watcher.publish("door_open", experiment("door_open"))
        board = start_any(mosquitto.port, reporter=PACE)
        for i, outage_ms in enumerate(OUTAGES_MS):
            watcher.publish("room_temp", experiment())
            live_until(board, "states", ["reporting", "reporting"])
            live_until(board, "connected", True)
            board.ask("close")
            watcher.publish("room_temp", b"")
            board.reach("connects", 2 * i + 2)
            board.ask("pass_ms", outage_ms)
            live_until(board, "state", "absent")
            board.ask("poll", 100)
            assert board.ask("states") == ["reporting", "absent"]
            board.ask("close")
            board.reach("connects", 2 * i + 3)


@pytest.fixture
def send_many(
    runtime: tuple[str, ...], umqtt: Path, mosquitto: MosquittoBroker
) -> Callable[..., dict[str, Any]]:
    """Provide a function that runs many.py with a count, a kind and a folder of modules."""

    def run(count: int, kind: str, modules: Path = umqtt) -> dict[str, Any]:
        result = subprocess.run(
            [*runtime, str(SCRIPTS / "many.py"), "127.0.0.1", str(mosquitto.port), str(count), kind],
            env={**os.environ, "MICROPYPATH": f"{modules}{os.pathsep}{ROOT / 'device'}"},
            capture_output=True,
            text=True,
            check=True,
            timeout=10 * WAIT_S,
        )
        return json.loads(result.stdout)

    return run


class TestPacketIds:
    @pytest.mark.parametrize(
        ("first", "count"), [(64_000, 3_000), pytest.param(0, 70_000, marks=pytest.mark.long)]
    )
    def test_client_sends_more_messages_than_packet_ids(
        self, first: int, count: int, send_many: Any, umqtt: Path, tmp_path: Path
    ) -> None:
        source = (umqtt / "umqtt" / "simple.py").read_text()
        assert source.count("self.pid = 0\n") == 1
        (tmp_path / "umqtt").mkdir()
        (tmp_path / "umqtt" / "simple.py").write_text(
            source.replace("self.pid = 0\n", f"self.pid = {first}\n")
        )
        status = send_many(count, "reporter", tmp_path)
        assert status["done"] == count
        assert status["connects"] == 1
        assert status["error"] is None
        assert status["kept"] <= 256  # bytes of heap

    def test_puback_counts_as_answer_to_ping(self, send_many: Any) -> None:
        result = send_many(2000, "pinged")  # 1,000 s by its clock, with responses overdue after 1 s
        assert result["done"] == 2000
        assert result["connects"] == 1

    def test_umqtt_simple_alone_stops_after_65535_publications(self, send_many: Any) -> None:
        result = send_many(2000, "bare")
        assert result["done"] == 535  # its packet ids start at 65,000
        assert result["error"] is not None

    def test_replaces_client_with_hidden_counter_in_time(self, send_many: Any) -> None:
        result = send_many(1000, "hidden")
        assert result["done"] == 1000
        assert result["connects"] == 4
        assert result["error"] is None


def compiled(folder: Path, umqtt: Path, *modules: str) -> Path:
    """Compile the board's modules to .mpy files in a folder, as `hushmote flash` does."""
    files = {name: ROOT / "device" / f"{name}.py" for name in modules}
    (folder / "umqtt").mkdir()
    files |= {name: SCRIPTS / f"{name}.py" for name in ("small_main", "network_double")}
    files["umqtt/simple"] = umqtt / "umqtt" / "simple.py"
    for name, source in files.items():
        (folder / f"{name}.mpy").write_bytes(usb.compile_mpy(source, 6, f"{name}.py"))
    return folder


def in_a_small_heap(runtime: tuple[str, ...], modules: Path, *script: Any, kib: int = 63) -> str:
    # 1 KiB less than documented, since random draws affect the fragmentation of free memory.
    result = subprocess.run(
        [*runtime, "-X", f"heapsize={kib}k", *(str(part) for part in script)],
        cwd=modules,
        env={**os.environ, "MICROPYPATH": "."},  # as short as a board's paths, because paths stay in its heap
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


MODULES = (
    "ldp_client",
    "ldp_p256",
    "preview",
    "gap",
    "kept_experiments",
    "reporter_base",
    "mqtt_reporter",
    "settings",
    "station",
    "memory",
    "reporter_status",
    "main",
)


class TestSmallHeap:
    def test_client_and_reporter_work_in_64_kib(
        self,
        runtime: tuple[str, ...],
        umqtt: Path,
        mosquitto: MosquittoBroker,
        watcher: Watcher,
        tmp_path: Path,
    ) -> None:
        modules = compiled(tmp_path, umqtt, *MODULES)
        for name in ("room_temp", "door_open", "light"):
            watcher.publish(name, experiment(name))
        script = (SCRIPTS / "small_heap.py", "127.0.0.1", mosquitto.port)
        answer = json.loads(in_a_small_heap(runtime, modules, *script))
        assert answer["sent"] == 30
        until(lambda: len(watcher.reports) == 30, "all reports")
        assert len(set(watcher.reports)) == 30
        assert answer["grown"] <= 256  # bytes, between the first and the last round

    def test_application_with_log_runs_in_88_kib(
        self,
        runtime: tuple[str, ...],
        umqtt: Path,
        mosquitto: MosquittoBroker,
        watcher: Watcher,
        tmp_path: Path,
    ) -> None:
        watcher.publish("room_temp", LOGGED)
        watcher.publish("room_temp", PROOF, "proof")
        (tmp_path / "modules").mkdir()
        logged = ("ldp_log", "ldp_log_client", "ldp_log_policy")
        modules = compiled(tmp_path / "modules", umqtt, *MODULES, *logged)
        settings = {"fleet": FLEET, "device_id": "k3f9x1", "wifi_ssid": "home", "mqtt_host": "127.0.0.1"}
        settings |= {"mqtt_port": mosquitto.port, "key": "00" * 32}
        settings["announce_key"] = keys.public_key_bytes(SIGNING).hex()
        # Its names need a sixth pool, and so 4 KiB in one piece, when much of the heap is in use.
        for kib in (86, 87):
            flash = modules / "flash"
            flash.mkdir()
            (flash / "settings.json").write_text(json.dumps(settings))
            (flash / "log.json").write_text(json.dumps(LOG))
            ldp_client.provision(str(flash / "ldp"), consent=True)
            for wake_ups, reports in ((12, 12), (1, 13)):
                lines = in_a_small_heap(
                    runtime, modules, "-m", "small_main", "flash", wake_ups, "log", kib=kib
                ).splitlines()
                answer = json.loads(lines[-1])
                assert (answer["sent"], answer["reports"]) == (wake_ups, reports)
                assert answer["grown"] <= 256
            shutil.rmtree(flash)

    def test_application_runs_in_64_kib(
        self,
        runtime: tuple[str, ...],
        umqtt: Path,
        mosquitto: MosquittoBroker,
        watcher: Watcher,
        tmp_path: Path,
    ) -> None:
        signing = bytes(31) + b"\x05"
        topic = topics.experiment_topic(FLEET, "room_temp")
        exp = experiment(epsilon=500_000)
        watcher.publish("room_temp", keys.sign_experiment(signing, topic, exp, 1))
        (tmp_path / "modules").mkdir()
        modules = compiled(tmp_path / "modules", umqtt, *MODULES)
        settings = {"fleet": FLEET, "device_id": "k3f9x1", "wifi_ssid": "home", "mqtt_host": "127.0.0.1"}
        settings |= {"mqtt_port": mosquitto.port, "key": "00" * 32}
        settings["announce_key"] = keys.public_key_bytes(signing).hex()
        # 620 names of modules fill five of MicroPython's pools; a sixth pool takes 4 KiB in one piece.
        for kib in (62, 63):  # the amount and location of garbage differ
            flash = modules / "flash"
            flash.mkdir()
            (flash / "settings.json").write_text(json.dumps(settings))
            ldp_client.provision(str(flash / "ldp"), consent=True)
            # An RP2040 goes on after its sleep, an ESP32 starts anew.
            for wake_ups, reports in ((12, 12), (1, 13)):
                lines = in_a_small_heap(
                    runtime, modules, "-m", "small_main", "flash", wake_ups, kib=kib
                ).splitlines()
                answer = json.loads(lines[-1])
                assert (answer["sent"], answer["reports"]) == (wake_ups, reports)
                assert answer["grown"] <= 256
                assert answer["imported"] < 43 * 1024, answer
            assert (flash / "experiments" / "room_temp").exists()
            shutil.rmtree(flash)


class TestLog:
    """A policy with "log": an experiment is taken once its proof has arrived."""

    MISSING = "its proof from the log is missing"
    SETTINGS: dict[str, Any] = {  # noqa: RUF012 - never changed
        "policy": POLICY | {"log": LOG},
        "announce_key": list(keys.public_key_bytes(SIGNING)),
    }

    @every_kind
    def test_takes_experiment_once_proof_arrives(
        self, mosquitto: MosquittoBroker, watcher: Watcher, start_any: Any
    ) -> None:
        watcher.publish("room_temp", LOGGED)
        board = start_any(mosquitto.port, **self.SETTINGS)
        board.reach("refused", {"room_temp": self.MISSING})
        board.reach("connected", True)
        until(lambda: b"online refused:room_temp" in watcher.statuses, "the status")
        assert f"; room_temp refused: {self.MISSING}" in board.ask("status")
        assert board.ask("check_count") == 0
        for data in (bytes(9), bytes(1601), PROOF + bytes(3000), PROOF[:-1]):
            watcher.publish("room_temp", data, "proof")
            board.reach("refused", {"room_temp": "its proof is malformed"})
        watcher.publish("room_temp", PROOF, "proof")
        board.reach("state", "reporting")
        assert board.ask("refused") == {}
        assert "; room_temp is entry 17 of the log" in board.ask("status")
        checks = board.ask("check_count")
        assert board.ask("report", "room_temp", 20) is not None
        board.reach("pending", 0)
        board.ask("close")  # after a connect, the broker repeats both messages
        board.reach("connects", 2)
        assert board.ask("report", "room_temp", 20) is not None
        board.reach("pending", 0)
        watcher.publish("room_temp", b"", "proof")
        watcher.publish("door_open", b"x", "proof")
        board.ask("poll", 300)
        assert board.ask("state") == "reporting"
        assert board.ask("check_count") == checks

    @every_kind
    def test_flush_takes_both_messages(
        self, mosquitto: MosquittoBroker, watcher: Watcher, start_any: Any
    ) -> None:
        watcher.publish("room_temp", PROOF, "proof")
        watcher.publish("room_temp", LOGGED)
        board = start_any(mosquitto.port, **self.SETTINGS)
        if board.waits:
            assert board.ask("flush", 20_000, {"room_temp": 20})[0]
        board.reach("state", "reporting")

    @every_kind
    def test_shows_forbidden_topic_of_proof(self, start_any: Any) -> None:
        def answers(kind: int, body: bytes) -> bytes:
            answer = polite(kind, body)
            if kind == SUBSCRIBE and b"/proof/room_temp" in body:
                return answer[:-1] + b"\x80"
            if kind == SUBSCRIBE and b"/experiment/room_temp" in body:
                answer += message("room_temp", LOGGED)
            return answer

        broker = ScriptedBroker(answers)
        board = start_any(broker.port, **self.SETTINGS)
        forbidden = "the broker forbids the subscription"
        board.reach("refused", {"room_temp": self.MISSING, "room_temp/proof": forbidden})
        assert f"; room_temp/proof refused: {forbidden}" in board.ask("status")
        board.reach("connected", True)
        broker.close()


class TestDelays:
    def test_backoff_has_full_jitter(self) -> None:
        bounds: list[int] = []

        def below(n: int) -> int:
            bounds.append(n)
            return n - 1

        waits = [reporter_base._wait_ms(attempt, 2, 300, below) for attempt in range(40)]
        assert bounds[:10] == [2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000]
        assert set(bounds[8:]) == {300_000}
        assert waits == [n - 1 for n in bounds]
        # The largest settings are within the DRBG's range.
        assert reporter_base._wait_ms(99, 16_000, 16_000, ldp_client.DRBG(b"any seed").below) < 16_000_000

    def test_loss_of_lasting_connection_spreads_reconnects(self, tmp_path: Path) -> None:
        bounds: list[int] = []

        def below(n: int) -> int:
            bounds.append(n)
            return 0

        reporter = mqtt_reporter.Reporter(make_client(tmp_path, FLEET), lambda: None, spread_s=600)
        reporter._below = below
        reporter._wait_ms()
        reporter._mark_lost("nothing listens")
        reporter._mark_lost("nothing listens")
        reporter._start_session()
        reporter._mark_lost("the broker closed the connection")  # a short connection
        reporter._start_session()
        reporter._steady_ms = reporter_base.ticks_ms() - 1  # the connection now counts as stable
        reporter._settle()
        reporter._mark_lost("the broker closed the connection")
        reporter._mark_lost("nothing listens")
        assert bounds == [600_000, 2000, 4000, 8000, 600_000, 4000]

    def test_each_report_waits_its_own_random_delay(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now, drawn, bounds = [0], [700, 0, 999], []
        monkeypatch.setattr(reporter_base, "ticks_ms", lambda: now[0])
        client = make_client(tmp_path, FLEET)
        client.enroll(experiment())
        reporter = mqtt_reporter.Reporter(client, lambda: None, delay_s=1)
        reporter._below = lambda n: bounds.append(n) or drawn[len(bounds) - 1]
        for wait_ms in drawn:
            report, since = client.report("room_temp", 20), now[0]
            while reporter._due_report(False) is None:
                now[0] += 1
            assert (now[0] - since, reporter._due_report(False)) == (wait_ms, report)
            assert reporter._handle_ack(report)
        assert bounds == [1000] * 3

    def test_default_spread_is_a_minute_or_the_interval(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bounds: list[int] = []
        now_ms = [0]
        monkeypatch.setattr(reporter_base, "ticks_ms", lambda: now_ms[0])
        reporter = mqtt_reporter.Reporter(make_client(tmp_path, FLEET), lambda: None)
        reporter._below = lambda n: bounds.append(n) or n - 1
        for now_ms[0], wait_ms in ((0, 59_999), (59_998, 1), (59_999, 0)):
            assert reporter._wait_ms() == wait_ms
        for interval_ms in (0, 20_000, 3_600_000):
            now_ms[0] += interval_ms
            for name in ("room_temp", "door_open"):  # together, which is no interval
                reporter.report(name, 1)
            reporter._next_ms = None  # pyright: ignore[reportAttributeAccessIssue]
            reporter._wait_ms()
        assert bounds == [60_000, 60_000, 20_000, 60_000]

    def test_default_spread_is_a_minute_for_weekly_reports(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            reporter_base, "ticks_diff", lambda now, since: (now - since + 2**29) % 2**30 - 2**29
        )
        reporter = mqtt_reporter.Reporter(make_client(tmp_path, FLEET), lambda: None)
        for now_ms in (0, 7 * 86_400_000):
            monkeypatch.setattr(reporter_base, "ticks_ms", lambda: now_ms)  # noqa: B023
            reporter.report("room_temp", 1)
        assert reporter._spread_ms == 60_000

    def test_spread_setting_does_not_depend_on_interval(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bounds: list[int] = []
        now_ms = [0]
        monkeypatch.setattr(reporter_base, "ticks_ms", lambda: now_ms[0])
        reporter = mqtt_reporter.Reporter(make_client(tmp_path, FLEET), lambda: None, spread_s=600)
        reporter._below = lambda n: bounds.append(n) or n - 1
        for now_ms[0] in (0, 20_000):
            reporter.report("room_temp", 1)
        reporter._wait_ms()
        assert bounds == [600_000]

    def test_connection_of_a_week_resets_backoff(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """MicroPython's millisecond counter wraps after 12.4 days, and its differences after 6.2 days."""
        period = 1 << 30
        now = [period - 5_000]
        monkeypatch.setattr(reporter_base, "ticks_ms", lambda: now[0] % period)
        monkeypatch.setattr(reporter_base, "ticks_add", lambda ticks, ms: (ticks + ms) % period)
        wrap = lambda a, b: (a - b + period // 2) % period - period // 2  # noqa: E731
        monkeypatch.setattr(reporter_base, "ticks_diff", wrap)
        reporter = mqtt_reporter.Reporter(make_client(tmp_path, FLEET), lambda: None)
        for _ in range(9):
            reporter._mark_lost("nothing listens")
        reporter._start_session()
        for _ in range(7 * 24 * 60):
            now[0] += 60_000
            reporter._settle()
        reporter._mark_lost("the broker closed the connection")
        assert reporter._attempt == 1


class TestLostConnection:
    @pytest.mark.parametrize("has_socket", [True, False])
    def test_closes_the_socket_without_goodbye(self, has_socket: bool, tmp_path: Path) -> None:
        """After a DISCONNECT, the broker would not publish the last will."""
        calls: list[str] = []
        mqtt = SimpleNamespace(disconnect=lambda: calls.append("disconnect"))
        if has_socket:  # clients that hide theirs can only be told to disconnect
            mqtt.sock = SimpleNamespace(close=lambda: calls.append("close"))
        reporter = mqtt_reporter.Reporter(make_client(tmp_path, FLEET), lambda: None)
        reporter._mqtt = mqtt
        reporter._end_connection(OSError(110))
        assert calls == ["close" if has_socket else "disconnect"]


class TestHiddenPacketCounter:
    def test_status_waits_for_the_new_connection(self, tmp_path: Path) -> None:
        """After 65,000 packets the reporter closes the connection, because it cannot see the packet id."""
        client = make_client(tmp_path, FLEET)
        reporter = mqtt_reporter.Reporter(client, lambda: None, delay_s=0)
        client.enroll(experiment())
        assert reporter.report("room_temp", 21) is not None
        reporter._mqtt = SimpleNamespace(check_msg=int, publish=lambda *_: None, disconnect=lambda: None)
        reporter._start_session()
        reporter._packets = 65_000
        assert not reporter.poll()
        assert reporter.error is None


class TestManyMessages:
    def test_do_not_hold_reports_up(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The reporter for asyncio turns to its reports in time, even if more messages have arrived."""
        now_ms = 0
        for module in (reporter_base, async_reporter):
            monkeypatch.setattr(module, "ticks_ms", lambda: now_ms)

        class Messages:
            since_ms = None

            def next(self) -> tuple[int, bytes]:
                nonlocal now_ms
                now_ms += 10
                assert now_ms <= 100, "it has handled messages for too long"
                return 0x30, b"\0\1t"

        reporter = async_reporter.AsyncReporter(make_client(tmp_path, FLEET), "broker")
        monkeypatch.setattr(reporter, "_packets", Messages())
        assert asyncio.run(reporter._receive(100)) is None
        assert now_ms == 100


class TestSettings:
    @pytest.mark.parametrize(
        ("setting", "value"),
        {
            "keepalive_s": 1,
            "timeout_s": 0,
            "delay_s": -1,
            "backoff_s": 0,
            "backoff_max_s": 1,
            "spread_s": 0,
        }.items(),
    )
    def test_names_setting_out_of_range(self, setting: str, value: int, tmp_path: Path) -> None:
        client = make_client(tmp_path, FLEET)
        with pytest.raises(ldp_client.SettingsError, match=f"{setting} must be an integer from"):
            mqtt_reporter.Reporter(client, lambda: None, **{setting: value})

    def test_rejects_client_without_fleet(self, tmp_path: Path) -> None:
        with pytest.raises(ldp_client.SettingsError, match="fleet"):
            mqtt_reporter.Reporter(make_client(tmp_path, None), lambda: None)


def make_client(folder: Path, fleet: str | None) -> ldp_client.Client:
    ldp_client.provision(str(folder), consent=True)
    return ldp_client.Client(POLICY, str(folder), DEVICE, fleet=fleet)


class LateMessages:
    """umqtt.simple's client and its socket, which receive retained messages at given times."""

    keepalive = 0

    def __init__(self, arrivals: dict[int, bytes], now: list[int]) -> None:
        self.arrivals = arrivals
        self.now = now
        self.sock: Any = self

    def connect(self, *_: Any, **__: Any) -> None:
        self.sock = self

    def set_callback(self, take: Callable[[bytes, bytes], None]) -> None:
        self._take = take

    def check_msg(self) -> None:
        self.sock.setblocking(False)
        if self.sock.read(1) is not None:
            payload = self.arrivals.pop(min(self.arrivals))
            name = json.loads(payload)["name"]
            self._take(topics.experiment_topic(FLEET, name).encode(), payload)

    def read(self, _count: int) -> bytes | None:
        return b"0" if self.arrivals and min(self.arrivals) <= self.now[0] else None

    def ignore(self, *_: Any) -> None:
        pass

    set_last_will = subscribe = publish = disconnect = setblocking = close = ignore


class TestLateMessages:
    @pytest.mark.parametrize(
        ("times", "expected"),
        [((490, 980), 2), ((490, 1000), 1), ((510, 520), 0)],
        ids=["both wait", "second too late", "both too late"],
    )
    def test_flush_waits_after_each_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: tuple[int, int], expected: int
    ) -> None:
        """It waits 500 ms for the first message, and 500 ms after each one for the next."""
        now = [0]
        for module in (reporter_base, mqtt_reporter):
            monkeypatch.setattr(module, "ticks_ms", lambda: now[0])
        monkeypatch.setattr(mqtt_reporter, "sleep_ms", lambda ms: now.append(now.pop() + ms))
        client = make_client(tmp_path, FLEET)
        arrivals = dict(zip(times, map(experiment, POLICY["experiments"]), strict=True))
        reporter = mqtt_reporter.Reporter(client, lambda: LateMessages(arrivals, now))
        assert reporter.flush(20_000)
        states = [line["state"] for line in client.status()["experiments"].values()]
        assert states.count("reporting") == expected, states
        assert now[0] < max(times) + 520


class TestMistakes:
    def test_wrong_type_is_a_missing_reading_in_status(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = make_client(tmp_path, FLEET)
        client.enroll(experiment())
        reporter = mqtt_reporter.Reporter(client, lambda: None)
        assert reporter.report("room_temp", "warm") is not None  # a report of a missing reading
        assert "room_temp must be a number or None" in reporter.status()
        monkeypatch.setattr(ldp_client.os, "urandom", bytes)
        assert reporter.report("room_temp", 21.4) is None
        assert "os.urandom is stuck" in reporter.status()
        assert client.status()["sum"] == 1_000_000
        monkeypatch.undo()
        assert reporter.report("room_temp", 21.4) is not None
        assert "stuck" not in reporter.status()
        assert "takes" not in reporter.status()

    def test_wrong_type_in_flush_silences_no_experiment(self, tmp_path: Path) -> None:
        client = make_client(tmp_path, FLEET)
        for name in POLICY["experiments"]:
            client.enroll(experiment(name))
        reporter = mqtt_reporter.Reporter(client, lambda: None)
        assert reporter.flush(1000, {"door_open": "ajar", "room_temp": 20}) is False
        assert reporter.mistyped == {"door_open": "door_open must be a number or None"}
        assert len(client.outbox()) == 2

    def test_failing_factory_is_shown_in_status(self, tmp_path: Path) -> None:
        client = make_client(tmp_path, FLEET)
        reporter = mqtt_reporter.Reporter(client, lambda: None)
        reporter.close()  # the first attempt must not wait
        assert reporter.poll() is False
        assert "AttributeError" in reporter.status()
