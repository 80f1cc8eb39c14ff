"""Every command in README.md and docs/ does what its page says when it is run as printed.

support/page_blocks.py documents how a page states a block's needs; support/run_page.py runs a page manually.
Blocks that this machine cannot run are only parsed. LONG=1 (`make long`) runs slow blocks as well.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import page_blocks
import pytest
import run_page
import typer
from page_blocks import NEEDS, Page
from typer.core import TyperGroup

from hushmote.cli import main

ROOT = Path(__file__).parents[2]
LONG = bool(os.environ.get("LONG"))
PATTERNS = (
    *("*.md", "docs/**/*.md", "benchmarks/*.md", "studies/*.md", "examples/**/*.md"),
    "clients/**/*.md",
)
# Generated from the commands' help; its examples are only parsed.
HELP = sorted(ROOT.glob("docs/commands-*.md"))
PAGES = [
    path
    for pattern in PATTERNS
    for path in sorted(ROOT.glob(pattern))
    if path.name != "CHANGELOG.md" and path not in HELP
]


@cache
def read(path: Path) -> Page:
    return page_blocks.read(path.read_text())


def pages(*paths: Path) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=lambda path: path.relative_to(ROOT).as_posix())


@pytest.fixture(scope="session")
def runner() -> Iterator[subprocess.Popen[str]]:
    """Provide a process that runs one page after another and loads the commands only once."""
    command = [sys.executable, run_page.__file__, "-", *["--slow"] * LONG]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin
        process.stdin.close()


class TestPages:
    @pages(*PAGES)
    def test_commands_are_in_pasteable_blocks(self, path: Path):
        assert [f"{path.name}:{line}: {fault}" for line, fault in read(path).faults] == []

    @pytest.mark.broker
    @pytest.mark.micropython
    @pages(*(path for path in PAGES if run_page.select_blocks(read(path).blocks, LONG)))
    def test_commands_do_what_page_says(self, path: Path, runner: subprocess.Popen[str]):
        assert runner.stdin
        assert runner.stdout
        print(path, file=runner.stdin, flush=True)
        output = ""
        for line in runner.stdout:
            if line.startswith(run_page.END):
                break
            output += line
        status = line.removeprefix(run_page.END).strip()
        if status == str(run_page.CANNOT):
            pytest.skip(output.strip())
        assert status == "0", output

    @pages(*(path for path in PAGES if read(path).blocks))
    def test_unexecuted_commands_parse_in_shell_and_cli(self, path: Path):
        left = [
            block
            for block in read(path).blocks
            if block not in run_page.select_blocks(read(path).blocks, LONG)
        ]
        faults = []
        for block in left:
            shell = subprocess.run(
                ["bash", "-n"], input=block.text, capture_output=True, text=True, check=False
            )
            faults += [f"{path.name}:{block.line}: {shell.stderr}"] * bool(shell.returncode)
            for line, words in [] if shell.returncode else block.programs():
                fault = misunderstood(words)
                faults += [f"{path.name}:{line}: {fault}"] * bool(fault)
        assert faults == []
        reasons = {NEEDS.get(block.needs, "make long: slow") for block in left}
        if reasons:
            lines = ", ".join(str(block.line) for block in left)
            pytest.skip(
                f"understood, not run: {path.name}, lines {lines}: needs {' or '.join(sorted(reasons))}"
            )

    @pytest.mark.slow
    def test_examples_in_help_are_valid(self):
        lines = [
            line
            for page in HELP
            for line in re.findall(r"^ {4}(hushmote .*)$", page.read_text(), re.MULTILINE)
        ]
        assert len(lines) > 30
        faults = [
            misunderstood(words) for line in lines for _, words in page_blocks.Block(1, line).programs()
        ]
        assert [fault for fault in faults if fault] == []


def misunderstood(words: list[str]) -> str:
    """Return the error in a hushmote command, or "" if it is valid or another program's."""
    if words[:1] == ["runuser"]:
        words = words[words.index("--") + 1 :]
    at = next((i for i, word in enumerate(words) if "=" not in word and word not in ("sudo", "env")), None)
    if at is None or Path(words[at]).name != "hushmote":
        return ""
    command: Any = typer.main.get_command(main.app)
    arguments, parent = words[at + 1 :], None
    try:
        while True:
            context = command.make_context("hushmote", list(arguments), parent=parent)
            if not isinstance(command, TyperGroup):
                return ""
            _, resolved, arguments = command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            command, parent = resolved, context
    except typer.Exit:  # --help and --version
        return ""
    except main._UsageMistake as e:
        return f"{e.format_message()}: {' '.join(words)}"


FAULTY = """
```sh
hushmote status --json    # fine, 'a   quoted'
hushmote status    what was counted
hushmote provision device ...
git clone <this> hushmote
hushmote experiment add \\
    room.toml \\
    --open
```

    hushmote status

```bash
true
```

```text
$ hushmote status
hushmote: starts
hushmote 0.1.0
```

<!-- needs: luck -->
```sh
$ true
```

<!-- slow -->
Text.
<!-- fails -->

```sh
true
false
```
"""


class TestReader:
    def test_locates_formatting_faults_by_line(self):
        assert page_blocks.read(FAULTY).faults == (
            (4, "text behind a command, write # before it: hushmote status    what was counted"),
            (5, "a command that leaves something out: hushmote provision device ..."),
            (6, "<...> is no placeholder for a shell, write CAPITALS: git clone <this> hushmote"),
            (12, "a command outside of an sh block: hushmote status"),
            (14, "```bash: write ```sh, and output as ```text"),
            (19, "a command outside of an sh block: $ hushmote status"),
            (24, "<!-- needs: luck --> says nothing that is known here"),
            (26, "a prompt in an sh block: $ true"),
            (29, "<!-- slow --> stands before no sh block"),
            (34, "<!-- fails --> stands before a block of more than one command"),
        )
        (first, _, last) = page_blocks.read(FAULTY).blocks
        assert [words for _, words in first.programs()][-1] == [
            "hushmote", "experiment", "add", "room.toml", "--open",
        ]  # fmt: skip
        assert (last.line, last.fails) == (34, True)

    @pytest.mark.parametrize(
        ("command", "fault"),
        [
            ("hushmote status --store x --json", ""),
            ("sudo hushmote provision list --folder x", ""),
            ("cp hushmote /usr/bin", ""),
            ("hushmote --version", ""),
            ("A=1 hushmote status --nonsense", "--nonsense"),
            ("runuser -u hushmote -- /opt/bin/hushmote experiment ad x.toml", "'ad'"),
            ("true && hushmote store merge INTO > log", "FROM"),
            ("hushmote study majority --total 2 --reports 20 2> log >'other log'", ""),
        ],
    )
    def test_finds_invalid_commands_without_running_them(self, command: str, fault: str):
        faults = [misunderstood(words) for _, words in page_blocks.Block(1, command).programs()]
        assert [f for f in faults if f] == [] if not fault else fault in faults[-1]


RUN = """
<!-- setup: export COLOUR=blue; mkdir sub; cd sub -->
```sh
test "$COLOUR" = blue    # the shell's state is kept from block to block
test -z "${HUSHMOTE_STORE:-}"
. ../.venv/bin/activate
hushmote experiment show ../examples/room_temp.toml
```
<!-- background -->
```sh
echo started; sleep 300
```
<!-- fails -->
```sh
hushmote experiment show none.toml
```
"""
RUN_FAULTS = """
```sh
true
false
true
```
<!-- background -->
```sh
true
```
<!-- fails -->
```sh
true
```
"""


class TestRunner:
    @pytest.mark.slow
    def test_runs_page_in_one_shell_and_locates_failures(self, tmp_path: Path, monkeypatch):
        monkeypatch.setenv("HUSHMOTE_STORE", "sqlite:////tmp/mine.sqlite")
        good, bad = tmp_path / "good.md", tmp_path / "bad.md"
        good.write_text(RUN)
        bad.write_text(RUN_FAULTS)
        assert [outcome.fault for outcome in run_page.run(good, slow=False)] == ["", "", ""]
        assert [(outcome.block.line, outcome.fault) for outcome in run_page.run(bad, slow=False)] == [
            (3, "exit status 1 at line 4"),
            (9, "it ended at once, with exit status 0"),
            (13, "exit status 0, not refused"),
            (9, "it ended before the page, with exit status 0"),
        ]
        assert list(tmp_path.iterdir()) == [good, bad] or list(tmp_path.iterdir()) == [bad, good]

    def test_refuses_page_with_broker_on_host_network(self, tmp_path: Path):
        page = tmp_path / "page.md"
        page.write_text("<!-- background -->\n```sh\nhushmote serve --broker mqtt://localhost\n```\n")
        with pytest.raises(run_page.NotHere, match="no separate network namespace"):
            run_page.run(page, slow=False)
