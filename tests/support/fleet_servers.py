"""Real NATS servers with a fleet folder's exact configurations."""

import contextlib
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
from fleet_broker import FLEET, Visitor, context
from running_aggregator import WAIT_S, until

from hushmote.fleet.provisioning import fleet_folder
from hushmote.fleet.provisioning.fleet_folder import FleetFolder
from hushmote.fleet.provisioning.fleet_spec import FleetSpec
from hushmote.simulator.broker import free_port
from hushmote.simulator.nats_servers import find_nats_server, is_healthy

THREE = ("127.0.0.1", "127.0.0.2", "127.0.0.3")  # loopback addresses


def make_nats_fleet(
    path: Path, hosts: Sequence[str] = ("localhost",), *, board_host: str = ""
) -> FleetFolder:
    """Create a fleet folder with free ports for one or three NATS servers."""
    port, nats, cluster, monitor = (free_port() for _ in range(4))
    fleet = FleetSpec(
        FLEET,
        tuple(hosts),
        port=port,
        aggregator_port=nats,
        broker="nats",
        cluster_port=cluster,
        monitor_port=monitor,
        board_host=board_host,
    )
    return fleet_folder.make(path, fleet, write_master=True)


class FleetServers:
    """NATS servers on a fleet folder, as started by `nats-server -c FOLDER/broker/1/nats.conf`."""

    def __init__(self, folder: FleetFolder) -> None:
        program = find_nats_server()
        if program is None:
            pytest.skip("nats-server is not installed")
        self.folder = folder
        self._program = program
        self._processes: dict[int, subprocess.Popen[Any]] = {}

    def start(self, *numbers: int) -> None:
        """Start these servers (numbered from 1; all by default) and wait until they are healthy."""
        numbers = numbers or tuple(range(1, len(self.folder.fleet.hosts) + 1))
        for number in numbers:
            server_folder = self.folder.path / f"broker/{number}"
            with open(server_folder / "log", "ab") as log:
                self._processes[number] = subprocess.Popen(
                    [self._program, "-c", str(server_folder / "nats.conf")],
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        for number in numbers:
            until(lambda number=number: self.is_healthy(number), lambda: self.log(*numbers)[-2000:])

    def is_healthy(self, number: int) -> bool:
        assert self._processes[number].poll() is None, f"server {number} ended"
        return is_healthy(self.folder.fleet.hosts[number - 1], self.folder.fleet.monitor_port)

    def pid(self, number: int = 1) -> int:
        return self._processes[number].pid

    def log(self, *numbers: int) -> str:
        parts = [f"broker/{n}/log" for n in numbers or self._processes]
        return "".join((self.folder.path / part).read_text(errors="replace") for part in parts)

    def adopt(self, number: int, process: subprocess.Popen[Any]) -> None:
        """Register a server that the caller started and will stop."""
        self._processes[number] = process

    def retained_messages(self, pem: Path, topics: str, number: int) -> dict[str, bytes]:
        """Wait for retained messages on these topics and return them, as a new client of this server.

        nats-server may miss them at startup (docs/survives.md); it is then restarted to read them again.
        """
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            # Servers refuse clients for some seconds after a restart.
            with contextlib.suppress(OSError), connect_client(self.folder, pem, server=number) as reader:
                if reader.connected():
                    reader.subscribe(topics)
                    patience = time.monotonic() + 10
                    while time.monotonic() < patience and not reader.ended:
                        if reader.messages:
                            return dict(reader.messages)
                        time.sleep(0.02)
                    if not reader.ended:
                        self.kill(number)
                        self.start(number)
            time.sleep(0.2)
        raise AssertionError(f"server {number} lets nobody in, or has nothing at {topics}")

    def hang_up(self) -> None:
        """Send SIGHUP to all servers."""
        for process in self._processes.values():
            process.send_signal(signal.SIGHUP)

    def reload(self) -> None:
        """Reload with SIGHUP, as an operator does after a revocation or rotation, and wait for the reload."""
        reload_line = "Reloaded server configuration"
        for number, process in self._processes.items():
            before = self.log(number).count(reload_line)
            process.send_signal(signal.SIGHUP)
            until(
                lambda n=number, b=before: self.log(n).count(reload_line) > b,
                lambda n=number: f"nats-server reads its files again: {self.log(n)[-2000:]}",
            )

    def kill(self, *numbers: int) -> None:
        for number in numbers or tuple(self._processes):
            process = self._processes.pop(number)
            process.kill()
            process.wait()

    def stop(self) -> None:
        """Stop all servers cleanly and keep the fleet's folder."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(WAIT_S)
            process.kill()
            process.wait()
        self._processes.clear()


@contextlib.contextmanager
def serving(folder: FleetFolder) -> Iterator[FleetServers]:
    servers = FleetServers(folder)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


@contextlib.contextmanager
def connect_client(
    folder: FleetFolder, pem: Path | None, *, server: int = 1, client_id: str | None = None, **options
) -> Iterator[Visitor]:
    """Provide an MQTT 3.1.1 client of a server; its client id is unique unless given."""
    visitor = Visitor(
        folder.fleet.port,
        context(folder, pem),
        protocol=paho.MQTTv311,
        host=folder.fleet.hosts[server - 1],
        client_id=client_id or secrets.token_hex(8),
        **options,
    )
    try:
        yield visitor
    finally:
        visitor.close()
