"""The experiment view's sentences, some of which `server.words` writes."""

import datetime
from collections.abc import Sequence

from ...device.ldp_client import Experiment
from ...fleet.results.result import LIVE
from ...server.answers.answer import Answer
from ...server.answers.periods import day_of
from ...server.answers.query import Selected
from ...server.answers.rows import ChangeRow, Row
from ...server.answers.second_epsilon import TwoEpsilons
from ...server.answers.summary import half_width
from ...server.estimate.shuffled import LIMITS
from ...server.experiments.units import bin_edges
from ...server.overview.fleets import days_left
from ...server.plain_text import visible
from ...server.words import answers as words
from ...server.words import findings
from ...server.words.epsilon import belief, reports_per_device, rounded_up
from ...server.words.experiment import unprotected
from ...server.words.numbers import Numbers, counted
from ..in_locale import in_locale, percent_signs
from ..period import EXPLICIT, phrase_of
from ..reader import Reader
from .choices import Choices, ends

BEFOREHAND = (
    "An interval is valid for a range that was chosen beforehand. For a range picked because it stands out, "
    "the interval contains the truth less often than stated."
)
WIDE = "Numbers with too few reports are not shown."
RECOMPUTED = "and again when reports arrive, at most once a minute"
WATCHING = f"Watching live: {LIVE}."
_EVERY_DAY = "ε for someone who has seen every day"
_MAX_LEFT_OUT = 5  # listed in the message
_MAX_DAYS_LEFT = 3650  # beyond this, the last day's date is shown instead of the number of days left


def span(row: Row, experiment: Experiment, unit: str, reader: Numbers) -> str:
    """Return a share's name, such as 18 to 22 °C, below 18 °C, 22 °C and above, or a label."""
    if row.lower is None or row.upper is None:
        return visible(row.name)
    edges = bin_edges(experiment)
    return words.bin_range(row.lower, row.upper, (edges[0], edges[-1]), unit, reader)


def range_name(experiment: Experiment, text: str, unit: str, reader: Numbers) -> str:
    """Return the name of a number's range low:high, in the form of span()."""
    low, high = ends(experiment, text)
    return span(Row(text, 0, 0, 0, lower=low, upper=high), experiment, unit, reader)


def left_out(omitted: Sequence[str]) -> str:
    """Return the note on a link's invalid choices, or ""."""
    if not omitted:
        return ""
    listed = ", ".join(omitted[:_MAX_LEFT_OUT])
    more = f" and {len(omitted) - _MAX_LEFT_OUT} more" if len(omitted) > _MAX_LEFT_OUT else ""
    choices, them = ("a choice", "it") if len(omitted) == 1 else ("choices", "them")
    problem = f"This link contains {choices} that this view does not have ({listed}{more})"
    return f"{problem}; the page ignores {them}."


def not_available(chosen: Choices, fitted: Choices, reader: Reader) -> str:
    """Return the note on a choice that the experiment does not support, or "".

    Args:
        chosen: The reader's choices.
        fitted: The choices that the experiment supports.
        reader: The reader's date format.
    """
    period = chosen.period
    if period not in (fitted.period, EXPLICIT):
        return (
            f"No reports arrived {phrase_of(period, reader)}, so the page shows the newest days with reports."
        )
    if chosen.follows and not fitted.follows:
        return "No reports arrived before this period, so there is nothing to compare it with."
    return ""


def missing(answer: Answer, reader: Reader) -> str:
    """Describe the share of devices without a reading, or return "" if the experiment does not count them."""
    if answer.missing is None:
        return ""
    share = findings.amount(answer.missing, None, reader, answer.population)
    return f"no reading: {share}. All other numbers are about devices with a reading."


def exact(histogram: Answer, selected: Row | None, reader: Numbers) -> str:
    """Return the uncertainty of the selected share and of a single bar, and advice on halving it."""
    bars = half_width(histogram)
    parts = [] if selected is None else [("the selected share", selected.half_width, None)]
    parts += [("a single bar", bars, None)] if bars else []
    if not parts:
        return ""
    text = words.exactness(parts, histogram.confidence, write=reader)
    more = words.halving_advice(histogram.reports, reader, approximate=histogram.approximate)
    return f"{text} {words.capitalize(more)}"


def trend(answer: Answer, reader: Reader) -> list[str]:
    """Return a sentence for each statistic in a trend whose change is known, and other notes."""
    lines = (in_locale(visible(line), reader) for line in (*answer.note.splitlines(), *answer.changes))
    return [_capitalize_statistic(line, answer) for line in lines]


def _capitalize_statistic(name: str, answer: Answer) -> str:
    """Return a name for the beginning of a sentence; this capitalizes a statistic but not a label."""
    return words.capitalize(name) if answer.quantity == "reading" else name


def change(row: ChangeRow, name: str, answer: Answer, reader: Reader) -> str:
    """Describe how a share or a reading changed, and how often such a change happens by chance."""
    unit = None if answer.quantity == "share" else answer.unit
    text = words.change(
        row, _capitalize_statistic(name, answer), unit, answer.confidence, len(answer.rows), reader
    )
    return percent_signs(text, reader)


def epsilons(experiment: Experiment, once: TwoEpsilons, every_day: TwoEpsilons, reader: Reader) -> list[str]:
    """Describe the ε of a report, and the ε of the page's numbers for two kinds of readers.

    Args:
        experiment: The experiment's newest version.
        once: Both ε over all displayed sums.
        every_day: Both ε over all completed windows individually.
        reader: The reader's number format.
    """
    text = in_locale(belief(once.report), reader)
    lines = [f"ε of a report: {_epsilon(once.report, reader)}. It protects against everyone. {text}"]
    lines += filter(None, [unprotected(experiment)])
    if once.histogram is None:
        return [*lines, f"ε for someone who sees this once: –. {WATCHING}", f"{_EVERY_DAY}: –."]
    return [
        *lines,
        f"ε for someone who sees this once: {_epsilon(once.histogram, reader)} at δ = {once.delta:g}, "
        f"{reports_per_device(once.own, reader)}. It holds {LIMITS}. It covers this period, the times before "
        "and after a change, and both sides of a comparison.",
        f"{_EVERY_DAY}: {_epsilon(every_day.histogram, reader)}, "
        f"{reports_per_device(every_day.own, reader)}. "
        "It also covers the chart over time, which shows each window.",
    ]


def _epsilon(nats: float | None, reader: Numbers) -> str:
    text = rounded_up(nats)
    return text if nats is None or "e" in text else reader.number(float(text), len(text.partition(".")[2]))


def head(selected: Selected, now: datetime.datetime, reader: Numbers) -> str:
    """Describe the experiment's name, owner, end, and number of reports."""
    version = selected.newest
    selection = selected.selection
    owner = f", asked by {visible(version.owner)}" if version.owner else ""
    today_count, total = _reports_today(selected, now), f"{counted(selected.reports, write=reader)} in all"
    zone = f" ({selected.calendar.day})" if selected.calendar.is_local else ""
    reports = (
        total if today_count is None else f"{counted(today_count, 'report', reader)} today{zone}, {total}"
    )
    today = now.astimezone(datetime.UTC).date()
    name = f"{visible(selection.experiment)} of fleet {visible(selection.fleet)}"
    return f"{name}{owner}. {_until(selected, today, reader)} {reports}."


def _reports_today(selected: Selected, now: datetime.datetime) -> int | None:
    """Return the number of reports on the current day, or None if counts are not stored by day."""
    if selected.newest.experiment.window == "all":
        return None
    today, calendar = selected.calendar.today(now), selected.calendar
    return sum(sum(n.values()) for w, n in selected.all_counts.items() if day_of(w, calendar) == today)


def _until(selected: Selected, today: datetime.date, reader: Numbers) -> str:
    current = [v for v in selected.versions if v.current]
    if not current:
        last = max((v.counted_until for v in selected.versions if v.counted_until), default=None)
        late = f" Late reports count until {reader.day(last)}." if last and last >= today else ""
        return f"It was withdrawn, so no device takes part any more.{late}"
    expires = current[0].expires
    if expires is None:
        return "It has no last day."
    days = days_left(expires, today)
    if days > _MAX_DAYS_LEFT:
        return f"It is asked until {reader.day(expires)}."
    if days == 0:
        return f"It ended on {reader.day(expires)}."
    return "Today is its last day." if days == 1 else f"{reader.number(days, 0)} days left."
