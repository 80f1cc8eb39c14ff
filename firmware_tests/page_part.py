"""The part of a page that a measurement rewrites, and its targets."""

from collections.abc import Sequence
from pathlib import Path

import runtimes


def renew(page: Path, begin: str, end: str, text: str) -> None:
    """Put the text between the two comments of a page, and print that."""
    before, _, rest = page.read_text().partition(begin)
    page.write_text(before + begin + text + end + rest.partition(end)[2])
    print(f"wrote {page.relative_to(runtimes.ROOT)}")


def judge(rows: Sequence[tuple[str, str, str, bool]]) -> int:
    """Print each (what, target, measured, whether it is reached); return the exit status."""
    for what, target, measured, good in rows:
        print(f"{'reached' if good else 'MISSED':8} {what}: {measured} ({target})")
    return 0 if all(row[3] for row in rows) else 1
