"""The texts and the sparkline of an experiment's tile, which the page and the weekly summary show."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from ..words import findings as words
from ..words.numbers import Numbers, format_estimate
from .finding import Finding
from .rows import CONFIDENCE, Row

_WIDTH, _HEIGHT = 100, 30  # size of a sparkline, in its own units
ARROWS = {"up": "▲", "down": "▼"}


@dataclass(frozen=True)
class Headline:
    """The answer to an experiment's first question, as the texts in a tile.

    Attributes:
        value: The value, such as "24%", "21.3 °C" or "at least 95%".
        title: The question's title, such as "24 °C and above".
        direction: "up", "down" or "".
        change: "Up from 15% before 13 Nov", "No change since 29 Oct", or "" if that is not known.
        badge: "certain" or "likely", or "" without a change.
        certainty: The certainty in detail, such as "about 1 in 40 by chance".
        dates: The value's dates and interval, such as "21 to 27 Nov, 95% interval 17 to 30%".
    """

    value: str
    title: str
    direction: str
    change: str
    badge: str
    certainty: str
    dates: str


def headline(finding: Finding, now: datetime.datetime, write: Numbers) -> Headline | None:
    """Return a finding's headline, or None if it has too few reports."""
    if finding.value is None or finding.low is None or finding.high is None:
        return None
    in_points = finding.is_difference and finding.quantity == "share"
    scale = 100 if in_points else 1
    row = Row(finding.title, scale * finding.value, scale * finding.low, scale * finding.high)
    unit = "points" if in_points else finding.unit if finding.quantity == "reading" else None
    value, interval = format_estimate(row.value, row.low, row.high, unit, write)
    interval = f"{write.percent(CONFIDENCE, 0)} interval {interval}" if interval else ""
    approximate = "approximate" if finding.approximate else ""
    dates = ", ".join(filter(None, [words.dates(finding.period, now, write), interval, approximate]))
    if finding.change is None:
        since = "" if finding.since is None else f"No change since {words.day(finding.since, now, write)}"
        return Headline(value, finding.title, "", since, "", "", dates)
    badge = "certain" if finding.change.chance < words.CERTAIN else "likely"
    certainty = words.certainty(finding.change.chance, write)
    return Headline(value, finding.title, finding.direction, finding.change.text, badge, certainty, dates)


def spark(finding: Finding) -> str:
    """Return a finding's series as SVG, with a line in the band of its intervals.

    A single value, such as the whole period's, is a point on its interval.
    """
    rows: list[Row] = list(finding.series)
    if not rows and finding.value is not None and finding.low is not None and finding.high is not None:
        rows = [Row(finding.title, finding.value, finding.low, finding.high)]
    if not rows:
        return ""
    low, high = min(r.low for r in rows), max(r.high for r in rows)
    scale = (_HEIGHT - 4) / ((high - low) or 1)

    def point(at: int, value: float) -> str:
        x = _WIDTH * at / (len(rows) - 1) if len(rows) > 1 else _WIDTH / 2
        return f"{x:.2f},{_HEIGHT - 2 - (value - low) * scale:.2f}"

    def points(end: str, order: Sequence[tuple[int, Row]]) -> str:
        return " ".join(point(at, getattr(row, end)) for at, row in order)

    numbered = list(enumerate(rows))
    last = f'<path d="M{point(len(rows) - 1, rows[-1].value)}h0"/>'
    if len(rows) > 1:
        band = f"{points('high', numbered)} {points('low', numbered[::-1])}"
        shapes = f'<polygon points="{band}"/><polyline points="{points("value", numbered)}"/>{last}'
    else:
        shapes = f'<polyline points="{point(0, low)} {point(0, high)}"/>{last}'
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" aria-hidden="true">{shapes}</svg>'
    )
