"""The page's charts, as vector graphics in the page's light or dark colours."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nicegui import ui

from .frame import tag

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Okabe and Ito's palette without yellow and black, which are invisible on white or on black."""

_DAY_MS = 24 * 3600 * 1000
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
    return element


def line(name: str, points: Iterable[Sequence[Any]], colour: str) -> dict[str, Any]:
    """Return a series as a line without dots."""
    data = [list(point) for point in points]
    return {"type": "line", "name": name, "data": data, "showSymbol": False, "color": colour}


def over_days(
    title: str, series: Sequence[dict[str, Any]], locale: str, unit: str = "", **more: Any
) -> dict[str, Any]:
    """Return the options of a chart whose x-axis shows days; `more` are options of the y-axis, from 0."""
    names = list(dict.fromkeys(one["name"] for one in series))
    return {
        "animation": False,
        "textStyle": {"fontFamily": "system-ui, sans-serif"},
        "title": {"text": title, "left": 0, "textStyle": {"fontSize": 14, "fontWeight": "normal"}},
        "grid": {"left": 55, "right": 20, "top": 45, "bottom": 70 if len(names) > 1 else 30},
        "legend": {"bottom": 0, "type": "scroll", "data": names, "show": len(names) > 1},
        "tooltip": tooltip(locale, unit),
        "xAxis": axis("time", "", locale, splitLine={"show": False}),
        "yAxis": axis("value", "", locale, unit, min=0, **more),
        "series": series,
    }


def tooltip(locale: str, unit: str = "") -> dict[str, Any]:
    """Return a tooltip that shows data as text, never as HTML, with the unit after each value."""
    return {"trigger": "axis", "renderMode": "richText", ":valueFormatter": script("numbers", locale, unit)}


def axis(kind: str, name: str, locale: str, unit: str = "", **more: Any) -> dict[str, Any]:
    """Return an ECharts axis; `kind` is "log", "value" or "time"."""
    formatter = script("day", locale) if kind == "time" else script("numbers", locale, unit)
    labels: dict[str, Any] = {"hideOverlap": True, ":formatter": formatter}
    place: dict[str, Any] = {"nameLocation": "middle", "nameGap": 30}
    if kind == "time":  # do not label a day twice
        place["minInterval"] = _DAY_MS
    return {"type": kind, "name": name, **place, "axisLabel": labels, "splitLine": _GRID} | more


def script(name: str, *arguments: object) -> str:
    """Return JavaScript that calls a function in static/charts.js."""
    return f"hushmote.{name}({json.dumps(arguments)[1:-1]})"
