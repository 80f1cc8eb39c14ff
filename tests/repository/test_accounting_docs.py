"""docs/theorems.md matches the code: its examples run, and its table is recomputed."""

import re
from pathlib import Path

from pages import run_examples

from hushmote.server.accounting import THEOREMS, choose

PAGE = (Path(__file__).parents[2] / "docs" / "theorems.md").read_text("utf-8")


def test_examples_print_what_page_shows():
    languages = run_examples(PAGE, "theorems.md", {"__name__": "theorems"})
    assert languages.count("python") == 1


def test_reports_table_matches_theorems():
    lines = PAGE.splitlines()
    heading = next(x for x in lines if x.startswith("| E | δ |"))
    columns = [x.strip() for x in heading.strip("|").split("|")]
    start = lines.index(heading) + 2
    rows = [line for line in lines[start : start + 4] if line.startswith("|")]
    assert len(rows) == 4
    for row in rows:
        total, delta, epsilon, *counts = (float(x) for x in row.strip("|").split("|"))
        for name, count in zip(columns[3:], counts, strict=True):
            rule = choose(name, total, 0 if name == "basic" else delta)
            assert rule.most_reports(round(epsilon * 1e6)) == count


def test_every_theorem_has_section_and_table_row():
    for name, theorem in THEOREMS.items():
        assert re.search(rf"^## {name}\b", PAGE, re.MULTILINE), f"docs/theorems.md has no section {name}"
        assert re.search(rf"^\| `{name}` \| {theorem.rule} \|", PAGE, re.MULTILINE)
