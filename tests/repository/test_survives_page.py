"""Every row in the tables of failures names at least one existing test."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGES = ("docs/survives.md", "benchmarks/results/failures.md")
# The rows below a header whose last column is "shown by".
TABLE = re.compile(r"^\| .* \| shown by \|\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE)
ROWS = [
    row
    for page in PAGES
    for table in TABLE.findall((TESTS.parent / page).read_text())
    for row in table.splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2:40])
def test_each_row_names_existing_tests(row):
    shown_by = row.rstrip("| ").rpartition("|")[2]
    named = re.findall(r"`(test_\w+)(?:::(test_\w*))?`", shown_by)
    assert named or "](" in shown_by
    for module, start in named:
        texts = [file.read_text() for file in TESTS.rglob(f"{module}.py")]
        assert any(re.search(rf"^ *def {start}", text, re.MULTILINE) for text in texts), (module, start)


def test_every_failure_on_the_page_has_tests():
    survives, runs = ((TESTS.parent / page).read_text() for page in PAGES)
    tables = re.findall(r"^\| failure \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", survives, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    failures = {row.split(" | ")[0].strip("|* ").replace("**", "") for row in rows}
    shown = {row.split(" | ")[0].strip("| ") for row in TABLE.findall(runs)[0].splitlines()}
    elsewhere = {
        "the last subscriber is retired, or its session deleted, while boards report",
        "a board loses power during any flash operation",  # firmware_tests/write_power_cuts.py
    }
    assert failures - shown == elsewhere
    assert shown <= failures
