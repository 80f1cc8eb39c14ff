"""An MQTT broker for demos, simulations and tests, behind one interface: .host, .port, .name, .description.

It is mosquitto as a child process, amqtt in a thread of this process, or any running broker. open_broker.py
opens a broker by keyword or address.
"""

import asyncio
import contextlib
import getpass
import logging
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import quote

from ..fleet.provisioning.mosquitto import MAX_PACKET_BYTES
from ..server.errors import HushmoteError
from ..server.extras import require
from ..server.ingest.broker_url import BrokerAddress, NatsAddress

_START_S = 10.0
_STOP_S = 5.0
# mosquitto loses reports if it is killed before it has saved, and saving takes time on a busy computer.
_HANGS_S = 60.0


class BrokerError(HushmoteError):
    """Raised if a broker cannot be started or reached; the message says why and what to do."""


class Broker:
    """A running broker, as a context manager.

    Attributes:
        protocol: The protocol that an aggregator should use: "auto" or "3.1.1".
        host, port: The broker's address.
        others: (host, port) of the other servers of a cluster.
        username, password: The credentials, or None.
        name: The broker's name, one word.
        description: One line that says what it is and what it does not guarantee.
    """

    name = "broker"
    description = ""
    protocol: Literal["auto", "3.1.1"] = "auto"

    def __init__(
        self, host: str, port: int, username: str | None = None, password: str | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.username = username
        self.password = password

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Value for --broker; it contains the password, so pass it in the environment."""
        return f"mqtt://{self._login()}{self.host}:{self.port}"

    @property
    def others(self) -> tuple[tuple[str, int], ...]:
        """Addresses at which devices reach the other servers of a cluster."""
        return ()

    def _login(self) -> str:
        if self.username is None:
            return ""
        return f"{quote(self.username, safe='')}:{quote(self.password or '', safe='')}@"

    def start(self) -> None:
        """Return once clients can connect; raises BrokerError."""

    def stop(self) -> None:
        """Stop the broker and remove its files."""


class ExternalBroker(Broker):
    """A broker that is already running, or NATS servers (host and port are those of the first)."""

    name = "external"

    def __init__(self, address: BrokerAddress | NatsAddress) -> None:
        self._nats = address if isinstance(address, NatsAddress) else None
        self._mqtt = address.mqtt if isinstance(address, NatsAddress) else address
        super().__init__(self._mqtt.host, self._mqtt.port, self._mqtt.username, self._mqtt.password)
        retention = "its operator decides what it stores for an absent aggregator"
        self.description = f"broker at {self.host}:{self.port}; {retention}"
        if self._nats is not None:
            self.description = f"{self._nats}; their operator decides how many of them store a report"

    @property
    def url(self) -> str:
        """Value for --broker; it contains the password, so pass it in the environment."""
        if self._nats is None:
            return super().url
        nats = ",".join(f"{host}:{port}" for host, port, _ in self._nats.servers)
        mqtt = ",".join(str(port) for _, _, port in self._nats.servers)
        return f"nats://{self._login()}{nats}?mqtt={mqtt}"

    @property
    def others(self) -> tuple[tuple[str, int], ...]:
        """Addresses at which devices reach all servers but the first."""
        return self._mqtt.others

    def start(self) -> None:
        """Check that one of its servers listens; raises BrokerError."""
        error = OSError()
        for address in ((self.host, self.port), *self.others):
            try:
                socket.create_connection(address, timeout=5).close()
                return
            except OSError as e:
                error = e
        if self._nats is not None:
            raise BrokerError(
                f"none of {self._nats} accepts boards over MQTT; start them or correct the address"
            )
        reason = error.strerror or str(error)
        raise BrokerError(
            f"no broker at {self.host}:{self.port} ({reason}); start one or correct the address"
        )


class EmbeddedBroker(Broker):
    """amqtt in a thread of this process, in memory, on a free port of 127.0.0.1; MQTT 3.1.1 only."""

    name = "amqtt"
    protocol = "3.1.1"
    description = (
        "amqtt, embedded: MQTT 3.1.1, in memory; it delivers to a connected aggregator "
        "and stores almost nothing for an absent one"
    )

    def __init__(self, port: int = 0) -> None:
        super().__init__("127.0.0.1", port)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started = threading.Event()
        self._error: BaseException | None = None

    def start(self) -> None:
        """Return once clients can connect; raises BrokerError."""
        require("amqtt", "the embedded broker", "install mosquitto")
        for name in ("amqtt", "transitions"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        if self.port == 0:
            self.port = free_port()
        self._started.clear()
        self._thread = threading.Thread(target=self._run, name="embedded-broker", daemon=True)
        self._thread.start()
        if not self._started.wait(_START_S) or self._error is not None:
            raise BrokerError(f"the embedded broker did not start: {self._error or 'it took too long'}")

    def stop(self) -> None:
        """Stop the broker; everything in its memory is lost."""
        if self._thread is None:
            return
        if self._loop is not None and self._stop is not None:
            # The loop may have ended already.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_STOP_S)
        self._thread = None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as e:  # start() raises it
            self._error = e
            self._started.set()

    async def _serve(self) -> None:
        from amqtt.broker import Broker as Amqtt

        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        # Keep amqtt's logs, and task errors when clients vanish, off the user's terminal.
        self._loop.set_exception_handler(lambda _loop, _context: None)
        config: dict[str, Any] = {
            "listeners": {"default": {"type": "tcp", "bind": f"{self.host}:{self.port}"}},
            # Use only this plugin because the others log every packet or publish broker statistics.
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
        }
        broker = Amqtt(config)
        await broker.start()
        self._started.set()
        await self._stop.wait()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(broker.shutdown(), _STOP_S / 2)


class ChildBroker(Broker):
    """A broker as a child process with its own folder, on a port of 127.0.0.1.

    terminate(), kill() and restart() keep the folder; stop() removes it.
    """

    _start_s = _HANGS_S  # the longest time that it may take to accept connections

    def __init__(self, port: int = 0) -> None:
        super().__init__("127.0.0.1", port)
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id, or None if it is not running."""
        return None if self._process is None else self._process.pid

    def terminate(self) -> None:
        """Stop the broker cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the broker."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Restart the broker on the same port."""
        self.terminate()
        self.start()

    def stop(self) -> None:
        """Stop the broker and remove its folder."""
        self.terminate()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _launch(self, command: Sequence[str], cwd: Path | None = None) -> None:
        """Start the process; return once clients can connect. Its output goes to the folder's log."""
        assert self._folder is not None
        with open(self._folder / "log", "ab") as output:
            self._process = subprocess.Popen(
                command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        end = time.monotonic() + self._start_s
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection((self.host, self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        lines = (self._folder / "log").read_text(errors="replace").strip().splitlines()
        self.stop()
        raise BrokerError(f"{self.name} did not start: {lines[-1] if lines else 'its log is empty'}")

    def _end(self, signal_number: int) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal_number)
        try:
            self._process.wait(_HANGS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


class MosquittoBroker(ChildBroker):
    """mosquitto as a child process with its own folder, on a free port of 127.0.0.1.

    After terminate(), its messages are on disk, and available again after start(); after kill(), messages
    since its last save, up to two seconds ago, are lost.

    Args:
        password_file: A file written by mosquitto_passwd; without it, anyone on this machine can connect.
        settings: Additional lines for mosquitto.conf.
    """

    name = "mosquitto"
    description = (
        "mosquitto, child process: MQTT 5 and 3.1.1; it stores reports for an absent aggregator, "
        "on disk after two seconds"
    )

    def __init__(
        self, port: int = 0, *, password_file: Path | None = None, settings: tuple[str, ...] = ()
    ) -> None:
        super().__init__(port)
        self._password_file = password_file
        self._settings = settings

    def start(self) -> None:
        """Return once clients can connect; raises BrokerError."""
        program = find_mosquitto()
        if program is None:
            raise BrokerError("mosquitto is not installed; apt install mosquitto, or use the embedded broker")
        if self.port == 0:
            self.port = free_port()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="hushmote-mosquitto-"))
            (self._folder / "mosquitto.conf").write_text("\n".join(self._lines()) + "\n")
        self._launch([program, "-c", str(self._folder / "mosquitto.conf")])

    def _lines(self) -> list[str]:
        login = ["allow_anonymous true"]
        if self._password_file is not None:
            login = ["allow_anonymous false", f"password_file {self._password_file}"]
        return [
            f"listener {self.port} {self.host}",
            *login,
            f"user {getpass.getuser()}",  # as root, it would switch to a user without write access here
            "persistence true",
            f"persistence_location {self._folder}/",
            "autosave_interval 1",  # in practice every two seconds; the default is half an hour
            "max_queued_messages 0",  # the default keeps at most 1,000 messages for an absent aggregator
            f"max_packet_size {MAX_PACKET_BYTES}",  # unlimited by default: 250 MB would pass
            "set_tcp_nodelay true",
            *self._settings,
        ]

    @property
    def saved_ns(self) -> int:
        """Time of the last save, in nanoseconds since the epoch; 0 before the first."""
        file = None if self._folder is None else self._folder / "mosquitto.db"
        return file.stat().st_mtime_ns if file is not None and file.exists() else 0


def find_mosquitto() -> str | None:
    """Return mosquitto's path, or None; Debian installs it in sbin, which is not on every PATH."""
    path = os.environ.get("PATH", os.defpath)
    return shutil.which("mosquitto", path=os.pathsep.join((path, "/usr/local/sbin", "/usr/sbin")))


def free_port() -> int:
    """Return a free TCP port of 127.0.0.1 that the kernel does not hand out again for a minute."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        # If this end closes a connection first, it stays in TIME_WAIT, and the kernel does not hand out
        # its port, although servers can still bind to it.
        with socket.create_connection(address):
            server.accept()[0].close()
        return address[1]
