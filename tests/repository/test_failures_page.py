"""The table of failures names tests that are there, and every row names one."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "failures.md").read_text()
ROWS = [
    line for line in PAGE.splitlines() if line.startswith("|") and not re.match(r"\|(---| failure )", line)
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:40])
def test_each_row_names_a_test_that_is_there(row):
    shown_by = row.rstrip("| ").rpartition("|")[2]
    named = re.findall(r"`(test_\w+)::(test_\w*)`", shown_by)
    assert named or "](" in shown_by
    for module, start in named:
        texts = [file.read_text() for file in TESTS.rglob(f"{module}.py")]
        assert any(f"\ndef {start}" in text for text in texts), (module, start)
