"""Write the generated parts of docs/mechanisms.md: the mechanisms that the code chooses, and each mechanism.

python tools/make_mechanisms.py
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import wrap

from hushmote.server.epsilon import MICRO
from hushmote.server.mechanisms import MECHANISMS
from hushmote.server.mechanisms.about import about
from hushmote.server.mechanisms.choose import choose
from hushmote.server.mechanisms.workload import ALL_RANGES, FREQUENCIES, MEAN, PREFIXES, Workload

FILE = Path(__file__).parents[1] / "docs" / "mechanisms.md"

DOMAIN, SLOTS = 64, 65_536
EPSILONS = (0.5, 1.0, 2.0, 4.0)

# A question, its number of values and workload, and the reason for the choice.
WANTS: tuple[tuple[int, Workload, str, str], ...] = (
    (
        DOMAIN,
        FREQUENCIES,
        "how many boards hold a value, or each value",
        "for few values or a large ε a board sends its value; for many values it sends something that many"
        " values share, so that the error does not grow with their number",
    ),
    (
        DOMAIN,
        ALL_RANGES,
        "how many lie between two limits",
        "a range is the sum of a few nodes of a tree instead of many values, and each report is about one"
        " level ([ranges](mathematics.md#how-the-tree-is-chosen))",
    ),
    (
        DOMAIN,
        PREFIXES,
        "the median, or another quantile",
        "the same tree, with its levels weighted for sums from the left",
    ),
    (
        DOMAIN,
        MEAN,
        "the mean",
        "codes near a reading carry more information about the mean than randomized exact values"
        " ([means](estimates.md#means))",
    ),
    (
        SLOTS,
        FREQUENCIES,
        "how often words occur that nobody listed",
        "a board hashes the word into a slot, and the slot is a value like any other"
        " ([labels](estimates.md#labels-that-nobody-listed))",
    ),
    (
        DOMAIN**2,
        Workload("tables", shape=(DOMAIN, DOMAIN)),
        "one reading by another: do old versions crash more?",
        "some reports are about one part, some about the other, some about both; least squares joins them"
        " ([pairs](estimates.md#pairs))",
    ),
)
_PART = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def text(page: str) -> str:
    """Return the page with new tables."""

    def build_part(part: re.Match[str]) -> str:
        table = "\n".join(BUILDERS[part[2]]()).strip()
        return f"{part[1]}\n{table}\n\n{part[3]}"

    return _PART.sub(build_part, page)


def _questions() -> Iterator[str]:
    headings = ["I want to know", *(f"ε = {epsilon:g}" for epsilon in EPSILONS), "why"]
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for values, workload, want, why in WANTS:
        picks = (choose(values, round(epsilon * MICRO), workload).mechanism for epsilon in EPSILONS)
        yield f"| {' | '.join([want, *(f'`{word}`' for word in picks), why])} |"


def _each() -> Iterator[str]:
    for mechanism in dict.fromkeys(MECHANISMS.values()):
        words = [word for word, one in MECHANISMS.items() if one is mechanism]
        description = about(mechanism)
        yield from _wrapped(f"**{', '.join(f'`{word}`' for word in words)}.** {description.what}")
        yield ""
        for name in ("privacy", "utility", "citation"):
            part = getattr(description, name)
            if part:
                yield from _wrapped(f"* {name.capitalize()}: {part}", indent="  ")
        yield ""


def _wrapped(line: str, indent: str = "") -> list[str]:
    return wrap(line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


BUILDERS: dict[str, Callable[[], Iterator[str]]] = {"questions": _questions, "each": _each}

if __name__ == "__main__":
    FILE.write_text(text(FILE.read_text(encoding="utf-8")), encoding="utf-8")
