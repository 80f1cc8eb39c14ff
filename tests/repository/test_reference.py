"""The reference pages docs/commands-*.md match the code."""

import re
from pathlib import Path

import make_command_line
import pytest

from hushmote.cli import main

ROOT = Path(__file__).parents[2]
FOLDERS = ("cli", "server", "planning", "fleet", "simulator", "studies", "device", "hushmote", "deploy")
FOLDERS += ("firmware_tests", "tests", "rigs", "tools")
# Name a C header's macros.
A_HEADER = (
    "fleet/provisioning/firmware.py",
    "tests/cli/test_provision.py",
    "tests/fleet/provisioning/test_firmware.py",
)
NAME = re.compile(r"(?<![A-Z_])_?HUSHMOTE_[A-Z_]*[A-Z]")


@pytest.mark.parametrize("page", make_command_line.PAGES, ids=lambda page: page.stem)
def test_pages_match_commands(page: Path):
    wanted = make_command_line.text(page)
    assert page.read_text(encoding="utf-8") == wanted, "run tools/make_command_line.py"


def test_every_command_is_on_a_page():
    groups = [group for of_page in make_command_line.PAGES.values() for group in of_page]
    assert sorted(groups) == sorted({group for group, _ in main.COMMANDS.values()})


def test_page_has_exactly_the_codes_variables():
    used = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            text = path.is_file() and path.suffix not in (".pyc", ".png", ".bin", ".gz")
            if text and path.relative_to(ROOT).as_posix() not in A_HEADER:
                used |= set(NAME.findall(path.read_text(encoding="utf-8", errors="replace")))
    # The C client's names have the same prefix, in tests and in files written for it.
    in_c = {name for path in (ROOT / "clients").rglob("*.[ch]*") for name in NAME.findall(path.read_text())}
    in_c.discard("HUSHMOTE_BROKER")  # both a macro and an environment variable
    page = (ROOT / "docs" / "commands-fleet.md").read_text(encoding="utf-8")
    assert set(NAME.findall(page)) == used - in_c
