"""Debian's RabbitMQ with its MQTT plugin as a child process, to test which guarantees it gives."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from running_aggregator import WAIT_S, until

from hushmote.simulator.broker import Broker, free_port

# Unlike this one, the script in sbin switches the user.
_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def find_rabbitmq() -> bool:
    """Return whether rabbitmq-server is installed."""
    return _SERVER.exists() and shutil.which("epmd") is not None


class RabbitMq(Broker):
    """RabbitMQ with its own folder, name service and MQTT 3.1.1 port; anyone may connect."""

    name = "rabbitmq"
    protocol = "3.1.1"

    def __init__(self) -> None:
        super().__init__("127.0.0.1", 0)
        self._folder: Path | None = None
        self._names: subprocess.Popen[Any] | None = None
        self._process: subprocess.Popen[Any] | None = None
        self._environment: dict[str, str] = {}

    def start(self) -> None:
        """Start RabbitMQ; return once it accepts MQTT connections."""
        if self._folder is None:
            self._configure()
        assert self._folder is not None
        with open(self._folder / "log", "ab") as output:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": output}
            if self._names is None:
                # Otherwise it would start a name service that outlives it, on a machine-wide port.
                port = self._environment["ERL_EPMD_PORT"]
                self._names = subprocess.Popen(["epmd", "-port", port, "-address", "127.0.0.1"], **options)
            self._process = process = subprocess.Popen(
                [str(_SERVER)], env=self._environment, start_new_session=True, **options
            )
        until(lambda: self._listens() or process.poll() is not None, f"RabbitMQ starts: see {self._folder}")
        assert process.poll() is None, f"RabbitMQ did not start: see {self._folder}"

    def terminate(self) -> None:
        """Stop RabbitMQ cleanly."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill RabbitMQ."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop RabbitMQ and remove its folder."""
        self._end(signal.SIGKILL)
        if self._names is not None:
            self._names.kill()
            self._names.wait()
            self._names = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _configure(self) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="hushmote-rabbitmq-"))
        self.port = free_port()
        lines = (
            "listeners.tcp = none",
            f"mqtt.listeners.tcp.1 = {self.host}:{self.port}",
            "mqtt.allow_anonymous = true",
        )
        (folder / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (folder / "plugins").write_text("[rabbitmq_mqtt].\n")
        self._environment = os.environ | {
            "HOME": str(folder),
            "ERL_EPMD_ADDRESS": self.host,
            "ERL_EPMD_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_LOG_BASE": str(folder),
            "RABBITMQ_MNESIA_BASE": str(folder / "kept"),
            "RABBITMQ_NODENAME": f"hushmote-{self.port}@localhost",
        }

    def _end(self, number: int) -> None:
        if self._process is None:
            return
        # The process is a shell with the Erlang machine under it, in a separate session.
        os.killpg(self._process.pid, number)
        self._process.wait(WAIT_S)
        self._process = None
        until(lambda: not self._listens(), "the shell is gone; the machine may need a moment")

    def _listens(self) -> bool:
        with socket.socket() as s:
            return s.connect_ex((self.host, self.port)) == 0
