"""The board's demo follows the lines that a board prints; tests/cli runs it with a real board."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from command_line import DOOR
from refusals import fails

from hushmote.server.experiments import definition
from hushmote.server.store.number_set import NumberSet
from hushmote.server.store.store import Store
from hushmote.simulator import board_demo
from hushmote.simulator.board_demo import FLEET, NAME, _Trial
from hushmote.simulator.deployment import DemoError, Place

QUESTION = definition.parse(DOOR.replace("door_open", NAME))
SPENT = f"hushmote: {NAME}: silent: its budget is spent, after 2 reports"


class CountedTrial(_Trial):
    """A trial in which the store gets one more report after each look at it."""

    def count(self) -> int:
        counted = super().count()
        with self._store.ingest() as transaction:
            transaction.write({(FLEET, NAME, f"device-{counted}"): NumberSet(1)}, {}, {})
        return counted


class EmptyOnce(SimpleQueue[str]):
    """A queue that a caller must not wait for a second time."""

    def get(self, block: bool = True, timeout: float | None = None) -> str:
        assert self.empty()
        self.put("")
        raise Empty


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store:
        store.add_fleet(FLEET, keyed=True)
        store.add_experiment(FLEET, QUESTION.payload(), QUESTION.expires)
        yield store


def trial(store: Store, folder: Path, *lines: str, kind: type[_Trial] = _Trial) -> _Trial:
    """Return a trial whose board has printed these lines, and whose aggregator has ended."""
    board = kind(Place("auto", folder), store, QUESTION.experiment(), lambda _: False)
    board.aggregator = subprocess.Popen([sys.executable, "-S", "-c", ""], text=True)
    board.aggregator.wait()
    for line in lines:
        board.lines.put(line)
    return board


class TestTrial:
    def test_ends_once_the_last_report_is_counted(self, store: Store, tmp_path: Path, capsys):
        lines = (SPENT, "hushmote: 1 sent, 1 waiting", "hushmote: 1 sent, 0 waiting", "not read")
        board = trial(store, tmp_path, *lines, kind=CountedTrial)
        board.follow()
        assert board.lines.get_nowait() == "not read"
        assert board.reports == 2
        printed = " ".join(capsys.readouterr().out.split())
        assert "counted by the aggregator: 2 silent the board's budget is used up permanently" in printed

    def test_names_the_log_if_reports_are_not_counted(self, store: Store, tmp_path: Path, monkeypatch):
        monkeypatch.setattr(board_demo, "_WAIT_S", 0)
        board = trial(store, tmp_path, SPENT, "hushmote: 2 sent, 0 waiting")
        with fails(f"counted 0 of 2 reports; {tmp_path / 'aggregator.log'} says why", DemoError):
            board.follow()

    def test_names_the_log_if_the_aggregator_has_ended(self, store: Store, tmp_path: Path):
        board = trial(store, tmp_path)
        board.lines = EmptyOnce()
        with fails(f"the aggregator ended; {tmp_path / 'aggregator.log'} says why", DemoError):
            board.follow()
