"""Run `hushmote serve` as a process that is killed and restarted."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import boards as wire
from running_aggregator import WAIT_S

from hushmote.server.wire import keys


class AggregatorProcess:
    """A `hushmote serve` process that can be started, killed and restarted; it logs to a file."""

    def __init__(
        self,
        log: Path,
        store_url: str,
        broker_url: str,
        options: Sequence[str],
        program: Sequence[str],
        names: Mapping[str, str],
    ) -> None:
        self.log = log
        self._command = [sys.executable, *program, "serve", "--store", store_url]
        self._command += ["--broker", broker_url, *options]
        self._environment = (
            os.environ
            | dict(names)
            | {keys.ENVIRONMENT_VARIABLE: f"{wire.MASTER.hex()},signing:{wire.MASTER.hex()}"}
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0
        self.exits: list[int] = []

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self._started_at = log.tell()
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    @property
    def is_ready(self) -> bool:
        """Return whether it has subscribed since it was started."""
        return self.has_subscribed_since(self._started_at)

    @property
    def logged_bytes(self) -> int:
        """Return the number of bytes logged over all runs."""
        return self.log.stat().st_size

    def has_subscribed_since(self, logged_bytes: int) -> bool:
        """Return whether it is running and has subscribed since this point in its log."""
        if self._process is None:
            return False
        if self._process.poll() is not None:
            last = self.log.read_text()[-2000:]
            # If its database is unavailable at startup it exits with an error; restart it as a
            # service manager would.
            assert self._process.returncode == 1, last
            assert "hushmote: cannot use postgresql" in last[last.rfind("ready\n") :], last
            self.start()
            return False
        return b"ready\n" in self.log.read_bytes()[max(logged_bytes, self._started_at) :]

    def has_logged(self, text: str) -> bool:
        """Return whether it has logged this text since it was started."""
        return text.encode() in self.log.read_bytes()[self._started_at :]

    def signal(self, number: int) -> None:
        """Send a signal that the process survives."""
        if self._process is not None:
            self._process.send_signal(number)

    def end(self, number: int) -> None:
        """Send a terminating signal and wait for the process to exit."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        code = process.wait(WAIT_S)
        if number == signal.SIGTERM:
            self.exits.append(code)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Like running.until(), but in the event loop that boards and proxies share."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"not {what} in {WAIT_S:g} s"
        await asyncio.sleep(0.02)
