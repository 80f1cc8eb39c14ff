"""Charts as the page draws them: vectors that take their ink from the page's style, light or dark."""

from __future__ import annotations

import json
from typing import Any

from nicegui import ui

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
"""Okabe's and Ito's, without the two that white or black paper swallows."""

_GRID = {"show": True, "lineStyle": {"color": "rgba(128, 128, 128, 0.35)"}}


def chart(options: dict[str, Any], label: str) -> ui.echart:
    """A chart by the options of ECharts; label: what it shows, in a sentence, for those who do not see it."""
    element = ui.echart(options, renderer="svg").classes("chart")
    element.props["role"], element.props["aria-label"] = "img", label
    return element


def tooltip(locale: str, unit: str = "") -> dict[str, Any]:
    """A tooltip that writes data as text, never as HTML. unit: stands behind each value."""
    return {"trigger": "axis", "renderMode": "richText", ":valueFormatter": _written(locale, unit)}


def axis(kind: str, name: str, locale: str, unit: str = "", **more: Any) -> dict[str, Any]:
    """An axis of ECharts; kind: "log", "value" or "time"."""
    labels: dict[str, Any] = {"hideOverlap": True}
    if kind != "time":
        labels[":formatter"] = _written(locale, unit)
    place = {"nameLocation": "middle", "nameGap": 30}
    return {"type": kind, "name": name, **place, "axisLabel": labels, "splitLine": _GRID} | more


def _written(locale: str, unit: str) -> str:
    shape = '{maximumSignificantDigits: 3, notation: Math.abs(v) >= 1e6 ? "compact" : "standard"}'
    return f"v => new Intl.NumberFormat({json.dumps(locale)}, {shape}).format(v) + {json.dumps(unit)}"
