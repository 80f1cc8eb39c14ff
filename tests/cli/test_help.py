"""Help pages, 80 columns wide, and shell completion of every command."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import hushmote
from make_command_line import help_texts

from hushmote.cli.examples import EXAMPLES

ALL = {path: (command, shown) for path, command, shown in help_texts()}
LEAVES = [path for path, (command, _) in ALL.items() if not hasattr(command, "commands")]


def letters(text: str) -> str:
    """Return a text without its line breaks."""
    return "".join(text.split())


@pytest.mark.parametrize("path", ALL)
def test_pages_fit_80_columns(path: str):
    command, help_text = ALL[path]
    assert max(map(len, help_text.splitlines())) <= 80
    assert "…" not in help_text
    assert not path or "-h, --help" in help_text
    assert letters(command.help) in letters(help_text)
    for param in command.params:
        assert param.help, f"{path}: {param.name} has no help"
        assert letters(param.help) in letters(help_text)
    for member in getattr(command, "commands", {}).values():
        assert letters(member.help.partition("\n\n")[0]) in letters(help_text)


@pytest.mark.parametrize("path", ["estimate", "store", "store erase"])
def test_h_means_help(path: str, tmp_path: Path):
    assert hushmote(*path.split(), "-h", cwd=tmp_path).rstrip() == ALL[path][1]


def test_examples_belong_to_commands():
    assert set(EXAMPLES) <= set(ALL)


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_valid_example(path: str):
    assert EXAMPLES.get(path), f"{path} has no example"
    command, help_text = ALL[path]
    for example in EXAMPLES[path]:
        assert f"\n    {example}\n" in f"{help_text}\n"
        words = shlex.split(example)
        given = ["hushmote", *path.split()]
        assert words[: len(given)] == given
        # A missing or misspelled option, or an invalid value, raises an error.
        command.make_context(words[0], words[len(given) :])


@pytest.mark.slow
def test_bash_completes_commands_options_and_values(tmp_path: Path):
    lines = ["est", "store ", "provision rotate ", "estimate --qua", "provision device --o"]
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
        input="\n".join(lines) + "\n",
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    registered, *completions = run.stdout.splitlines()
    assert registered == "complete -o default -F _hushmote_completion hushmote"
    assert completions == [
        "estimate",
        "upgrade backup check seal erase clock merge",
        "broker aggregator new-aggregator door devices ca master signing",
        "--quantile",
        "--open --out",
    ]
