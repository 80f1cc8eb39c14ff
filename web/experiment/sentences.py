"""The sentences in the view of an experiment; `server.words` has their wording."""

import datetime
from collections.abc import Sequence

from ...device.ldp_client import Experiment
from ...fleet.results.result import LIVE
from ...server.answers.answer import Answer
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
from ...server.words.epsilon import belief, own_reports, rounded_up
from ...server.words.numbers import Numbers, counted
from ..in_locale import in_locale, percent_signs
from ..period import EXPLICIT, phrase_of
from ..reader import Reader
from .choices import Choices, ends

BEFOREHAND = (
    "An interval holds for a range that was chosen beforehand. For a range picked because it stands out it "
    "holds less often than it says."
)
WIDE = "Numbers with too few reports are not shown."
ANEW = "and anew when reports come, at most once a minute"
WATCHING = f"Watching live: {LIVE}."
_EVERY_DAY = "ε for someone who has seen every day"
_MOST_LEFT_OUT = 5  # listed in the message
_COUNTED_DAYS = 3650  # days until a last day; if it is further away, the date is shown


def span(row: Row, experiment: Experiment, unit: str, reader: Numbers) -> str:
    """Return the name of a share: 18 to 22 °C, below 18 °C, 22 °C and above, or the label."""
    if row.lower is None or row.upper is None:
        return visible(row.name)
    edges = bin_edges(experiment)
    return words.bins(row.lower, row.upper, (edges[0], edges[-1]), unit, reader)


def range_name(experiment: Experiment, text: str, unit: str, reader: Numbers) -> str:
    """Return the name of a number's low:high, in the form of span()."""
    low, high = ends(experiment, text)
    return span(Row(text, 0, 0, 0, lower=low, upper=high), experiment, unit, reader)


def left_out(omitted: Sequence[str]) -> str:
    """Return the note on a link's choices that do not exist."""
    if not omitted:
        return ""
    listed = ", ".join(omitted[:_MOST_LEFT_OUT])
    more = f" and {len(omitted) - _MOST_LEFT_OUT} more" if len(omitted) > _MOST_LEFT_OUT else ""
    it = "it is" if len(omitted) == 1 else "they are"
    return f"This link asks for something that is not here ({listed}{more}): {it} left out."


def not_available(chosen: Choices, fitted: Choices, reader: Reader) -> str:
    """Return the note on a choice that the experiment does not have, or "".

    Args:
        chosen: The reader's choices.
        fitted: The choices made from them.
        reader: The reader, for the days.
    """
    period = chosen.period
    if period not in (fitted.period, EXPLICIT):
        return (
            f"No report came {phrase_of(period, reader)}: the page shows the newest days that have reports."
        )
    if chosen.follows and not fitted.follows:
        return "No report came before this period: there is nothing to compare it with."
    return ""


def missing(answer: Answer, reader: Reader) -> str:
    """Return the share of devices without a reading, or "" if the experiment does not count them."""
    if answer.missing is None:
        return ""
    share = findings.amount(answer.missing, None, reader)
    return f"no reading: {share}. All other numbers are about devices with a reading."


def exact(histogram: Answer, selected: Row | None, reader: Numbers) -> str:
    """Return the uncertainty of the selected share and of single bars, and what would halve it."""
    bars = half_width(histogram)
    parts = [] if selected is None else [("the share that you chose", selected.half_width, None)]
    parts += [("a single bar", bars, None)] if bars else []
    if not parts:
        return ""
    text = words.exact(parts, histogram.confidence, write=reader)
    more = words.halved(histogram.reports, reader, approximate=histogram.approximate)
    return f"{text} {words.capitalize(more)}"


def trend(answer: Answer, reader: Reader) -> list[str]:
    """Return a sentence for each statistic of a trend whose change is known, and other notes."""
    lines = (in_locale(visible(line), reader) for line in (*answer.note.splitlines(), *answer.changes))
    return [_capitalize_statistic(line, answer) for line in lines]


def _capitalize_statistic(name: str, answer: Answer) -> str:
    """Return a name to begin a sentence with: a statistic's is capitalized, a label is unchanged."""
    return words.capitalize(name) if answer.quantity == "reading" else name


def change(row: ChangeRow, name: str, answer: Answer, reader: Reader) -> str:
    """Return how a share or a reading changed, and how often chance produces such a change."""
    unit = None if answer.quantity == "share" else answer.unit
    text = words.change(
        row, _capitalize_statistic(name, answer), unit, answer.confidence, len(answer.rows), reader
    )
    return percent_signs(text, reader)


def epsilons(once: TwoEpsilons, every_day: TwoEpsilons, reader: Reader) -> list[str]:
    """Return the ε of a report, and of the page's numbers for two kinds of readers, with assumptions.

    Args:
        once: Over all sums that are shown.
        every_day: Of each completed window by itself.
        reader: The reader, for the numbers.
    """
    text = in_locale(belief(once.report), reader)
    lines = [f"ε of a report: {_epsilon(once.report, reader)}. It holds against everybody. {text}"]
    if once.histogram is None:
        return [*lines, f"ε for someone who sees this once: –. {WATCHING}", f"{_EVERY_DAY}: –."]
    return [
        *lines,
        f"ε for someone who sees this once: {_epsilon(once.histogram, reader)} at δ = {once.delta:g}, "
        f"{own_reports(once.own, reader)}. It holds {LIMITS}, for this period, the times before and "
        "after a change, and what the period is compared with.",
        f"{_EVERY_DAY}: {_epsilon(every_day.histogram, reader)}, {own_reports(every_day.own, reader)}. It "
        "also holds for the picture over time, which shows each window.",
    ]


def _epsilon(nats: float | None, reader: Numbers) -> str:
    text = rounded_up(nats)
    return text if nats is None or "e" in text else reader.number(float(text), len(text.partition(".")[2]))


def head(of: Selected, today: datetime.date, reader: Numbers) -> str:
    """Return the experiment's name, owner, end, and number of reports."""
    version = of.newest
    selection = of.selection
    asks = f", asked by {visible(version.owner)}" if version.owner else ""
    of_today, in_all = _reports_on(of, today), f"{counted(of.reports, write=reader)} in all"
    came = in_all if of_today is None else f"{reader.number(of_today, 0)} reports today, {in_all}"
    name = f"{visible(selection.experiment)} of fleet {visible(selection.fleet)}"
    return f"{name}{asks}. {_until(of, today, reader)} {came}."


def _reports_on(of: Selected, day: datetime.date) -> int | None:
    """Return the reports of one day, UTC, or None if counts are not stored by day."""
    if of.newest.experiment.window == "all":
        return None
    return sum(sum(n.values()) for window, n in of.there.items() if window[:10] == day.isoformat())


def _until(of: Selected, today: datetime.date, reader: Numbers) -> str:
    current = [v for v in of.versions if v.current]
    if not current:
        last = max((v.counted_until for v in of.versions if v.counted_until), default=None)
        late = f" Reports on their way count until {reader.day(last)}." if last and last >= today else ""
        return f"It was withdrawn: no device takes part any more.{late}"
    expires = current[0].expires
    if expires is None:
        return "It has no last day."
    days = days_left(expires, today)
    if days > _COUNTED_DAYS:
        return f"It is asked until {reader.day(expires)}."
    if days == 0:
        return f"It ended on {reader.day(expires)}."
    return "Today is its last day." if days == 1 else f"{reader.number(days, 0)} days left."
