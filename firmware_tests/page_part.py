"""Rewrite a page's measured section, and judge the measurements' targets."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import runtimes


def renew(page: Path, begin: str, end: str, text: str) -> None:
    """Put the text, wrapped, between the two comments of a page, and print the page's path."""
    before, _, rest = page.read_text().partition(begin)
    wrapped = "\n".join(map(_wrap, text.split("\n")))
    page.write_text(before + begin + wrapped + end + rest.partition(end)[2])
    print(f"wrote {page.relative_to(runtimes.ROOT)}")


def _wrap(line: str) -> str:
    """Break prose after at most 100 columns; rows of tables and headings stay whole."""
    if line.startswith(("|", "#")):
        return line
    indent = "  " if line.startswith("* ") else ""
    return textwrap.fill(line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def judge(rows: Sequence[tuple[str, str, str, bool]]) -> int:
    """Print each row of (what, target, measured, whether it is reached); return the exit status."""
    for what, target, measured, good in rows:
        print(f"{'reached' if good else 'MISSED':8} {what}: {measured} ({target})")
    return 0 if all(row[3] for row in rows) else 1
