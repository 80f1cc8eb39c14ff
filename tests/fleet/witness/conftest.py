"""Fixtures for witnesses: a clock, a state file, and a log with one question."""

import pytest
from public_log import Clock, PublicLog, version

from hushmote.fleet.witness.state import StateFile


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def file(tmp_path):
    with StateFile(tmp_path / "state.json") as file:
        yield file


@pytest.fixture
def log(tmp_path):
    return PublicLog(tmp_path / "log", [version()])
