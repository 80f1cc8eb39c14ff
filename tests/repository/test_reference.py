"""Reference pages say what the code says: docs/command-line.md and docs/environment.md."""

import re
from pathlib import Path

import make_command_line

ROOT = Path(__file__).parents[2]
FOLDERS = ("cli", "server", "simulator", "studies", "device", "hushmote", "deploy", "firmware_tests", "tests")
NAME = re.compile(r"(?<![A-Z_])_?HUSHMOTE_[A-Z_]*[A-Z]")


def test_the_page_of_the_command_line_is_that_of_the_commands():
    wanted = make_command_line.text()
    assert make_command_line.FILE.read_text(encoding="utf-8") == wanted, (
        "run tests/support/make_command_line.py"
    )


def test_every_variable_of_the_code_is_on_the_page_and_no_other():
    used = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in (".pyc", ".png", ".bin", ".gz"):
                used |= set(NAME.findall(path.read_text(encoding="utf-8", errors="replace")))
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert set(NAME.findall(page)) == used
