"""The part of a page that a measurement writes anew, and what it says of its targets."""

from collections.abc import Sequence
from pathlib import Path

import runtimes


def renew(page: Path, begin: str, end: str, text: str) -> None:
    """Put the text between the two comments of a page, and say so."""
    before, _, rest = page.read_text().partition(begin)
    page.write_text(before + begin + text + end + rest.partition(end)[2])
    print(f"wrote {page.relative_to(runtimes.ROOT)}")


def judge(rows: Sequence[tuple[str, str, str, bool]]) -> int:
    """Print what was measured of each (what, target, measured, whether it is reached); the exit status."""
    for what, target, measured, good in rows:
        print(f"{'reached' if good else 'MISSED':8} {what}: {measured} ({target})")
    return 0 if all(row[3] for row in rows) else 1
