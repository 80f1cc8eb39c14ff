"""What numbers mean, in sentences: shares, readings, trends, changes, both ε, with a reader's own marks."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from typing import Protocol

from ...device.ldp_client import Experiment
from ...server.answers.answer import Answer
from ...server.answers.guide import half_width
from ...server.answers.query import Selected
from ...server.answers.rows import ChangeRow, Row
from ...server.answers.second_epsilon import Overview, TwoEpsilons
from ...server.estimate.shuffled import LIMITS
from ...server.experiments.units import bin_edges
from ...server.overview.fleets import days_left
from ...server.plain_text import visible
from ...server.results.result import LIVE
from ...server.words.epsilon import belief, rounded_up
from .choices import ends

BEFOREHAND = (
    "An interval holds for a range chosen beforehand. One that was picked because it stands out holds less "
    "often than it says."
)
WORKED_OUT = "This is being worked out."
ANEW = "and anew when reports come, at most once a minute"
_MOST_LEFT_OUT = 5  # that are named
NOT_YET = "An estimate needs 2 reports."
WATCHING = f"Watching live: {LIVE}."


class Numbers(Protocol):
    """How a reader writes numbers; web.reader has one for each locale."""

    def number(self, value: float, digits: int | None = None) -> str:
        """A number with so many digits behind the point."""
        ...

    def percent(self, share: float, digits: int = 1) -> str:
        """A share."""
        ...

    def day(self, day: datetime.date) -> str:
        """A day."""
        ...


def digits(low: float, high: float) -> int:
    """How many digits behind the point an interval leaves a meaning: two of its half."""
    half = (high - low) / 2
    return 2 if not half or not math.isfinite(half) else min(9, max(0, 1 - math.floor(math.log10(half))))


def reading(value: float, unit: str, reader: Numbers, places: int | None = None) -> str:
    """A reading with its unit; without places it is exact, such as an edge."""
    if places is None:
        places = len(f"{value:.10f}".rstrip("0").partition(".")[2])
    return f"{reader.number(value, places)} {unit}".rstrip()


def span(row: Row, experiment: Experiment, unit: str, reader: Numbers) -> str:
    """What a share is of: 18 to 22 °C, below 18 °C, 22 °C and above, or the label."""
    if row.lower is None or row.upper is None:
        return visible(row.name)
    edges = bin_edges(experiment)
    first, last = row.lower <= edges[0], row.upper >= edges[-1]
    if first and last:
        return "any reading"
    if first:
        return f"below {reading(row.upper, unit, reader)}"
    if last:
        return f"{reading(row.lower, unit, reader)} and above"
    return f"{reading(row.lower, '', reader)} to {reading(row.upper, unit, reader)}"


def range_name(experiment: Experiment, text: str, unit: str, reader: Numbers) -> str:
    """What a number's low:high is called, as span() calls it."""
    low, high = ends(experiment, text)
    return span(Row(text, 0, 0, 0, lower=low, upper=high), experiment, unit, reader)


def left_out(asked: Sequence[str]) -> str:
    """Said of a link that asks for what is not there."""
    if not asked:
        return ""
    shown = ", ".join(asked[:_MOST_LEFT_OUT])
    more = f" and {len(asked) - _MOST_LEFT_OUT} more" if len(asked) > _MOST_LEFT_OUT else ""
    it = "it is" if len(asked) == 1 else "they are"
    return f"This link asks for something that is not here ({shown}{more}): {it} left out."


def share(row: Row, name: str, reader: Numbers) -> str:
    """18 to 22 °C: 41.2 % of the fleet, between 40.1 % and 42.3 %."""
    places = digits(row.low * 100, row.high * 100)
    value, low, high = (reader.percent(x, places) for x in (row.value, row.low, row.high))
    return f"{name}: {value} of the fleet, between {low} and {high}"


def period(chosen: Sequence[str], windows: Sequence[str], reader: Numbers) -> str:
    """When reports were made: Oct 23, 2026 to Nov 21, 2026, all 30 windows.

    chosen: those that are added up, of all windows; both oldest first.
    """
    try:
        first, last = (_moment(window, reader) for window in (chosen[0], chosen[-1]))
    except (IndexError, ValueError):  # "all" is no day
        return "all reports"
    if len(windows) == 1 or first == last:
        return first
    many = len(chosen)
    of = f"all {reader.number(many, 0)}" if many == len(windows) else (
        f"{reader.number(many, 0)} of {reader.number(len(windows), 0)}"
    )  # fmt: skip
    return f"{first} to {last}, {of} windows"


def _moment(window: str, reader: Numbers) -> str:
    """The day or the hour, UTC, that a window is called by. Raises ValueError for another text."""
    day = reader.day(datetime.date.fromisoformat(window[:10]))
    return f"{day}, {window[11:13]}:00 UTC" if "T" in window else day


def newest(row: Row, window: str, reader: Numbers) -> str:
    """Said below a share that was not the same all the time."""
    places = digits(row.low * 100, row.high * 100)
    value, low, high = (reader.percent(x, places) for x in (row.value, row.low, row.high))
    there = f"newest window ({_moment(window, reader)}) {value}, between {low} and {high}"
    return f"It changed in this time: {there}."


def value(row: Row, unit: str, reader: Numbers) -> str:
    """mean: 21.58 °C, between 21.01 and 22.14 °C."""
    places = digits(row.low, row.high)
    low = reading(row.low, "", reader, places)
    between = f"between {low} and {reading(row.high, unit, reader, places)}"
    return f"{row.name}: {reading(row.value, unit, reader, places)}, {between}"


def sure(confidence: float, reader: Numbers) -> str:
    """What the confidence means."""
    return f"Of 100 such intervals {reader.number(confidence * 100, 0)} hold the truth."


def exact(histogram: Answer, asked: Answer, reader: Numbers) -> str:
    """How sure this is: of the share that was asked for, of single bars, and what would halve that."""
    row = asked.rows[0]
    wide, bars = (row.high - row.low) / 2, half_width(histogram)
    said = f"The share that you chose is known to about ±{_points(wide, reader)} percentage points"
    said += f", a single bar to about ±{_points(bars, reader)}." if bars else "."
    more = f"Four times as many reports ({reader.number(4 * histogram.reports, 0)}) halve the intervals."
    return f"{said} {sure(histogram.confidence, reader)} {more}"


def _points(half: float, reader: Numbers) -> str:
    return reader.number(half * 100, digits(0, 200 * half))


def chance(p: float, reader: Numbers) -> str:
    """How often chance alone does as much."""
    if p > 0.1:
        return f"{reader.number(math.ceil(p * 100), 0)} times in 100" if p <= 0.9 else "nearly always"
    if p < 1e-4:
        return f"less than 1 time in {reader.number(10_000, 0)}"
    return f"about 1 time in {reader.number(math.floor(1 / p), 0)}"


def trend(answer: Answer, reader: Numbers) -> list[str]:
    """A sentence for each statistic: whether windows differ by more than chance makes them."""
    said = []
    for name, p in answer.p_values:
        verdict = "It changed." if p < 1 - answer.confidence else "That may be chance."
        often = f"If nothing had changed, windows would differ as much {chance(p, reader)}."
        said.append(f"{_begun(visible(name), answer)}: {often} {verdict}")
    return said


def _begun(name: str, answer: Answer) -> str:
    """A name that begins a sentence: a statistic's has a capital, a label stays what it is."""
    return f"{name[:1].upper()}{name[1:]}" if answer.quantity == "reading" else name


def change(row: ChangeRow, name: str, answer: Answer, reader: Numbers) -> str:
    """Mean rose by 7.66 °C, between 6.12 and 9.21: from 18.03 to 25.69; how often chance does as much."""
    percent = answer.quantity == "share"
    scale, unit = (100, "percentage points") if percent else (1, answer.unit)
    places = digits(row.low * scale, row.high * scale)

    def write(x: float) -> str:
        return reader.number(x * scale, places)

    def to(x: float) -> str:
        return f"{write(x)} {unit}".rstrip()

    before = f"from {write(row.before)} to {write(row.after)}{' %' if percent else ''}"
    if row.low < 0 < row.high:
        said = f"went {before}: somewhere between a fall of {write(-row.low)} and a rise of {to(row.high)}"
    elif row.low >= 0:
        said = f"rose by {to(row.value)}, between {write(row.low)} and {write(row.high)}: {before}"
    else:
        said = f"fell by {to(abs(row.value))}, between {write(abs(row.high))} and {write(-row.low)}: {before}"
    verdict = "It changed." if row.p_adjusted < 1 - answer.confidence else "That may be chance."
    alone, together = (chance(p, reader) for p in (row.p, row.p_adjusted))
    often = f"If nothing had changed, that much would be seen {alone}"
    if together != alone:
        rows = reader.number(len(answer.rows), 0)
        often += f", looked at alone; with all {rows} rows that are compared here taken into account, "
        often += together
    return f"{_begun(name, answer)} {said}. {often}. {verdict}"


def epsilons(overview: Overview, shown: TwoEpsilons, reader: Numbers) -> list[str]:
    """Both ε with whom each holds against; shown: of the histogram that is looked at."""
    known = belief(shown.report)
    one = f"ε of a report: {_epsilon(shown.report, reader)}. It holds against everybody. {known}"
    own = "1 report" if shown.own == 1 else f"up to {reader.number(shown.own, 0)} reports"
    both = (
        f"ε of this histogram: {_epsilon(shown.histogram, reader)} at δ = {shown.delta:g}, {own} of a board. "
        f"It holds {LIMITS}, and for who sees this one, once."
    )
    if shown.histogram is None:
        both = f"ε of this histogram: –. {WATCHING}"
    each = _epsilon(overview.all_windows.histogram, reader)
    every = (
        f"ε of all ended windows: {each}. It holds for who has seen the histogram of each, once it had "
        "ended, as this page lets you."
    )
    return [one, both, every]


def _epsilon(nats: float | None, reader: Numbers) -> str:
    text = rounded_up(nats)
    return text if nats is None or "e" in text else reader.number(float(text), len(text.partition(".")[2]))


def head(of: Selected, today: datetime.date, reader: Numbers) -> list[str]:
    """Who asks what until when, and how many reports came: a line for each."""
    version, lines = of.newest, []
    if version.purpose:
        lines.append(visible(version.purpose))
    asks = f"Asked by {visible(version.owner)}. " if version.owner else ""
    lines.append(f"{asks}{_until(of, today, reader)}")
    of_today, total = _reports_on(of, today), reader.number(of.reports, 0)
    counted = f"{total} report{'' if of.reports == 1 else 's'} in all"
    lines.append(counted if of_today is None else f"{reader.number(of_today, 0)} reports today, {counted}")
    return lines


def _reports_on(of: Selected, day: datetime.date) -> int | None:
    """Reports of one day, UTC; None where counts are not kept by the day."""
    if of.newest.experiment.window == "all":
        return None
    return sum(sum(n.values()) for window, n in of.there.items() if window[:10] == day.isoformat())


def _until(of: Selected, today: datetime.date, reader: Numbers) -> str:
    current = [v for v in of.versions if v.current]
    if not current:
        last = max((v.counted_until for v in of.versions if v.counted_until), default=None)
        late = f" Reports on their way count until {reader.day(last)}." if last and last >= today else ""
        return f"It was withdrawn: boards take part no more.{late}"
    expires = current[0].expires
    if expires is None:
        return "It has no last day."
    left = days_left(expires, today)
    if left == 0:
        return f"It ended on {reader.day(expires)}."
    return "Today is its last day." if left == 1 else f"{reader.number(left, 0)} days left."


def too_few(reports: int, windows: Sequence[str], reader: Numbers) -> str:
    """Said instead of an estimate."""
    where = " in what you chose" if windows else ""
    counted = (
        "No report" if not reports else "1 report" if reports == 1 else f"{reader.number(reports, 0)} reports"
    )
    verb = "has" if reports <= 1 else "have"
    return f"{counted} {verb} been counted{where} so far. {NOT_YET}"
