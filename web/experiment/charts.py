"""What the pictures show, as ECharts reads it. Names stand in it as text of vectors, never as HTML.

A key that begins with : is JavaScript that the browser works out, by its locale. None of it holds anything
that came from a store. Colours are the page's style's, light or dark: see static/experiment.css.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...server.answers.answer import Answer
from ...server.answers.rows import ChangeRow, PostRow, TrendRow
from ...server.plain_text import shortened, visible

INK, GRID = "var(--ink)", "var(--line)"
BLUE, RED, GREEN = "var(--accent)", "var(--chart-red)", "var(--chart-green)"
_LINES = (BLUE, RED, GREEN, "var(--chart-purple)")
_FAINT = 0.35  # opacity
_MOST_BARS = 128  # that are drawn one by one
_LABEL = 24  # characters of a name on an axis

# The page's own. To make room for an axis's labels, ECharts measures them: it cannot measure "inherit", and
# takes a font for it that is narrower where the axis does not name one.
_FONT = "system-ui, sans-serif"

_NAME = f"v => v.length > {_LABEL} ? v.slice(0, {_LABEL - 1}) + '…' : v"

# A bar from 0, and its interval: whiskers where there is room for them, otherwise a band.
_BAR = """(params, api) => {
  const [from, to, value, low, high] = [0, 1, 2, 3, 4].map(i => api.value(i));
  const [x0, y0] = api.coord([from, Math.max(0, Math.min(value, 0))]), [x1, y] = api.coord([to, value]);
  const top = api.coord([from, high])[1], bottom = api.coord([from, low])[1];
  const width = Math.max(1, x1 - x0 - (x1 - x0 > 6 ? 2 : 0)), wide = width > 9, middle = x0 + width / 2;
  const bar = {type: 'rect', shape: {x: x0, y: Math.min(y0, y), width, height: Math.abs(y - y0)},
               style: {fill: BLUE, opacity: FAINT}};
  const style = {stroke: BLUE, lineWidth: 2, fill: 'none'};
  const line = points => ({type: 'polyline', shape: {points}, style});
  const at = line([[x0, y], [x0 + width, y]]);
  const band = {type: 'rect', shape: {x: x0, y: top, width, height: bottom - top},
                style: {fill: BLUE, opacity: FAINT}};
  if (!wide) return {type: 'group', children: [band, at]};
  const cap = Math.min(6, width / 4);
  const ends = line([[middle, top], [middle, bottom]]);
  return {type: 'group', children: [bar, at, ends,
    line([[middle - cap, top], [middle + cap, top]]),
    line([[middle - cap, bottom], [middle + cap, bottom]])]};
}""".replace("BLUE", f"'{BLUE}'").replace("FAINT", f"{_FAINT}")

# A point with its interval beside a name; the third and fourth value are the ends.
_WHISKER = """(params, api) => {
  const [at, low, high] = [api.value(0), api.value(2), api.value(3)], across = AXIS;
  const a = api.coord(across ? [at, low] : [low, at]), b = api.coord(across ? [at, high] : [high, at]);
  const mark = (p) => across ? [[p[0] - 5, p[1]], [p[0] + 5, p[1]]] : [[p[0], p[1] - 5], [p[0], p[1] + 5]];
  const style = {stroke: COLOUR, lineWidth: 2, fill: 'none'};
  const line = points => ({type: 'polyline', shape: {points}, style});
  return {type: 'group', children: [line([a, b]), line(mark(a)), line(mark(b))]};
}"""


def _numbers(locale: str, behind: str = "") -> dict[str, str]:
    """An axis's labels as numbers of a locale, such as de-CH."""
    shape = "{maximumSignificantDigits: 6}"
    script = f"v => v.toLocaleString({json.dumps(locale)}, {shape}) + {json.dumps(behind)}"
    return {":formatter": script}


def _told(locale: str, named: bool = False) -> dict[str, Any]:
    """What is told of a bar, a point or a window where a mouse rests: as text of vectors, never as HTML."""
    write = f"x => (+x).toLocaleString({json.dumps(locale)}, {{maximumSignificantDigits: 4}})"
    value = "Array.isArray(p.value) ? p.value : [p.value]"
    bar = "`${w(v[0])} to ${w(v[1])}: ${w(v[2])} %, between ${w(v[3])} and ${w(v[4])} %`"
    point = "`${p.name}: ${w(v[0])}`" if named else "`${w(v[0])}: ${w(v[1])} %`"
    script = f"p => {{ const w = {write}, v = {value}; return v.length > 4 ? {bar} : {point}; }}"
    return {"trigger": "item", "renderMode": "richText", ":formatter": script, "confine": True}


def _axis(kind: str, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "axisLabel": {"color": INK, "hideOverlap": True, "fontFamily": _FONT} | more.pop("axisLabel", {}),
        "nameTextStyle": {"color": INK},
        "axisLine": {"lineStyle": {"color": GRID}},
        "splitLine": {"lineStyle": {"color": GRID}},
        **more,
    }


def _common(summary: str) -> dict[str, Any]:
    """What all pictures have; summary: in words, for who cannot see them."""
    return {
        "animation": False,
        "toolbox": {"show": False},
        "aria": {"enabled": True, "label": {"description": visible(summary)}},
        "grid": {"left": 8, "right": 24, "top": 28, "bottom": 28, "containLabel": True},
        "textStyle": {"fontFamily": _FONT},
    }


def _brush() -> dict[str, Any]:
    return {
        "xAxisIndex": 0,
        "brushStyle": {"borderWidth": 2, "borderColor": RED, "color": "rgba(213, 94, 0, 0.16)"},
        "throttleType": "fixRate",
        "throttleDelay": 60,
        "outOfBrush": {"colorAlpha": 1},
    }


def histogram(answer: Answer, unit: str, summary: str, locale: str) -> dict[str, Any]:
    """A number's shares over its axis, to be dragged over."""
    many = len(answer.rows) > _MOST_BARS
    bars = [[r.lower, r.upper, *map(_percent, (r.value, r.low, r.high))] for r in answer.rows]
    # All series are always there: where one goes, ECharts forgets what was dragged over.
    series: list[dict[str, Any]] = [
        {
            "id": "bars", "type": "custom", "data": [] if many else bars, ":renderItem": _BAR,
            "encode": {"x": [0, 1], "y": [2, 3, 4]}, "clip": True,
        },
        *_stepped(bars if many else []),
        _processed(answer),
    ]  # fmt: skip
    first, last = answer.rows[0].lower, answer.rows[-1].upper
    return _common(summary) | {
        "brush": _brush(),
        "tooltip": _told(locale),
        "xAxis": _axis(
            "value", min=first, max=last, axisLabel=_numbers(locale),
            name=shortened(visible(unit), _LABEL), nameLocation="middle", nameGap=26,
            splitLine={"show": False},
        ),
        "yAxis": _axis("value", axisLabel=_numbers(locale, " %")),
        "grid": {"left": 8, "right": 24, "top": 28, "bottom": 44, "containLabel": True},
        "series": series,
    }  # fmt: skip


def _stepped(bars: Sequence[Sequence[float]]) -> list[dict[str, Any]]:
    """Bars as a stepped line in the band of its intervals: three paths, however many bars there are."""
    ends = [bars[-1][1]] if bars else []

    def steps(values: Sequence[float]) -> list[list[float]]:
        return [[x, y] for x, y in zip([*(b[0] for b in bars), *ends], [*values, *values[-1:]], strict=True)]

    line = {"type": "line", "step": "end", "symbol": "none", "silent": True}
    unseen: dict[str, Any] = line | {"lineStyle": {"width": 0}, "stack": "band", "stackStrategy": "all"}
    band = {"areaStyle": {"color": BLUE, "opacity": _FAINT}, "itemStyle": {"color": BLUE}}
    stroke = {"lineStyle": {"color": BLUE, "width": 1.5}, "itemStyle": {"color": BLUE}}
    return [
        unseen | {"id": "low", "data": steps([b[3] for b in bars])},
        unseen | {"id": "band", "data": steps([b[4] - b[3] for b in bars])} | band,
        line | {"id": "values", "data": steps([b[2] for b in bars])} | stroke,
    ]


def _processed(answer: Answer) -> dict[str, Any]:
    """Post-processed shares as points, which have no intervals; none without post-processing."""
    rows = [r for r in answer.rows if isinstance(r, PostRow)]
    middles = [((r.lower or 0) + (r.upper or 0)) / 2 for r in rows]
    data = [[x, _percent(r.processed)] for x, r in zip(middles, rows, strict=True)]
    mark: dict[str, Any] = {"symbol": "diamond", "symbolSize": 9 if len(data) <= 64 else 4}
    return {"id": "processed", "type": "scatter", "data": data, "itemStyle": {"color": GREEN}, "z": 5} | mark


def named_bars(answer: Answer, chosen: Sequence[str], summary: str, locale: str) -> dict[str, Any]:
    """Shares of labels, the first above; the chosen ones are solid."""
    rows = answer.rows
    names = [visible(r.name) for r in rows]
    data: list[dict[str, Any]] = [
        {
            "value": _percent(r.value),
            "itemStyle": {"color": BLUE, "opacity": 1 if r.name in chosen else _FAINT},
        }
        for r in rows
    ]
    ends = [[i, 0, _percent(r.low), _percent(r.high)] for i, r in enumerate(rows)]
    processed = [[_percent(r.processed), i] for i, r in enumerate(rows) if isinstance(r, PostRow)]
    return _common(summary) | {
        "xAxis": _axis("value", axisLabel=_numbers(locale, " %")),
        "yAxis": _axis("category", data=names, inverse=True, axisLabel={":formatter": _NAME}),
        "series": [
            {"id": "bars", "type": "bar", "data": data, "barMaxWidth": 28},
            _whiskers(ends, INK, across=False),
            {
                "id": "processed", "type": "scatter", "data": processed, "symbol": "diamond",
                "symbolSize": 11, "itemStyle": {"color": GREEN}, "z": 5,
            },
        ],
    }  # fmt: skip


def _whiskers(
    ends: Sequence[Sequence[float]], colour: str, *, across: bool, name: str = ""
) -> dict[str, Any]:
    """Intervals beside names: across, names run along x."""
    draw = _WHISKER.replace("AXIS", "true" if across else "false").replace("COLOUR", f"'{colour}'")
    encode = {"x": [0], "y": [2, 3]} if across else {"x": [2, 3], "y": [0]}
    return {
        "id": f"ends {name}",
        "type": "custom",
        "data": list(ends),
        ":renderItem": draw,
        "encode": encode,
        "silent": True,
        "z": 4,
    }


def over_time(answer: Answer, summary: str, locale: str) -> dict[str, Any]:
    """Statistics over the windows, a line with its intervals each, to be dragged over."""
    windows = list(dict.fromkeys(r.window for r in answer.rows if isinstance(r, TrendRow)))
    percent = answer.quantity == "share"
    series: list[dict[str, Any]] = []
    for n, name in enumerate(dict.fromkeys(r.name for r in answer.rows)):
        rows = [r for r in answer.rows if r.name == name]
        colour = _LINES[n % len(_LINES)]
        values = [[r.value, r.low, r.high] for r in rows]
        scaled = [[_percent(x) if percent else x for x in row] for row in values]
        series.append(
            {
                "id": f"line {n}", "name": visible(name), "type": "line", "data": [v for v, *_ in scaled],
                "symbolSize": 7, "symbol": ("circle", "rect", "triangle", "diamond")[n % 4],
                "lineStyle": {"color": colour, "type": ("solid", "dashed", "dotted")[n % 3]},
                "itemStyle": {"color": colour},
            }
        )  # fmt: skip
        series.append(
            _whiskers(
                [[i, 0, low, high] for i, (_, low, high) in enumerate(scaled)],
                colour,
                across=True,
                name=f"{n}",
            )
        )
    return _common(summary) | {
        "brush": _brush(),
        "tooltip": _told(locale, named=True),
        "legend": {
            "show": len(series) > 2, "top": 0, "textStyle": {"color": INK}, ":formatter": _NAME,
            "data": [s["name"] for s in series if s["type"] == "line"],
        },
        "xAxis": _axis("category", data=windows),
        "yAxis": _axis(
            "value", scale=True, axisLabel=_numbers(locale, " %" if percent else ""),
            name="" if percent else shortened(visible(answer.unit), _LABEL),
        ),
        "series": series,
    }  # fmt: skip


def changes(answer: Answer, names: Sequence[str], summary: str, locale: str) -> dict[str, Any]:
    """Changes with their intervals around 0, a row each; filled where there is a change."""
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
    unit = "percentage points" if scale == 100 else shortened(visible(answer.unit), _LABEL)
    return _common(summary) | {
        "xAxis": _axis(
            "value", axisLabel=_numbers(locale), name=unit, nameLocation="middle", nameGap=26
        ),
        "yAxis": _axis(
            "category", data=[visible(n) for n in names], inverse=True, axisLabel={":formatter": _NAME}
        ),
        "grid": {"left": 8, "right": 24, "top": 12, "bottom": 44, "containLabel": True},
        "series": [
            {"id": "changes", "type": "scatter", "data": points, "symbolSize": 11},
            _whiskers(ends, INK, across=False),
        ],
    }  # fmt: skip


def _percent(share: float) -> float:
    """A share in percent, with what a picture can show of it."""
    return float(f"{share * 100:.5g}")


def rows_height(rows: int) -> int:
    """Pixels that a picture of so many named rows takes."""
    return min(1200, 80 + 34 * max(1, rows))
