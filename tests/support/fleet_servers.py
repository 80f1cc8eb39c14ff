"""Real NATS servers on exactly the configurations that a fleet's folder holds."""

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

THREE = ("127.0.0.1", "127.0.0.2", "127.0.0.3")  # each of this machine alone


def make_nats_fleet(
    path: Path, hosts: Sequence[str] = ("localhost",), *, board_host: str = ""
) -> FleetFolder:
    """Make a new fleet's folder on free ports, for one NATS server or three."""
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
    """NATS servers on a fleet's folder, as `nats-server -c FOLDER/broker/1/nats.conf` starts each."""

    def __init__(self, folder: FleetFolder) -> None:
        program = find_nats_server()
        if program is None:
            pytest.skip("nats-server is not installed")
        self.folder = folder
        self._program = program
        self._processes: dict[int, subprocess.Popen[Any]] = {}

    def start(self, *numbers: int) -> None:
        """Start these servers, numbered from 1, all where none is named, and wait until they are well."""
        numbers = numbers or tuple(range(1, len(self.folder.fleet.hosts) + 1))
        for number in numbers:
            where = self.folder.path / f"broker/{number}"
            with open(where / "log", "ab") as log:
                self._processes[number] = subprocess.Popen(
                    [self._program, "-c", str(where / "nats.conf")],
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
        for number in numbers:
            until(lambda number=number: self.healthy(number), lambda: self.log(*numbers)[-2000:])

    def healthy(self, number: int) -> bool:
        assert self._processes[number].poll() is None, f"server {number} ended"
        return is_healthy(self.folder.fleet.hosts[number - 1], self.folder.fleet.monitor_port)

    def pid(self, number: int = 1) -> int:
        return self._processes[number].pid

    def log(self, *numbers: int) -> str:
        parts = [f"broker/{n}/log" for n in numbers or self._processes]
        return "".join((self.folder.path / part).read_text(errors="replace") for part in parts)

    def adopt(self, number: int, process: subprocess.Popen[Any]) -> None:
        """Take a server that someone else started, and ends."""
        self._processes[number] = process

    def found(self, pem: Path, topics: str, number: int) -> dict[str, bytes]:
        """Return what is retained at topics, once there is something, for a new client of this server.

        nats-server may miss it as it starts (docs/survives.md): it is started again then, and reads it anew.
        """
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            # Servers that have just come back refuse for some seconds.
            with contextlib.suppress(OSError), at(self.folder, pem, server=number) as reader:
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
        """Send all SIGHUP."""
        for process in self._processes.values():
            process.send_signal(signal.SIGHUP)

    def reload(self) -> None:
        """Reload as an operator does after a revocation or rotation, by SIGHUP; return when it is done."""
        done = "Reloaded server configuration"
        for number, process in self._processes.items():
            before = self.log(number).count(done)
            process.send_signal(signal.SIGHUP)
            until(
                lambda n=number, b=before: self.log(n).count(done) > b,
                lambda n=number: f"nats-server reads its files again: {self.log(n)[-2000:]}",
            )

    def kill(self, *numbers: int) -> None:
        for number in numbers or tuple(self._processes):
            process = self._processes.pop(number)
            process.kill()
            process.wait()

    def stop(self) -> None:
        """End all in good order; the fleet's folder stays."""
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
def at(
    folder: FleetFolder, pem: Path | None, *, server: int = 1, client_id: str | None = None, **options
) -> Iterator[Visitor]:
    """Provide a client of a server, over MQTT 3.1.1; its id is its own where none is given."""
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
