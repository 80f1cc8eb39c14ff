"""The page's charts, as vector graphics in the page's light or dark colours."""

import datetime
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nicegui import ui

from .frame import tag

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Okabe and Ito's palette without yellow and black, which are invisible on white or on black."""

_DAY_MS = 24 * 3600 * 1000
_DAYS = (1, 2, 4, 7, 14, 28, 42, 61, 122, 183)
_STEPS = (*_DAYS, *(365 * years for years in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)))
_MAX_TICKS = 6  # about the number of labels that fit on a phone
_MONTHS = 61  # days between ticks that are labelled with month and year
_GRID = {"show": True, "lineStyle": {"color": "rgba(128, 128, 128, 0.35)"}}


def register() -> None:
    """Add the styles for charts and tables to all views."""
    ui.add_css(Path(__file__).with_name("charts.css"), shared=True)


def table(label: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, stacked: bool = False) -> None:
    """Show rows of text; the first text in a row is the row's name. A table wider than the page scrolls.

    Args:
        label: Describes the table for screen readers.
        heads: The column headings.
        rows: The texts.
        stacked: Whether a narrow screen shows each text on its own line, after its column heading.
    """
    shape = "numbers stacked" if stacked else "numbers"
    with ui.element("div").classes(shape).props('tabindex="0" role="region"') as region:
        region.props["aria-label"] = label
        with ui.element("table"):
            with ui.element("thead"), ui.element("tr"):
                for head in heads:
                    tag("th", head).props('scope="col"')
            with ui.element("tbody"):
                for name, *cells in rows:
                    with ui.element("tr"):
                        tag("th", name).props('scope="row"')
                        for head, cell in zip(heads[1:], cells, strict=True):
                            tag("td", cell).props["data-head"] = head


def chart(options: dict[str, Any], label: str) -> ui.echart:
    """Return a chart with these ECharts options; `label` describes it in a sentence for screen readers."""
    element = ui.echart(options, renderer="svg").classes("chart")
    element.props["role"], element.props["aria-label"] = "img", label
    element.on("chart:finished", js_handler=f"() => hushmote.fit(getElement({element.id}).chart)")
    return element


def line(name: str, points: Iterable[Sequence[Any]], colour: str) -> dict[str, Any]:
    """Return a series as a line without dots."""
    data = [list(point) for point in points]
    return {"type": "line", "name": name, "data": data, "showSymbol": False, "color": colour}


def mark(day: datetime.date, text: str) -> dict[str, Any]:
    """Return a series that marks a day with a vertical line, for over_days()."""
    where = {
        "symbol": "none", "silent": True, "data": [{"xAxis": day.isoformat()}],
        "lineStyle": {"color": "rgba(128, 128, 128, 0.8)"}, "label": {"formatter": text},
    }  # fmt: skip
    return {"type": "line", "name": "", "data": [], "markLine": where}


def over_days(title: str, series: Sequence[dict[str, Any]], locale: str) -> dict[str, Any]:
    """Return the options of a chart whose x-axis shows days, and whose y-axis begins at 0."""
    names = list(dict.fromkeys(one["name"] for one in series if one["name"]))
    ticks, step = _even_ticks([str(point[0]) for one in series for point in one["data"]])
    days = axis("time", "", locale, splitLine={"show": False}, axisTick={"customValues": ticks})
    days["axisLabel"] |= {"customValues": ticks, ":formatter": script("day", locale, step >= _MONTHS)}
    return {
        "animation": False,
        "textStyle": {"fontFamily": "system-ui, sans-serif"},
        "title": {"text": title, "left": 0, "textStyle": {"fontSize": 14, "fontWeight": "normal"}},
        "grid": {"left": 55, "right": 20, "top": 52, "bottom": 70 if len(names) > 1 else 30},
        "legend": {"bottom": 0, "type": "scroll", "data": names, "show": len(names) > 1},
        "tooltip": tooltip(locale),
        "xAxis": days,
        "yAxis": axis("value", "", locale, min=0),
        "series": series,
    }


def _even_ticks(times: Sequence[str]) -> tuple[list[int], int]:
    """Return evenly spaced days in unix milliseconds, and their distance in days, for times in ISO 8601."""
    days = [datetime.date.fromisoformat(time[:10]).toordinal() for time in times] or [1]
    first, last = min(days), max(days)
    step = next((n for n in _STEPS if (last - first) / n <= _MAX_TICKS), _STEPS[-1])
    epoch = datetime.date(1970, 1, 1).toordinal()
    return [(day - epoch) * _DAY_MS for day in range(-(-first // step) * step, last + 1, step)], step


def tooltip(locale: str, unit: str = "") -> dict[str, Any]:
    """Return a tooltip that shows data as text, never as HTML, with the unit after each value."""
    return {"trigger": "axis", "renderMode": "richText", ":valueFormatter": script("numbers", locale, unit)}


def axis(kind: str, name: str, locale: str, unit: str = "", **more: Any) -> dict[str, Any]:
    """Return an ECharts axis; `kind` is "log", "value" or "time"."""
    labels: dict[str, Any] = {"hideOverlap": True, ":formatter": script("numbers", locale, unit)}
    place: dict[str, Any] = {"nameLocation": "middle", "nameGap": 30}
    return {"type": kind, "name": name, **place, "axisLabel": labels, "splitLine": _GRID} | more


def script(name: str, *arguments: object) -> str:
    """Return JavaScript that calls a function in static/charts.js."""
    return f"hushmote.{name}({json.dumps(arguments)[1:-1]})"
