"""`hushmote demo --board` on a terminal, with a real broker, aggregator and board."""

import json
import subprocess
from pathlib import Path

import pytest
from command_line import hushmote, hushmote_process
from flashing import on_port
from refusals import Refusal, refusals
from terminal import INTERRUPT, Terminal

SILENT = "without an opt-in, the board does not read its sensor, spend budget or send anything"
QUESTION = "agree to take part? [Y/n]"


class TestRefusals:
    @refusals(
        ("--board", "--board asks the people it measures for consent; without a terminal, add --yes"),
        ("--yes", "--yes needs --board: add it, or omit --yes"),
        ("--board --page", "omit --page and --devices"),
        ("--board --devices 100", "omit --page and --devices"),
        ("--board --yes --broker nats", "--board supports one MQTT broker"),
        command="demo",
    )
    def test_is_one_line(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)

    def test_names_missing_micropython(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr("hushmote.fleet.provisioning.interpreters.commands", list)
        line = hushmote("demo", "--board", "--yes", cwd=tmp_path, expect=1)
        assert "no MicroPython to run a board in software" in line
        assert list(tmp_path.iterdir()) == []


@pytest.mark.broker
@pytest.mark.micropython
@pytest.mark.usefixtures("interpreter")
class TestBoardDemo:
    def test_asks_first_and_reuses_its_ledger(self, tmp_path: Path):
        with Terminal(("demo", "--board"), tmp_path) as first:
            first.until(QUESTION)
            first.type("n\n")
            assert first.wait() == 0
        assert SILENT in words(first)
        assert reports(tmp_path) == 0
        with Terminal(("demo", "--board"), tmp_path) as second:
            second.until(QUESTION)
            second.type("\n")
            second.until("starts in 10 s")
            repeated = hushmote_process("demo", "--board", "--yes", cwd=tmp_path, expect=1)
            assert (
                "the board in hushmote-try is already running; use --out FOLDER for another one" in repeated
            )
            # The next report follows two seconds later, and would be lost with the broker.
            second.until("counted by the aggregator: 1")
            second.type(INTERRUPT)
            assert second.wait() == 0
        assert "the ledger is kept as it was" in words(second)
        assert "randomized to code" in words(second)
        assert "ε spent: 1 of 4; 3 more reports left" in words(second)
        assert "cd hushmote-try && hushmote status" in words(second)
        third = json.loads(hushmote_process("demo", "--board", "--yes", "--json", cwd=tmp_path))
        assert third["reports"] == third["counted"] == third["epsilon_spent"] == 4
        assert third["answer"] is None
        assert reports(tmp_path) == 4
        fourth = hushmote_process("demo", "--board", "--yes", cwd=tmp_path)
        assert "the board's budget is used up permanently" in fourth
        assert "report 5" not in fourth
        (tmp_path / "hushmote-try" / "board" / "flash.img").unlink()
        message = hushmote_process("demo", "--board", "--yes", cwd=tmp_path, expect=1)
        assert "a ledger was already created with the settings of desk" in message

    def test_runs_on_the_embedded_broker(self, tmp_path: Path):
        words = ("demo", "--board", "--yes", "--broker", "embedded", "--out", "b", "--json")
        result = json.loads(hushmote_process(*words, cwd=tmp_path))
        assert (result["folder"], result["answer"], result["counted"]) == ("b", True, 4)

    def test_scripted_yes_does_not_override_opt_out(self, tmp_path: Path):
        with Terminal(("demo", "--board"), tmp_path) as first:
            first.until(QUESTION)
            first.type("\n")
            first.until("counted by the aggregator: 1")
            first.type(INTERRUPT)
            first.wait()
        with Terminal(("board", "--storage", "hushmote-try/board"), tmp_path) as board:
            board.until("starts in 10 s")
            no = on_port(str(tmp_path / "hushmote-try/board/port"), "exec", "import main; main.no()", "reset")
            subprocess.run(no, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            board.until("silent, as someone said no")
        result = json.loads(hushmote_process("demo", "--board", "--yes", "--json", cwd=tmp_path))
        assert (result["answer"], result["counted"]) == (False, 1)
        with Terminal(("demo", "--board"), tmp_path) as second:
            second.until("[y/N]")
            assert "Someone opted out on this board before." in words(second)
            second.type("y\n")
            second.until("counted by the aggregator: 2")


def words(terminal: Terminal) -> str:
    """Return a terminal's text as one line; fail if any line is longer than 80 characters."""
    text = terminal.screen.decode()
    assert max(map(len, text.splitlines())) <= 80
    return " ".join(text.split())


def reports(folder: Path) -> int:
    """Return the number of reports that the demo's store has counted."""
    (experiment,) = json.loads(hushmote("status", "--json", cwd=folder / "hushmote-try"))["experiments"]
    return experiment["reports"]
