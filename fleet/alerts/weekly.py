"""A weekly summary of a fleet, as plain text and as an HTML mail with the page's own tiles.

The mail has no script, images or links to other servers, and is a single column that fits a phone.
"""

import datetime
from collections import Counter
from html import escape

from ...server.answers.finding import Findings, find
from ...server.answers.headline import ARROWS, headline, spark
from ...server.answers.query import Facts
from ...server.answers.question import Selection
from ...server.answers.second_epsilon import of_messages
from ...server.errors import HushmoteError
from ...server.local_days import WEEKDAYS, Calendar
from ...server.plain_text import visible
from ...server.store.store import Version
from ...server.words.numbers import ENGLISH, counted
from .alert import Alert
from .events import current_versions

_HOUR = 8  # local time from which the summary is sent
_INK, _FAINT, _PAPER, _LINE, _ACCENT = "#1a1a1a", "#595959", "#ffffff", "#d0d0d0", "#0062a3"
_COLOURS = {"up": "#8a3b00", "down": "#00579e", "": _FAINT}


def weekly_alert(facts: Facts, fleet: str, weekday: str) -> Alert | None:
    """Return a fleet's newest weekly summary without its text, or None without a current experiment.

    It is due at 8:00 in the time zone that most of its experiments have.

    Args:
        facts: The contents of the store.
        fleet: The fleet's name.
        weekday: The day on which it is sent, one of WEEKDAYS.
    """
    versions = current_versions(facts, fleet)
    if not versions:
        return None
    local = _calendar(versions).local(facts.at) - datetime.timedelta(hours=_HOUR)
    day = local.date() - datetime.timedelta(days=(local.weekday() - WEEKDAYS.index(weekday)) % 7)
    return Alert("weekly", (day.isoformat(),), f"Weekly summary: {fleet}", "", day, day, fleet)


def _calendar(versions: list[Version]) -> Calendar:
    calendars = Counter(version.description.calendar for version in versions)
    return calendars.most_common(1)[0][0]


def summary_text(facts: Facts, fleet: str) -> str:
    """Return the summary as plain text: each experiment's finding."""
    parts = [
        f"{visible(version.purpose or version.experiment.name)}\n{_sentence(facts, version)}"
        for version in current_versions(facts, fleet)
    ]
    return "\n\n".join([*parts, *_epsilon_lines(facts, fleet)])


def summary_html(facts: Facts, fleet: str) -> str:
    """Return the summary as an HTML document with a tile for each experiment."""
    tiles = "".join(_tile(facts, version) for version in current_versions(facts, fleet))
    notes = "".join(f"<p>{escape(line)}</p>" for line in _epsilon_lines(facts, fleet))
    title = escape(f"Weekly summary: {fleet}")
    style = f"margin:0 auto;padding:12px;max-width:600px;background:{_PAPER};color:{_INK}"
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title></head>'
        f'<body style="{style};font:16px/1.4 system-ui,sans-serif;overflow-wrap:anywhere">'
        f'<h1 style="font-size:20px">{title}</h1>{tiles}'
        f'<div style="font-size:13px;color:{_FAINT}">{notes}</div></body></html>'
    )


def _answer(facts: Facts, version: Version, *, series: bool = False) -> Findings | str:
    """Return an experiment's findings, or the reason why there are none."""
    try:
        return find(facts, Selection(version.experiment.name, version.fleet), series=series)
    except HushmoteError as e:
        return visible(str(e))


def _sentence(facts: Facts, version: Version) -> str:
    answer = _answer(facts, version)
    return answer if isinstance(answer, str) else answer.sentence


def _tile(facts: Facts, version: Version) -> str:
    answer, name = _answer(facts, version, series=True), version.experiment.name
    title = escape(visible(version.purpose or name))
    parts = [f'<h2 style="margin:0;font-size:17px">{title}</h2>']
    parts += [_paragraph(name, _FAINT)] if version.purpose else []
    if isinstance(answer, str):
        parts.append(_paragraph(answer))
    else:
        first = next((finding for finding in answer.findings if finding.enough), None)
        now = version.description.calendar.local(facts.at)
        texts = None if first is None else headline(first, now, ENGLISH)
        if texts is not None and first is not None:
            value = f'<strong style="font-size:32px">{escape(texts.value)}</strong>'
            parts.append(f'<p style="margin:4px 0">{value} {escape(visible(texts.title))}</p>')
            arrow = f"{ARROWS.get(texts.direction, '')} {texts.change}".strip()
            change = ", ".join(filter(None, [arrow, texts.certainty])) if texts.change else ""
            parts.append(_paragraph(change, _COLOURS[texts.direction]))
            parts.append(_paragraph(texts.dates, _FAINT))
            parts.append(_picture(spark(first)))
        parts += [_paragraph(line) for line in answer.lines]
        parts.append(_paragraph(counted(answer.reports), _FAINT))
    style = f"border:1px solid {_LINE};border-radius:6px;padding:12px;margin:0 0 12px"
    return f'<div style="{style}">{"".join(parts)}</div>'


def _paragraph(text: str, colour: str = _INK) -> str:
    return f'<p style="margin:4px 0;color:{colour}">{escape(visible(text))}</p>' if text else ""


def _picture(svg: str) -> str:
    """Return a sparkline with its colours in attributes, because mail programs drop style sheets."""
    line = f'fill="none" stroke="{_ACCENT}" vector-effect="non-scaling-stroke" stroke-linecap="round"'
    svg = svg.replace("<svg ", '<svg style="display:block;width:100%;height:56px;overflow:visible" ')
    svg = svg.replace("<polygon ", f'<polygon fill="{_ACCENT}" opacity=".2" ')
    svg = svg.replace("<polyline ", f'<polyline stroke-width="2" {line} ')
    return svg.replace("<path ", f'<path stroke-width="7" {line} ')


def _epsilon_lines(facts: Facts, fleet: str) -> list[str]:
    lines = list[str]()
    for version in current_versions(facts, fleet):
        both = of_messages(facts, fleet, version.experiment.name)
        if both is not None:
            name = version.experiment.name
            lines.append(f"{name}: {both.words('what all messages about it show')}")
    return lines
