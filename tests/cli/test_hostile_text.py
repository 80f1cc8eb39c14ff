"""Labels, units, purposes and board status from an attacker who wants to control the terminal."""

import io
import json
import logging
from pathlib import Path

import numpy as np
import pytest
from command_line import Run, hushmote, runner
from designs import choice_payload, number_payload
from rich.console import Console

import hushmote as library
from hushmote.server.plain_text import one_line, visible
from hushmote.server.service.process import JsonLines, TextLines
from hushmote.server.store import Description, Store
from hushmote.simulator import vectorised

# Experiments contain printable ASCII without backslashes; their metadata on a server may contain anything.
LABELS = ["n/a [/x]", "[red]a", "a [b]c[/b]", ":smile:", "[link=x:]", "[/]", "$_$"]
CONTROLS = "\x1b[2J\x1b]0;x\x07\x9b31m\u202e"
UNIT = "[/u] \x1b[31m"
CONTROL_CHARACTERS = {*map(chr, (*range(0x0A), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x202E))}

TOML = f"""
name = "mode"
purpose = {json.dumps("why [/not] " + CONTROLS)}
owner = {json.dumps("[/o] " + CONTROLS)}
expires = 9999-12-31
type = "choice"
labels = {json.dumps(LABELS)}
epsilon = 2
window = "all"
[budget]
rule = "count"
cap = 2
"""

STATUS = {"locked": "[/locked] \x1b[2J", "consent": True, "sum": 0, "squares": 0, "pending": 0}
STATUS |= {"experiments": {}, "refused": {}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a store with a choice and a number in two windows and fleets, and the commands' files."""
    folder, rng = tmp_path_factory.mktemp("hostile"), np.random.default_rng(5)
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as opened:
        for fleet in ("home", "lab"):
            opened.add_fleet(fleet, keyed=False)
            for payload in (choice_payload(LABELS, 2), number_payload(8, 2, 0, 8000, "warm")):
                opened.add_experiment(fleet, payload, description=Description(UNIT, CONTROLS, CONTROLS))
            counts = {}
            for version in opened.experiments(fleet):
                experiment = version.experiment
                for day in ("2026-11-19", "2026-11-20"):
                    people = rng.multinomial(20_000, np.full(experiment.domain, 1 / experiment.domain))
                    histogram = vectorised.histogram(experiment, people, rng)
                    counts |= {(version.id, day, 0, code): int(n) for code, n in enumerate(histogram)}
            with opened.ingest() as transaction:
                transaction.write({}, counts, {})
    (folder / "mode.toml").write_text(TOML)
    (folder / "people.csv").write_text("x\n" + "".join(json.dumps(label) + "\n" for label in LABELS[:4]))
    (folder / "status.json").write_text(json.dumps(STATUS))
    return folder


FEW = ("mode.toml", "--devices", "2000", "--population")
PLAN = ("--devices", "1000", "--epsilon", "1", "--values")


def calm(text: str) -> bool:
    return not CONTROL_CHARACTERS & set(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "arguments", "shows"),
    [
        ("estimate", ("mode",), LABELS[0]),
        ("estimate", ("mode", "--trend"), LABELS[0]),
        ("estimate", ("warm",), "[/u]"),
        ("estimate", ("warm", "--trend", "--plot", "warm.svg"), "[/u]"),
        ("estimate", ("warm", "--quantile", "0.5", "--plot", "warm.png"), "[/u]"),
        ("estimate", ("mode", "--plot", "mode.png", "--top", "3"), LABELS[0]),
        ("estimate", ("mode", "--plot", "trend.svg", "--trend"), LABELS[0]),
        ("estimate", ("mode", "--top", "3", "--post", "nonnegative"), ""),
        ("estimate", ("mode", "--against", "fleet=lab"), LABELS[2]),
        ("estimate", ("mode", "--range", LABELS[0], "--range", LABELS[5]), LABELS[0]),
        ("estimate", ("mode", "--window", "2026-11-20", "--against", "2026-11-19"), LABELS[1]),
        ("status", (), "mode"),
        ("experiment", ("list",), "mode"),
        ("experiment", ("add", "mode.toml", "--fleet", "new", "--open"), "mode"),
        ("ledger", (), "mode"),
        ("ledger", ("--status", "status.json"), "[/locked]"),
        ("simulate", (*FEW, "weights:1:1:1:1:1:1:1:1"), LABELS[0]),
        ("simulate", (*FEW, "zipf:1", "--range", LABELS[0]), LABELS[0]),
        ("simulate", (*FEW, "file:people.csv:x"), ""),
        ("epsilon", ("mode.toml",), ""),
        ("epsilon", ("mode.toml", "--about", LABELS[0]), LABELS[0]),
        ("plan", (*PLAN, ",".join(LABELS)), ""),
        ("plan", (*PLAN, "8", "--low", "0", "--high", "8", "--unit", UNIT), ""),
    ],
    ids=[
        "estimate shares",
        "estimate trend of shares",
        "estimate number",
        "estimate trend of number with plot",
        "estimate quantile with plot",
        "estimate shares with plot",
        "estimate trend of shares with plot",
        "estimate with postprocessing",
        "estimate against a fleet",
        "estimate labels",
        "estimate against a window",
        "status",
        "experiment list",
        "experiment add",
        "ledger of a fleet",
        "ledger of a board",
        "simulate weights",
        "simulate zipf",
        "simulate file",
        "epsilon",
        "epsilon about a label",
        "plan labels",
        "plan unit",
    ],
)
def test_escapes_hostile_text_in_output(
    command, arguments, shows, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    run: Run = runner(command, folder, monkeypatch)
    several_fleets = command in ("estimate", "ledger") and "--status" not in arguments
    text = run(*arguments, *(("--fleet", "home") if several_fleets else ()))
    assert calm(text)
    assert shows in text


def test_escapes_purpose_and_owner(folder: Path):
    text = hushmote("experiment", "show", "mode.toml", cwd=folder)
    assert calm(text)
    assert "why [/not]" in text
    assert "[/o]" in text


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("estimate", ("mode", "--range", "[/none] \x1b[2J")),
        ("estimate", ("[/x]\x1b[2J",)),
        ("estimate", ("mode", "--fleet", "[/x]\x1b[2J")),
        ("status", ("--store", "sqlite:///[/x]\x1b[2J/y")),
        ("provision", ("list", "--fleet", "[/x]\x1b[2J")),
        ("demo", ("--broker", "[/x]\x1b[2J")),
    ],
    ids=["label", "experiment", "fleet", "store", "folder", "broker"],
)
def test_escapes_text_in_error_messages(command, arguments, folder: Path, monkeypatch: pytest.MonkeyPatch):
    assert calm(runner(command, folder, monkeypatch)(*arguments, expect=1))


def test_answers_escape_text_on_any_console(folder: Path):
    """Python users may print them on their own consoles, which interpret markup."""
    store = library.open(f"sqlite:///{folder / 'hushmote.sqlite'}")
    estimate = store.fleet("home").experiment("mode").estimate()
    for shown in (estimate, estimate.summary()):
        out = io.StringIO()
        Console(file=out, width=100).print(shown)
        for text in (out.getvalue(), str(shown)):
            assert calm(text)
            assert LABELS[0] in text
            assert LABELS[3] in text


def test_shows_control_characters_on_one_line():
    assert visible("a\x1b[2J\u202eb\n\tü€") == "a\\x1b[2J\\u202eb\n\tü€"
    assert one_line("a\nb\r\n\x1bc") == "a b \\x1bc"
    assert one_line("at mqtt://me:p@ss:w@host/x and pg://u:@h") == "at mqtt://me:***@host/x and pg://u:@h"


def test_log_entries_are_escaped_single_lines():
    message = f"the broker answers {CONTROLS}\n2026-11-22 INFO subscribed at mqtt://me:p@ss@host"
    record = logging.LogRecord("x", logging.WARNING, "x", 1, "%s", (message,), None)
    for form in (TextLines(), JsonLines()):
        line = form.format(record)
        assert calm(line)
        assert "\n" not in line
        assert "p@ss" not in line
