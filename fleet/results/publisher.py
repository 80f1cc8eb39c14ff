"""Results for a running aggregator and for scrapes, computed in a separate process.

Nothing here can stall or stop the aggregator: it uses the newest results, and a failure is logged in one line
and retried.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from ...server.ingest.pacing import Backoff
from ...server.wire.experiments import FOLDERS
from .publication import Gauge, Publication, Scrape

log = logging.getLogger(__name__)

_MAX_WAIT_S = 60.0
_STOP_S = 5.0


class Publisher:
    """The results of a store, kept up to date by a separate process; a context manager.

    Attributes:
        retained: The payload to retain for each topic, empty to clear it; a new object after every update.
        findings: The gauges for a scrape.
    """

    def __init__(self, store: str, publication: Publication) -> None:
        self._request = {"store": store, "publication": asdict(publication), "folders": FOLDERS}
        self._process: subprocess.Popen[str] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="results", daemon=True)
        self._noted: set[str] = set()
        self._error = ""
        self.retained: Mapping[str, bytes] = MappingProxyType({})
        self.findings = Scrape()

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        if self._process is not None:
            self._process.kill()  # it only reads
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        backoff = Backoff(_MAX_WAIT_S)
        while not self._stopping.is_set():
            try:
                status = self._read_one_process(backoff)
                text = f"the process that computes results ended with status {status}: restarting it"
            except Exception as e:  # of the process or its output; the message may contain anything
                text = f"cannot compute results ({type(e).__name__}): retrying"
            if not self._stopping.is_set():
                self._fail(text)
                self._stopping.wait(backoff.next_s())

    def _read_one_process(self, backoff: Backoff) -> int:
        """Start a process, read its updates until it ends, and return its exit status."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "hushmote.fleet.results.worker"],
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
                # Not on the command line, which every user of the machine can read.
                process.stdin.write(json.dumps(self._request) + "\n")
                process.stdin.flush()
                for line in () if self._stopping.is_set() else process.stdout:
                    self._take(json.loads(line))
                    backoff.reset()
            finally:
                process.kill()
        return process.returncode

    def _take(self, update: dict[str, Any]) -> None:
        if "error" in update:
            self._fail(f"cannot compute results: {update['error']}")
            return
        if self._error:
            log.info("computing results again")
            self._error = ""
        for note in update["notes"]:
            if note not in self._noted:
                self._noted.add(note)
                log.warning("%s", note)
        self.retained = MappingProxyType({t: payload.encode() for t, payload in update["retained"].items()})
        self.findings = Scrape([Gauge(*gauge) for gauge in update["gauges"]], update["at"])

    def _fail(self, text: str) -> None:
        if text != self._error:
            log.error("%s", text)
        self._error = text
        self.findings = self.findings._replace(failing=True)


def _environment() -> dict[str, str]:
    """Return the environment without Hushmote's keys and passwords, which the process does not need."""
    return {name: value for name, value in os.environ.items() if not name.startswith("HUSHMOTE_")}
