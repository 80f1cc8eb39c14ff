"""Infer a test's requirements from its code, its fixtures and the helpers in tests/ they call.

No marker has to be set by hand: conftest.py adds those from marks() to every test, and skips tests whose
requirements, from lacking(), this machine does not meet. If this inference misses a use of one of PROGRAMS,
the test fails in refuse() when it starts that program.
"""

import functools
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

import pytest

from hushmote.simulator.broker import find_mosquitto

_MOSQUITTO = "" if find_mosquitto() else "mosquitto is not installed: apt install mosquitto"
_SHOWS = shutil.which("chromium") and shutil.which("chromedriver")
# Names in a test's code, and why tests with them cannot run on this machine ("" if they can).
LACKS: Mapping[str, str] = {
    "MosquittoBroker": _MOSQUITTO,
    "FleetBroker": _MOSQUITTO,
    "browsing": "" if _SHOWS else "no Chromium: apt install chromium chromium-driver",
}
# Names in a test's code, and the markers of tests with them.
MARKS: Mapping[str, str] = {
    "EmbeddedBroker": "broker",
    "MosquittoBroker": "broker",
    "FleetBroker": "broker",
    "NatsServers": "broker",
    "FleetServers": "broker",
    "open_broker": "broker",
    "find_mosquitto": "broker",
    "find_nats_server": "broker",
    "Browser": "browser",
    "browsing": "browser",
    "paged": "slow",  # a process of `hushmote page`
    "Cluster": "database",
    "needs_postgres": "database",
    "needs_pgbouncer": "database",
    "Pgbouncer": "database",
    "find_runtime": "micropython",
    "SoftwareBoard": "micropython",
    "runtimes": "micropython",
    "runtimes_here": "micropython",
    "RUNTIMES": "micropython",
    "Served": "slow",  # a process of `hushmote serve`
    "hushmote_process": "slow",
    "HomeAssistant": "slow",
    "StudyRun": "slow",  # a whole study; its module's tests check parts of it
}
# Programs, and the markers that a test needs to start them.
PROGRAMS: Mapping[str, str] = {
    "chromium": "browser",
    "chromedriver": "browser",
    "mosquitto": "broker",
    "nats-server": "broker",
    "postgres": "database",
    "initdb": "database",
    "pgbouncer": "database",
    "micropython": "micropython",
    "node": "micropython",
}


def marks(item: pytest.Function) -> set[str]:
    """Return the markers of a test."""
    needed = {MARKS[name] for name in _known(item) if name in MARKS}
    callspec = getattr(item, "callspec", None)
    # store_url requests its database fixture by name at run time.
    if callspec is not None and "postgresql" in map(str, callspec.params.values()):
        needed.add("database")
    return needed


def lacking(item: pytest.Function) -> str:
    """Return the requirement of a test that this machine does not meet, or ""."""
    return next((LACKS[name] for name in _known(item) if LACKS.get(name)), "")


def refuse(marked: set[str], arguments: Any) -> None:
    """Raise RuntimeError if a test starts a program without having its marker."""
    words = [arguments] if isinstance(arguments, str) else [os.fsdecode(a) for a in arguments]
    for word in words[:5]:  # `runuser -u postgres -- /usr/lib/.../initdb`
        needed = PROGRAMS.get(os.path.basename(word)) if os.path.isabs(word) or word is words[0] else None
        if needed is not None and needed not in marked:
            raise RuntimeError(f"a test without the marker {needed} starts {word}: add it, or to reach.MARKS")


def _known(item: pytest.Function) -> frozenset[str]:
    """Return the names of MARKS and LACKS that are in the code of a test or of its fixtures."""
    fixtures = item._fixtureinfo.name2fixturedefs
    return _needed((item.function, *(d.func for name in item.fixturenames for d in fixtures.get(name, ()))))


@functools.cache  # a parametrized test can have hundreds of items
def _needed(functions: tuple[Any, ...]) -> frozenset[str]:
    seen: set[int] = set()
    return frozenset({name for f in functions for name in _names(f, seen)} & (MARKS.keys() | LACKS.keys()))


def _names(thing: Any, seen: set[int]) -> Iterator[str]:
    """Return every name in the code of a function or class, and in the tests/ code it refers to."""
    thing = getattr(thing, "__wrapped__", thing)  # a context manager's or fixture's own function
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, type):
        for value in vars(thing).values():
            yield from _names(value, seen)
    elif isinstance(thing, FunctionType):
        for name in _of_code(thing.__code__):
            yield name
            value = thing.__globals__.get(name)
            if _of_tests(value):
                yield from _names(value, seen)


def _of_tests(thing: Any) -> bool:
    module = sys.modules.get(getattr(thing, "__module__", None) or "")
    return f"{os.sep}tests{os.sep}" in str(getattr(module, "__file__", ""))


def _of_code(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)
