"""A process that watches a store beside a running aggregator: how it is started, restarted and read.

Estimates take seconds of CPU time, so they run in such a process and never delay the aggregator. Nothing in
it can stop the aggregator: a failure is logged in one line and retried.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

from ...server.errors import HushmoteError
from ...server.ingest.pacing import Backoff
from ...server.store.counting import ClockWrong
from ...server.wire.experiments import FOLDERS

log = logging.getLogger(__name__)

POLL_S = 5.0
"""The longest pause between two turns of a worker."""
_MAX_WAIT_S = 60.0
_STOP_S = 5.0
_NICE = 10


class WorkerProcess:
    """Keeps a worker running and takes its updates; a context manager.

    Subclasses define take(), and fail() to note failures.

    Args:
        module: The module to run, whose main() calls serve_updates().
        request: The worker's settings, plain values. They are not on its command line, which every user of
            the machine can read.
        task: What it does, as in "computing results failed".
    """

    def __init__(self, module: str, request: Mapping[str, Any], task: str) -> None:
        self._module = module
        self._request = {**request, "folders": FOLDERS}
        self._task = task
        self._process: subprocess.Popen[str] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=module.rpartition(".")[2], daemon=True)
        self._noted: set[str] = set()
        self._error = ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        process = self._process
        if process is not None:
            self.stop(process)
        self._thread.join(_STOP_S)

    def stop(self, process: subprocess.Popen[str]) -> None:
        """End the process; by default at once, because it only reads."""
        process.kill()

    def take(self, update: Mapping[str, Any]) -> None:
        """Use an update."""
        raise NotImplementedError

    def fail(self) -> None:
        """Note that the newest update failed."""

    def _run(self) -> None:
        backoff = Backoff(_MAX_WAIT_S)
        while not self._stopping.is_set():
            try:
                status = self._read_one_process(backoff)
                text = f"the process for {self._task} ended with status {status}: restarting it"
            except Exception as e:  # of the process or its output; the message may contain anything
                text = f"{self._task} failed ({type(e).__name__}): retrying"
            if not self._stopping.is_set():
                self._note_failure(text)
                self._stopping.wait(backoff.next_s())

    def _read_one_process(self, backoff: Backoff) -> int:
        """Start a process, read its updates until it ends, and return its exit status."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", self._module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            text=True,
            start_new_session=True,  # Ctrl-C goes to the aggregator only
        )
        self._process = process
        with process:
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps(self._request) + "\n")
                process.stdin.flush()
                for line in () if self._stopping.is_set() else process.stdout:
                    self._take_line(json.loads(line))
                    backoff.reset()
            finally:
                process.kill()
        return process.returncode

    def _take_line(self, update: dict[str, Any]) -> None:
        if "error" in update:
            self._note_failure(f"{self._task} failed: {update['error']}")
            return
        if self._error:
            log.info("%s again", self._task)
            self._error = ""
        for note in update["notes"]:
            if note not in self._noted:
                self._noted.add(note)
                log.warning("%s", note)
        self.take(update)

    def _note_failure(self, text: str) -> None:
        if text != self._error:
            log.error("%s", text)
        self._error = text
        self.fail()


def _environment() -> dict[str, str]:
    """Return the environment without Hushmote's keys and passwords, which the process does not need."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HUSHMOTE_")}


def serve_updates(
    start: Callable[[dict[str, Any]], tuple[Callable[[], dict[str, Any] | None], Callable[[], None]]],
    wait_s: Callable[[dict[str, Any]], float] = lambda _: POLL_S,
) -> None:
    """Print a worker's updates until its input ends, which means that the aggregator has exited.

    Args:
        start: Takes the request, and returns a function for one turn, which returns an update or None, and
            one that closes the store. It is called again after an error.
        wait_s: Takes the request and returns the pause between two turns.
    """
    # The end of input ends the process, even if systemd signals the whole process group.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(_NICE)
    request = json.loads(sys.stdin.readline())
    FOLDERS.extend(request["folders"])
    turns = None
    while True:
        try:
            turns = turns or start(request)
            update = turns[0]()
        except ClockWrong as e:  # with a wrong clock, the running window might seem to have ended
            update = {"error": e.reason}
        except HushmoteError as e:
            turns, update = _close(turns), {"error": str(e)}
        except Exception as e:
            turns, update = (
                _close(turns),
                {"error": f"a bug in Hushmote, {type(e).__name__}: please report it"},
            )
        if update is not None:
            print(json.dumps(update), flush=True)
        if select.select([sys.stdin], [], [], wait_s(request))[0]:
            if turns is not None:
                turns[1]()
            return


def _close(turns: tuple[Callable[[], Any], Callable[[], None]] | None) -> None:
    if turns is not None:
        turns[1]()
