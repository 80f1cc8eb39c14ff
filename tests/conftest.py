"""Fixtures that tests of several modules take, and the markers of every test."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import markers
import pytest
from hypothesis import HealthCheck, settings
from postgres import pgbouncer, postgres, postgres_url
from serve_process import add_fleet

from hushmote.server.store import Store

__all__ = ["pgbouncer", "postgres", "postgres_url", "store_url"]

# Their fixtures: a board to flash, networks and disks of servers, a folder of custom code.
pytest_plugins = ["flashing", "nats_sites", "custom_mechanisms"]

# How long an example takes says nothing on a machine that has other work.
settings.register_profile("hushmote", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hushmote")

_running: list[set[str]] = []  # the markers of the test that runs


def pytest_configure() -> None:
    # What a shell starts with & ignores Ctrl-C, and so do its children: tests that send one would fail.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(_watch)


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _running:
        markers.refuse(_running[-1], arguments[1])


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not os.environ.get("LONG"):
        left = [item for item in items if item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    for item in items:
        if isinstance(item, pytest.Function):
            for marker in sorted(markers.marks(item)):
                item.add_marker(marker)
            if lacks := markers.lacking(item):
                item.add_marker(pytest.mark.skip(lacks))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    gc.disable()  # what is collected stays: looking through it again and again is an eighth of the time
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _running.append({marker.name for marker in item.iter_markers()})
    try:
        return (yield)
    finally:
        _running.pop()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path) -> str:
    """Provide the URL of a store that is not made yet, in SQLite and in PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.sqlite'}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Provide a new SQLite store with an open fleet, "open", and its experiment "temp"."""
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
        add_fleet(store)
        yield store
