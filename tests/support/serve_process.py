"""`hushmote serve` as a real process, for tests of signals, HTTP, logs and sharing."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from queue import Empty, SimpleQueue
from threading import Thread

from boards import ask_fleet, experiment
from running_aggregator import WAIT_S

from hushmote.server.service.process import READY


def with_setting(module, name, value):
    """Return a script for Served that runs the command with one constant changed, to shorten a wait."""
    return f"""
import sys
import hushmote.server.{module} as module
from hushmote.cli.main import main
module.{name} = {value}
sys.argv[0] = "hushmote"
main()
"""


class Served:
    """A `hushmote serve` process; .log() returns its standard error so far.

    environment: additional variables. script: Python code to run instead of `-m hushmote`.
    """

    def __init__(self, *arguments, environment=None, script=None):
        program = ["-m", "hushmote"] if script is None else ["-c", script]
        command = [sys.executable, *program, "serve", *map(str, arguments)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith("HUSHMOTE_")}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=clean | (environment or {}),
        )
        self._lines: list[str] = []
        self._out: SimpleQueue[str] = SimpleQueue()
        self._readers = [Thread(target=self._read_log), Thread(target=self._read_out)]
        for reader in self._readers:
            reader.start()

    def _read_log(self):
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.append(line)

    def _read_out(self):
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._out.put(line.strip())

    def log(self):
        return "".join(self._lines)

    def ready(self):
        """Wait until it is subscribed."""
        try:
            assert self._out.get(timeout=WAIT_S) == READY, self.log()
        except Empty:
            raise AssertionError(f"not ready: {self.log()}") from None
        return self

    def wait(self):
        """Wait for it to exit and return its exit status."""
        status = self.process.wait(WAIT_S)
        for reader in self._readers:
            reader.join(WAIT_S)
        return status

    def end(self, number=signal.SIGTERM):
        """Send a signal, wait for it to exit and return its exit status."""
        self.process.send_signal(number)
        return self.wait()


@contextlib.contextmanager
def served(*arguments, **options):
    """Run `hushmote serve`, and kill it at the end if it is still running."""
    process = Served(*arguments, **options)
    try:
        yield process
    finally:
        process.process.kill()
        process.wait()


def get(url):
    """GET a URL and return (status, body)."""
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def health(url):
    """Return /healthz's status and its reason, or None without a reason."""
    status, body = get(url + "/healthz")
    return status, json.loads(body).get("reason")


def add_fleet(store, name="open"):
    """Give a store an open fleet with the experiment temp."""
    ask_fleet(store, name, experiment())
