"""`hushmote serve` and `hushmote page` as processes of their own, for demos."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO

from ..server.errors import HushmoteError
from ..server.ingest.broker_url import is_nats
from ..server.service.process import READY
from .broker import Broker

_START_S = 30.0
_STOP_S = 10.0


class ServerProcessError(HushmoteError):
    """A process that did not come up; the text says which, and why."""


@contextmanager
def aggregator(
    broker: Broker, store: str, key_file: Path, log: Path, options: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """`hushmote serve`, subscribed; log: the file of its standard error. Raises ServerProcessError."""
    command = ["serve", "--store", store, "--master-key", str(key_file), *options]
    environment = broker_of(broker) | {"HUSHMOTE_CLIENT_ID": "hushmote-demo"}
    if not is_nats(broker.url):
        environment["HUSHMOTE_PROTOCOL"] = broker.protocol
    with _process(command, environment, log) as (process, line):
        if line != READY:
            raise ServerProcessError(f"the aggregator did not start: {line or _last_line(log)}")
        yield process


@contextmanager
def page(
    store: str, log: Path, options: Sequence[str], environment: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`hushmote page` and its URL, once it listens; as aggregator()."""
    with _process(["page", "--store", store, *options], environment, log) as (process, line):
        if "http" not in line:
            raise ServerProcessError(f"the page did not start: {line or _last_line(log)}")
        yield process, line.split()[-1]


def broker_of(broker: Broker) -> dict[str, str]:
    """The environment that tells a command its broker.

    The URL can hold a password: it does not belong where everybody on the machine can read it.
    """
    return {"HUSHMOTE_BROKER": broker.url}


@contextmanager
def _process(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of `hushmote`, and the first line that it printed; empty where it printed none in time."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HUSHMOTE_")}
    with open(log, "w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "hushmote", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env=inherited | dict(environment),
        )
        assert process.stdout is not None
        lines: SimpleQueue[str] = SimpleQueue()
        Thread(target=_read_lines, args=(process.stdout, lines), daemon=True).start()
        try:
            yield process, _first(lines)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _read_lines(stream: IO[str], lines: SimpleQueue[str]) -> None:
    for line in stream:
        lines.put(line.strip())
    lines.put("")


def _first(lines: SimpleQueue[str]) -> str:
    try:
        return lines.get(timeout=_START_S)
    except Empty:
        return "it took too long"


def _last_line(log: Path) -> str:
    return (log.read_text(encoding="utf-8").strip().splitlines() or ["it said nothing"])[-1]
