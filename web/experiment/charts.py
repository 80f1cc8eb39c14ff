"""ECharts options for the charts. Names are drawn as vector text, never as HTML.

The value of a key that begins with : is a call to static/charts.js, and never contains data from a store. The
colours come from the page's light or dark style; see static/experiment.css.
"""

import math
from collections.abc import Sequence
from typing import Any

from ...server.answers.answer import Answer
from ...server.answers.rows import ChangeRow, PostRow, TrendRow, VersionMark
from ...server.plain_text import shorten, visible
from ..charts import script

INK, GRID = "var(--ink)", "var(--line)"
BLUE, RED, GREEN = "var(--accent)", "var(--chart-red)", "var(--chart-green)"
_LINES = (BLUE, RED, GREEN, "var(--chart-purple)")
_FAINT = 0.35  # opacity
_MAX_BARS = 128  # bars drawn individually; more are drawn as a stepped line
_MAX_MARKED = 30  # windows; with more, the points are smaller
_LABEL = 24  # maximum characters in a name on an axis
_MARK = 32  # maximum characters in the label of a new version

# The page's font. ECharts measures an axis's labels to make room for them, but cannot measure "inherit", and
# assumes a narrower font if the axis does not name one.
_FONT = "system-ui, sans-serif"
_NAMES = {":formatter": "hushmote.name"}

# ECharts warns about custom series without a zlevel, although 0 is the documented default.
_CUSTOM: dict[str, Any] = {"type": "custom", "zlevel": 0}

Options = dict[str, Any]


def _numbers(locale: str, suffix: str = "") -> Options:
    """Return options that format an axis's labels as numbers in a locale, such as de-CH."""
    return {":formatter": script("digits", locale, suffix)}


def _tooltip(locale: str, *, named: bool = False) -> Options:
    """Return the tooltip for a bar, a point or a window, as vector text, never as HTML."""
    formatter = script("tooltip", locale, named)
    return {"trigger": "item", "renderMode": "richText", ":formatter": formatter, "confine": True}


def _axis(kind: str, labels: Options, *, below: bool = False, **more: Any) -> Options:
    """Return an axis with formatted labels; `below` puts its name below the axis."""
    place: Options = {"nameLocation": "middle", "nameGap": 26} if below else {}
    return {
        "type": kind,
        "axisLabel": {"color": INK, "hideOverlap": True, "fontFamily": _FONT} | labels,
        "nameTextStyle": {"color": INK},
        "axisLine": {"lineStyle": {"color": GRID}},
        "splitLine": {"lineStyle": {"color": GRID}},
        **place,
        **more,
    }


def _picture(
    summary: str, x: Options, y: Options, series: list[Options], top: int = 28, bottom: int = 28, **more: Any
) -> Options:
    """Return a chart with a summary for screen readers; top and bottom are its margins in pixels."""
    return {
        "animation": False,
        "toolbox": {"show": False},
        "aria": {"enabled": True, "label": {"description": visible(summary)}},
        "grid": {"left": 8, "right": 24, "top": top, "bottom": bottom, "containLabel": True},
        "textStyle": {"fontFamily": _FONT},
        "xAxis": x,
        "yAxis": y,
        "series": series,
        **more,
    }


def _scatter(name: str, data: list[Any], size: int, **more: Any) -> Options:
    return {"id": name, "type": "scatter", "data": data, "symbolSize": size, **more}


_DIAMONDS: Options = {"symbol": "diamond", "itemStyle": {"color": GREEN}, "z": 5}  # post-processed shares
_BRUSH: Options = {
    "xAxisIndex": 0,
    "brushStyle": {"borderWidth": 2, "borderColor": RED, "color": "rgba(213, 94, 0, 0.16)"},
    "throttleType": "fixRate",
    "throttleDelay": 60,
    "outOfBrush": {"colorAlpha": 1},
}


def histogram(answer: Answer, unit: str, summary: str, locale: str) -> Options:
    """Return a number's histogram, on which readers can drag; post-processed shares are points."""
    many = len(answer.rows) > _MAX_BARS
    bars = [[r.lower, r.upper, *map(_percent, (r.value, r.low, r.high))] for r in answer.rows]
    is_log = answer.scale is not None
    processed = [
        [_middle(r.lower or 0, r.upper or 0, is_log), _percent(r.processed)]
        for r in answer.rows
        if isinstance(r, PostRow)
    ]
    bar_series = _CUSTOM | {"data": [] if many else bars, ":renderItem": "hushmote.bar"}
    # Always include all series, because ECharts loses the dragged area if one is removed.
    series = [
        {"id": "bars", **bar_series, "encode": {"x": [0, 1], "y": [2, 3, 4]}, "clip": True},
        *_stepped(bars if many else []),
        _scatter("processed", processed, 9 if len(processed) <= 64 else 4, **_DIAMONDS),
    ]
    ends: Options = {"splitLine": {"show": False}}
    if answer.rows:
        ends |= {"min": answer.rows[0].lower, "max": answer.rows[-1].upper}
    name = shorten(visible(unit), _LABEL)
    x = _axis("log" if is_log else "value", _numbers(locale), below=True, name=name, **ends)
    y = _axis("value", _numbers(locale, "%"), min=0)
    return _picture(summary, x, y, series, bottom=44, brush=_BRUSH, tooltip=_tooltip(locale))


def _middle(lower: float, upper: float, is_log: bool) -> float:
    return math.sqrt(lower * upper) if is_log else (lower + upper) / 2


def _stepped(bars: Sequence[Sequence[float]]) -> list[Options]:
    """Return bars as a stepped line in a band of intervals, drawn as three paths for any number of bars."""
    ends = [bars[-1][1]] if bars else []

    def steps(values: Sequence[float]) -> list[list[float]]:
        return [[x, y] for x, y in zip([*(b[0] for b in bars), *ends], [*values, *values[-1:]], strict=True)]

    line = {"type": "line", "step": "end", "symbol": "none", "silent": True}
    hidden: Options = line | {"lineStyle": {"width": 0}, "stack": "band", "stackStrategy": "all"}
    band = {"areaStyle": {"color": BLUE, "opacity": _FAINT}, "itemStyle": {"color": BLUE}}
    stroke = {"lineStyle": {"color": BLUE, "width": 1.5}, "itemStyle": {"color": BLUE}}
    return [
        hidden | {"id": "low", "data": steps([b[3] for b in bars])},
        hidden | {"id": "band", "data": steps([b[4] - b[3] for b in bars])} | band,
        line | {"id": "values", "data": steps([b[2] for b in bars])} | stroke,
    ]


def named_bars(answer: Answer, chosen: Sequence[str], summary: str, locale: str) -> Options:
    """Return bars of named shares or readings, with the first at the top and only the chosen ones solid.

    If none are chosen, all bars are solid.
    """
    rows, share = answer.rows, answer.quantity == "share"
    scale = _percent if share else float
    data = [
        {
            "value": scale(r.value),
            "itemStyle": {"color": BLUE, "opacity": 1 if r.name in chosen or not chosen else _FAINT},
        }
        for r in rows
    ]
    ends = [[i, 0, scale(r.low), scale(r.high)] for i, r in enumerate(rows)]
    processed = [[_percent(r.processed), i] for i, r in enumerate(rows) if isinstance(r, PostRow)]
    series = [
        {"id": "bars", "type": "bar", "data": data, "barMaxWidth": 28},
        _whiskers(ends, INK),
        _scatter("processed", processed, 11, **_DIAMONDS),
    ]
    names = _axis("category", _NAMES, data=[visible(r.name) for r in rows], inverse=True)
    if share:
        return _picture(summary, _axis("value", _numbers(locale, "%"), min=0, splitNumber=4), names, series)
    unit = shorten(visible(answer.unit), _LABEL)
    readings = _axis("value", _numbers(locale), below=True, name=unit, splitNumber=4)
    return _picture(summary, readings, names, series, bottom=44)


def _whiskers(ends: list[list[float]], colour: str, *, across: bool = False, name: str = "") -> Options:
    """Return the intervals next to names; the names are along the x axis if `across` is true."""
    return {
        **_CUSTOM,
        "id": f"ends {name}",
        "data": ends,
        ":renderItem": script("whisker", across, colour),
        "encode": {"x": [0], "y": [2, 3]} if across else {"x": [2, 3], "y": [0]},
        "silent": True,
        "clip": True,
        "z": 4,
    }


def trend_windows(answer: Answer) -> list[str]:
    """Return the windows of a trend's rows, oldest first."""
    return sorted({row.window for row in answer.rows if isinstance(row, TrendRow)})


def _version_marks(marks: Sequence[VersionMark], windows: Sequence[str]) -> Options:
    """Return a series without points that has a labelled line where each new version starts."""
    lines = [
        {"xAxis": windows.index(mark.window), "name": shorten(f"{mark.version}: {mark.text}", _MARK)}
        for mark in marks
        if mark.window in windows
    ]
    look: Options = {"symbol": "none", "lineStyle": {"color": INK, "type": "dashed", "width": 1}}
    label = {"formatter": "{b}", "position": "insideEndTop", "color": INK, "fontFamily": _FONT}
    mark_line = {"silent": True, "data": lines, "label": label, **look}
    return {"id": "versions", "type": "line", "data": [], "silent": True, "markLine": mark_line}


def over_time(answer: Answer, summary: str, locale: str) -> Options:
    """Return statistics over the windows as lines with intervals, on which readers can drag."""
    is_share = answer.quantity == "share"
    points = [row for row in answer.rows if isinstance(row, TrendRow)]
    windows = trend_windows(answer)
    scale = _percent if is_share else float
    series: list[Options] = []
    names = list(dict.fromkeys(r.name for r in answer.rows))
    for n, name in enumerate(names):  # one line each
        rows = {r.window: r for r in points if r.name == name}
        colour = _LINES[n % len(_LINES)]
        line = {"color": colour, "type": ("solid", "dashed", "dotted")[n % 3]}
        mark = {
            "symbolSize": 7 if len(windows) <= _MAX_MARKED else 4,
            "symbol": ("circle", "rect", "triangle", "diamond")[n % 4],
        }
        # A window whose version does not count the value has no point.
        data = [
            _point(rows[window], scale(rows[window].value), colour) if window in rows else None
            for window in windows
        ]
        values = {"id": f"line {n}", "name": visible(name), "data": data}
        series.append({"type": "line", **values, **mark, "lineStyle": line, "itemStyle": {"color": colour}})
        whiskers = [[windows.index(w), 0, scale(r.low), scale(r.high)] for w, r in rows.items()]
        series.append(_whiskers(whiskers, colour, across=True, name=f"{n}"))
    series.append(_version_marks(answer.marks, windows))
    unit = "" if is_share else shorten(visible(answer.unit), _LABEL)
    ends: Options = {"min": 0} if is_share and min(r.low for r in answer.rows) <= 0 else {"scale": True}
    y = _axis("value", _numbers(locale, "%" if is_share else ""), name=unit, **ends)
    legend = {"show": len(names) > 1, "top": 0, "textStyle": {"color": INK}, **_NAMES}
    legend["data"] = [visible(name) for name in names]
    more = {"brush": _BRUSH, "tooltip": _tooltip(locale, named=True), "legend": legend}
    # The margin keeps the days clear of the lowest tick's number.
    days: Options = {":formatter": script("time", locale), "margin": 12}
    return _picture(summary, _axis("category", days, data=windows), y, series, **more)


def _point(row: TrendRow, value: float, colour: str) -> float | Options:
    """Return a point of a line, hollow for a partial day, week or month."""
    if not row.partial:
        return value
    return {"value": value, "itemStyle": {"color": "#fff", "borderColor": colour, "borderWidth": 2}}


def changes(answer: Answer, names: Sequence[str], summary: str, locale: str) -> Options:
    """Return changes with their intervals, one in each row, in red if significant."""
    rows = [r for r in answer.rows if isinstance(r, ChangeRow)]
    scale = 100 if answer.quantity == "share" else 1
    points = [
        {
            "value": [r.value * scale, i],
            "itemStyle": {"color": RED if r.p_adjusted < 1 - answer.confidence else INK},
        }
        for i, r in enumerate(rows)
    ]
    ends = [[i, 0, r.low * scale, r.high * scale] for i, r in enumerate(rows)]
    unit = "points" if scale == 100 else shorten(visible(answer.unit), _LABEL)
    x = _axis("value", _numbers(locale), below=True, name=unit)
    y = _axis("category", _NAMES, data=[visible(n) for n in names], inverse=True)
    series = [_scatter("changes", points, 11), _whiskers(ends, INK)]
    return _picture(summary, x, y, series, top=12, bottom=44)


def _percent(share: float) -> float:
    """Return a share in is_share, rounded to the digits that a chart can show."""
    return float(f"{share * 100:.5g}")


def rows_height(rows: int) -> int:
    """Return the height in pixels of a chart with named rows."""
    return min(1200, 80 + 34 * max(1, rows))
