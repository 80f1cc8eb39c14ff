"""Writes what commands of docs/mechanisms.md print, its tables and its picture.

python tools/make_mechanisms.py
"""

import math
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from typer.testing import CliRunner

from hushmote.cli.main import app
from hushmote.cli.mechanisms.plot import plot_mechanisms
from hushmote.cli.mechanisms.tables import points
from hushmote.planning.listing import ASKED, SLOTS, Listing, half_width, listing
from hushmote.server.answers import tables as show
from hushmote.server.mechanisms import MECHANISMS
from hushmote.server.mechanisms.about import about
from hushmote.server.mechanisms.peers import PEERS, Asked

FILE = Path(__file__).parents[1] / "docs" / "mechanisms.md"
PICTURE = FILE.with_suffix(".png")

DOMAIN, DEVICES = 64, 100_000
EPSILONS = (0.5, 1.0, 2.0, 4.0)
BITS_AT = 2.0

# What somebody wants, and why what is taken is taken.
WANTS = {
    "frequency": (
        "how many boards hold a value, or each value",
        "few values or a large ε: a board names its value. Many values: it names something that many values"
        " share, so the error does not grow with their number",
    ),
    "range": (
        "how many lie between two limits",
        "a range adds up a few nodes of a tree instead of many values, and each board answers for one level"
        " ([ranges](ranges.md))",
    ),
    "quantile": (
        "the median, or another quantile",
        "the same tree, with its levels weighted for sums from the left",
    ),
    "mean": (
        "the mean",
        "codes near a reading say more about the mean than whether it was this value or that one"
        " ([means](estimates.md#means))",
    ),
    "labels": (
        "how often words occur that nobody listed",
        "a board hashes the word into a slot, and the slot is a value like any other"
        " ([labels](estimates.md#labels-that-nobody-listed))",
    ),
    "pairs": (
        "one reading by another: do old versions crash more?",
        "some boards answer for one part, some for the other, some for both, and least squares joins them"
        " ([pairs](estimates.md#pairs))",
    ),
}
_COMMAND = re.compile(r"(```sh\nhushmote (mechanisms[^\n]*)\n```\n\n```text\n).*?```", re.DOTALL)
_PART = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def run(arguments: list[str]) -> str:
    """What the command prints on 80 columns."""
    before, show.out.width = show.out.width, 80
    try:
        printed = CliRunner().invoke(app, arguments).stdout
    finally:
        show.out.width = before
    return "\n".join(line.rstrip() for line in printed.splitlines()) + "\n"


def commands(page: str) -> str:
    """The page with its commands' output made anew."""
    return _COMMAND.sub(lambda block: f"{block[1]}{run(shlex.split(block[2]))}```", page)


def text(page: str) -> str:
    """The page with its tables made anew."""

    def made(part: re.Match[str]) -> str:
        table = "\n".join(MADE[part[2]]()).strip()
        return f"{part[1]}\n{table}\n\n{part[3]}"

    return _PART.sub(made, page)


def _micro(epsilon: float) -> int:
    return round(epsilon * 1e6)


def _found(asked: Asked, epsilon: float) -> Listing:
    return listing(asked, SLOTS if asked == "labels" else DOMAIN, _micro(epsilon))


def _table(*rows: list[str]) -> Iterator[str]:
    for i, row in enumerate(rows):
        cells = [cell.replace("|", "\\|") for cell in row]
        yield f"| {' | '.join(cells)} |"
        if not i:
            yield f"|{'---|' * len(row)}"


def _questions() -> Iterator[str]:
    rows = [["I want to know", "`--for`", *(f"ε = {e:g}" for e in EPSILONS), "why"]]
    for asked in ASKED:
        want, why = WANTS[asked]
        rows.append([want, f"`{asked}`", *(f"`{_found(asked, e).auto.word}`" for e in EPSILONS), why])
    yield from _table(*rows)


def _points(variance: float) -> str:
    return points(half_width(variance, DEVICES)).removeprefix("±")


def _errors() -> Iterator[str]:
    for asked in ASKED:
        found = {e: _found(asked, e) for e in EPSILONS}
        rows: list[tuple[float, list[str]]] = []
        for word in dict.fromkeys(one.word for each in found.values() for one in each.listed):
            by = {e: one for e, each in found.items() for one in each.listed if one.word == word}
            at = by.get(BITS_AT)
            errors = [_points(by[e].variance) if e in by else "–" for e in EPSILONS]
            bits = f"{math.ceil(math.log2(at.codes))}" if at else "–"
            rows.append((at.variance if at else math.inf, [f"`{word}`", *errors, bits]))
        at = found[BITS_AT]
        for peer in at.peers:
            errors = [_points(each.peer_variance(peer)) for each in found.values()]
            bits = f"{math.ceil(peer.bits(at.domain, BITS_AT)):,}"
            rows.append((at.peer_variance(peer), [f"*{peer.name}*", *errors, bits]))
        rows.sort(key=lambda row: row[0])
        yield f"**{at.title}**\n"
        yield from _table(["", *(f"ε = {e:g}" for e in EPSILONS), "bits"], *(row for _, row in rows))
        yield ""


def _each() -> Iterator[str]:
    for mechanism in dict.fromkeys(MECHANISMS.values()):
        words = [word for word, one in MECHANISMS.items() if one is mechanism]
        said = about(mechanism)
        yield f"**{', '.join(f'`{word}`' for word in words)}.** {said.what}\n"
        for name in ("privacy", "utility", "citation"):
            part = getattr(said, name)
            if part:
                yield f"* {name.capitalize()}: {part}"
        yield ""


def _missing() -> Iterator[str]:
    rows: dict[str, list[str]] = {}
    for peer in PEERS:
        row = rows.setdefault(peer.name, [f"*{peer.name}*", peer.asked, peer.missing, peer.citation])
        if peer.asked not in row[1]:
            row[1] += f", {peer.asked}"
    yield from _table(["", "for", "why it is missing", "from"], *rows.values())


MADE: dict[str, Callable[[], Iterator[str]]] = {
    "questions": _questions,
    "errors": _errors,
    "each": _each,
    "missing": _missing,
}

if __name__ == "__main__":
    FILE.write_text(text(commands(FILE.read_text(encoding="utf-8"))), encoding="utf-8")
    plot_mechanisms(PICTURE, listing("frequency", 1024, _micro(4.0)), DEVICES)
