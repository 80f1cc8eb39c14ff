"""docs/mechanisms.md says what the registry says."""

import re

import make_mechanisms
from shown import shown
from typer.testing import CliRunner

from hushmote.cli.main import app
from hushmote.server.answers import tables as show
from hushmote.server.mechanisms import MECHANISMS

PAGE = make_mechanisms.FILE.read_text(encoding="utf-8")
TIME = re.compile(r"[\d.e-]+ m?s$")


def test_its_tables_are_those_of_the_code():
    assert make_mechanisms.text(PAGE) == PAGE, "run tests/support/make_mechanisms.py"


def test_every_mechanism_has_a_paragraph():
    each = PAGE.partition("## What each one is")[2]
    for word in MECHANISMS:
        assert f"`{word}`" in each


def test_what_is_shown_is_what_is_printed(monkeypatch):
    """But for the time that decoding took there."""
    monkeypatch.setattr(show.out, "_width", 80)
    pairs = shown(PAGE, "mechanisms")
    assert pairs
    for arguments, lines in pairs:
        printed = CliRunner().invoke(app, arguments).stdout.splitlines()
        assert [TIME.sub("T", line.rstrip()) for line in printed] == [TIME.sub("T", line) for line in lines]
