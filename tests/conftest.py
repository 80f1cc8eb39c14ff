"""Fixtures for tests in several modules, and every test's markers."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import markers
import pytest
from _pytest.junitxml import xml_key
from hypothesis import HealthCheck, settings
from postgres import pgbouncer, postgres, postgres_url
from serve_process import add_fleet

from hushmote.server.store import Store

__all__ = ["pgbouncer", "postgres", "postgres_url", "store_url"]

# They provide a board to flash, servers' networks and disks, and a folder for custom code.
pytest_plugins = ["flashing", "nats_sites", "custom_mechanisms"]

# An example's time is meaningless on a busy machine.
settings.register_profile("hushmote", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hushmote")

_running: list[set[str]] = []  # the running test's markers


@pytest.hookimpl(trylast=True)  # after the plugin for JUnit files
def pytest_configure(config: pytest.Config) -> None:
    # Processes that a shell starts with & ignore Ctrl-C, as do their children, so tests that send it would
    # fail.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(_watch)
    xml = config.stash.get(xml_key, None)
    if xml is not None and (commit := _commit()):
        xml.add_global_property("commit", commit)  # `hushmote statement write --tests` states it


def _commit() -> str:
    """Return the commit, with "-changed" if tracked files differ from it, or "" outside a clone."""
    folder = Path(__file__).parent
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=-changed"]
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _running:
        markers.refuse(_running[-1], arguments[1])


@pytest.hookimpl(tryfirst=True)  # before -m selects tests
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
    gc.disable()  # collected tests stay alive; scanning them repeatedly takes an eighth of the time
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
    """Provide the URL of a store that does not exist yet, in SQLite and in PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.sqlite'}"
    return request.getfixturevalue("postgres_url")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Provide a new SQLite store with an open fleet "open" and its experiment "temp"."""
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
        add_fleet(store)
        yield store
