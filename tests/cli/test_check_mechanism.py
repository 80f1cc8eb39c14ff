"""`hushmote check-mechanism`: exit 0 for a correct mechanism, and one line for one that must not be used."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import hushmote
from custom_mechanisms import EXAMPLES

from hushmote.fleet.audit import serial_port
from hushmote.fleet.provisioning.board_runtimes import CPYTHON

Write = Callable[[str, str], str]


def unary(own_folder: Write, excess: int = 0) -> str:
    """Write the documented example with `excess` micro-nats more than its ε, and return its word."""
    name = f"unary_{excess}"
    board = (EXAMPLES / "unary_board.py").read_text().replace("unary:Unary", f"{name}:Unary")
    own_folder(f"{name}_board", board.replace("exp.epsilon, 2)", f"exp.epsilon + {excess}, 2)"))
    own_folder(name, (EXAMPLES / "unary.py").read_text().replace("unary_board", f"{name}_board"))
    return f"{name}:Unary"


@pytest.mark.micropython  # it compares codes if MicroPython is installed
class TestProof:
    def test_of_a_correct_mechanism_holds(self, tmp_path: Path):
        result = json.loads(hushmote("check-mechanism", "rr", "--json", cwd=tmp_path))
        assert result["holds"] is True
        assert {prop["holds"] for prop in result["properties"]} <= {True, None}

    def test_names_what_fails(self, own_folder: Write, tmp_path: Path):
        word = unary(own_folder, 500_000)
        line = hushmote("check-mechanism", word, cwd=tmp_path, expect=1)
        assert line == f"hushmote: {word} must not be used: it fails private, odds\n"


class TestAudit:
    """The board is CPython, with the client of this installation."""

    @pytest.fixture(autouse=True)
    def _board(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(serial_port, "connect", lambda _port: CPYTHON)

    def audit(self, word: str, folder: Path, *options: str, expect: int = 0) -> str:
        command = ("check-mechanism", word, "--port", "board", "--samples", "400", *options)
        return hushmote(*command, cwd=folder, expect=expect)

    def test_of_a_correct_mechanism_shows_bounds(self, own_folder: Write, tmp_path: Path):
        text = self.audit(unary(own_folder), tmp_path)
        assert "400 draws of each of two inputs" in text
        assert "All bounds hold together with 95% confidence." in text
        findings = json.loads(self.audit("rr", tmp_path, "--json"))["findings"]
        assert [finding["private"] for finding in findings] == [True, True]

    def test_names_a_mechanism_that_is_not_private(self, own_folder: Write, tmp_path: Path):
        line = self.audit(unary(own_folder, 100_000), tmp_path, expect=1)
        assert line == "hushmote: not 1-LDP: own has an exact ε of 1 + 0.1; do not let it report\n"
