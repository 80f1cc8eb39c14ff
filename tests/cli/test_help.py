"""Pages of help, and completion in a shell: every command, 80 columns wide."""

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
from command_line import hushmote

from hushmote.cli import help_page, main
from hushmote.cli.examples import EXAMPLES


def commands() -> Iterator[tuple[str, Any, Any]]:
    """Path, command and context of every command, groups among them."""
    top = typer.main.get_command(main.app)
    context = typer.Context(top, info_name="hushmote", **top.context_settings)
    yield "", top, context
    for name in main.COMMANDS:
        loaded = main.load(name)
        for command, of in help_page.walk(loaded, type(context)(loaded, info_name=name, parent=context)):
            yield of.command_path.removeprefix("hushmote "), command, of


ALL = {path: (command, context) for path, command, context in commands()}
LEAVES = [path for path, (command, _) in ALL.items() if not hasattr(command, "commands")]


def shown(page: help_page.HelpPage) -> str:
    """A page as it is printed, 80 columns wide."""
    with mock.patch.dict(os.environ, {"COLUMNS": "80"}), mock.patch("sys.stdout", io.StringIO()) as out:
        help_page.show(page)
        return out.getvalue()


def letters(text: str) -> str:
    """A text without the places where its lines end."""
    return "".join(c for c in text if not c.isspace() and c not in "│╭╮╰╯─")


def test_every_command_has_a_panel():
    assert sorted(name for names in main.PANELS.values() for name in names) == sorted(main.COMMANDS)


@pytest.mark.parametrize("path", ALL)
def test_a_page_is_whole_at_80_columns(path: str):
    page = help_page.page_of(*ALL[path])
    text = shown(page)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text.replace("...", "")
    assert all(letters(paragraph) in letters(text) for paragraph in page.paragraphs)
    for title, rows in page.panels.items():
        assert f" {title} " in text
        for row in rows:
            assert row.meaning, f"{path}: {row.written} says nothing"
            notes = "".join(f"[{note}]" for note in row.notes)
            assert letters(row.written + row.meaning + notes) in letters(text)
    assert "\\" not in text, "texts are literal: nothing has to be escaped"


@pytest.mark.parametrize("path", [p for p in ALL if p])
def test_h_is_help(path: str, tmp_path: Path):
    text = hushmote(*path.split(), "-h", cwd=tmp_path)
    assert text == hushmote(*path.split(), "--help", cwd=tmp_path)
    assert "--help, -h" in text


def test_examples_are_of_commands_that_exist():
    assert set(EXAMPLES) <= set(ALL)


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_an_example_that_parses(path: str):
    assert EXAMPLES.get(path), f"{path} has no example"
    command, context = ALL[path]
    text = shown(help_page.page_of(command, context))
    for example in EXAMPLES[path]:
        assert example in text
        words = shlex.split(example)
        given = ["hushmote", *path.split()]
        assert words[: len(given)] == given
        # What is missing, misspelled or no value of its option ends this with an error.
        command.make_context(words[0], words[len(given) :])


def test_texts_are_literal():
    app = typer.Typer()

    @app.command()
    def strange(
        day: str = typer.Option("x", help="Say :DATE: or :smile:, [red]not[/red] [user@]host."),
    ) -> None:
        """Take FILE:COLUMN:DATE: and [bold]brackets[/bold]."""

    command = typer.main.get_command(app)
    text = shown(help_page.page_of(command, typer.Context(command, info_name="strange")))
    assert "Say :DATE: or :smile:, [red]not[/red] [user@]host." in " ".join(text.replace("│", " ").split())
    assert "Take FILE:COLUMN:DATE: and [bold]brackets[/bold]." in text


def completions(shell: str, *words: str, cwd: Path) -> str:
    """What hushmote answers a shell that asks how a line goes on."""
    asked = {"_HUSHMOTE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": " ".join(words)}
    environment = os.environ | asked | {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "COLUMNS": "80"}
    program = [Path(sys.executable).with_name("hushmote")]
    return subprocess.run(
        program, cwd=cwd, env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_bash_completes_commands_options_and_values(tmp_path: Path):
    asked = [
        "est",
        "store ",
        "provision rotate ",
        "estimate --qua",
        "serve --protocol ",
        "provision device --wi",
    ]
    script = """
        eval "$(_HUSHMOTE_COMPLETE=source_bash hushmote)"
        complete -p hushmote
        while IFS= read -r line; do
            IFS=' ' read -r -a COMP_WORDS <<< "hushmote $line"
            case $line in *' ') COMP_WORDS+=('');; esac
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
            _hushmote_completion hushmote
            echo "${COMPREPLY[*]}"
        done
    """
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run = subprocess.run(
        ["bash", "--norc", "-c", script],
        input="\n".join(asked) + "\n",
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    registered, *found = run.stdout.splitlines()
    assert registered == "complete -o default -F _hushmote_completion hushmote"
    assert found == [
        "estimate",
        "upgrade backup check seal",
        "broker aggregator ca master signing",
        "--quantile",
        "auto 5 3.1.1",
        "--wifi-ssid --wifi-country",
    ]


def test_zsh_and_fish_get_texts_in_one_line_as_they_are(tmp_path: Path):
    lines = completions("fish", "hushmote", "serve", "--", cwd=tmp_path).splitlines()
    assert all(line.startswith("--") for line in lines)
    mqtt = "mqtt://(user@)host(:1883), or mqtts://(user@)host(:8883) for TLS"
    nats = "nats://(user@)host(:4222),host,...(?mqtt=1883), or tls://."
    assert f"--broker\t{mqtt}; NATS servers: {nats}" in lines
    assert '"--ca":"PEM file of the CA' in completions("zsh", "hushmote", "serve", "--", cwd=tmp_path)
