"""Pictures of answers: bars at their places, intervals side by side, distributions, lines over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..arrays import Floats
from . import heat_map
from .figure import (
    BAR,
    COLOURS,
    ERROR,
    LINE_ROWS,
    QUIET,
    TRUTH,
    date_axis,
    figure,
    heading,
    intervals,
    lines_and_band,
    moments_of,
    named_rows,
    number_axis,
    style,
)
from .headline import titled
from .rows import AnswerRows, ChangeRow, DifferenceRow, PostRow, Row, TopRow, TrendRow

_INTERVAL = {"ecolor": ERROR, "elinewidth": 1.4, "capsize": 3, "zorder": 3}
_PROCESSED = {"s": 48, "marker": "D", "facecolors": "none", "edgecolors": COLOURS[1], "zorder": 4}
_PANEL_INCHES, _ROW_INCHES, _HIGHEST_INCHES = 4.6, 0.3, 24.0
_OF_SHARES = {"conditional": "share of those devices, %", "difference": "difference, % points"}
_MOST_LINES = 6  # of a picture: more cannot be told apart
_CHANGED: dict[str, Any] = {"color": COLOURS[1], "markerfacecolor": COLOURS[1]}
_TAKEN_AWAY: dict[str, Any] = {"color": COLOURS[1], "markerfacecolor": "white"}
_CHANCE: dict[str, Any] = {"color": QUIET, "markerfacecolor": QUIET}


def plot(path: Path | None, answers: Sequence[AnswerRows], title: str = "", subtitle: str = "") -> Figure:
    """Draw answers one below the other and write them to path, if any: PNG, PDF or SVG by its name.

    title: without one, the experiment with its unit, fleet and windows. subtitle: without one, the number of
    reports and what is drawn.
    """
    heights = [_inches(answer) for answer in answers] or [_PANEL_INCHES]
    with figure(path, rows=max(1, len(answers)), heights=heights) as (made, panels):
        for i, (axes, answer) in enumerate(zip(panels, answers, strict=False)):
            labels = _drawing(answer)(axes, answer)
            head = title or _title(answer) if len(answers) == 1 else _panel_title(answer)
            said = subtitle or _subtitle(answer, alone=len(answers) == 1)
            style(axes, head, "" if i else said, *labels)
            axes.grid(visible=not _rows_are_named(answer), axis="y")
            if answer.kind == "joint" and heat_map.fits(answer):
                axes.grid(visible=False)
        if len(answers) > 1:
            heading(made, title or _title(answers[0]))
    return made


def _title(answer: AnswerRows) -> str:
    """What the picture is about; a change is on two lines."""
    head = titled(answer.experiment, answer.unit, answer.about)
    return f"{head}\nagainst {answer.against}" if answer.against else head


def _panel_title(answer: AnswerRows) -> str:
    if answer.title or answer.kind not in ("change", "trend"):
        return answer.heading
    if answer.kind == "trend" and len({row.name for row in answer.rows}) == 1:
        return answer.rows[0].name
    if answer.quantity == "reading":
        return "readings"
    return "share of the fleet below" if _cumulative(answer) else "share of the fleet"


def _subtitle(answer: AnswerRows, alone: bool) -> str:
    about = f"{answer.title}; " if answer.title and alone else ""
    if answer.kind == "joint" and heat_map.fits(answer):
        about += f"a cell ±{heat_map.half_width(answer):.2g} points; "
    return f"{about}{answer.reports:,} private reports, {_interval_name(answer)}s"


def _interval_name(answer: AnswerRows) -> str:
    return f"{answer.confidence * 100:g} % interval"


def _has_places(answer: AnswerRows) -> bool:
    """Whether rows have edges in the reading's unit."""
    return all(row.upper is not None for row in answer.rows)


def _cumulative(answer: AnswerRows) -> bool:
    """Whether all rows begin at the lowest edge."""
    return len(answer.rows) > 1 and _has_places(answer) and len({row.lower for row in answer.rows}) == 1


def _drawing(answer: AnswerRows):
    if answer.kind == "joint" and heat_map.fits(answer):
        return heat_map.draw
    if answer.kind in ("joint", "marginal"):
        return _labels
    if answer.kind == "histogram":
        return _histogram if _has_places(answer) else _labels
    if answer.kind == "change" and len(answer.rows) > LINE_ROWS and _has_places(answer):
        return _change_along
    return {"cdf": _cdf, "trend": _trend}.get(answer.kind, _side_by_side)


def _rows_are_named(answer: AnswerRows) -> bool:
    return _drawing(answer) in (_labels, _side_by_side)


def _inches(answer: AnswerRows) -> float:
    if not _rows_are_named(answer):
        return _PANEL_INCHES
    lines = 1.6 if answer.kind in ("top", "ties") else 1.0
    return min(_HIGHEST_INCHES, 1.9 + _ROW_INCHES * lines * len(answer.rows))


def _quantity(answer: AnswerRows) -> tuple[float, str]:
    """What values are multiplied with, and what they are then called."""
    if answer.quantity == "share":
        return 100.0, _OF_SHARES.get(answer.kind, "share of devices, %")
    return 1.0, answer.unit or answer.experiment


def _numbers(rows: Sequence[Row], scale: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Values, ends of the intervals, and truths, NaN where not known, each of shape (n,)."""
    value, low, high = (np.array([getattr(row, name) for row in rows]) for name in ("value", "low", "high"))
    truths = np.array([np.nan if row.truth is None else row.truth for row in rows])
    return value * scale, low * scale, high * scale, truths * scale


def _edges(rows: Sequence[Row]) -> tuple[Floats, Floats]:
    """Lower and upper edges of rows that have them."""
    return np.array([row.lower for row in rows], float), np.array([row.upper for row in rows], float)


def _processed(answer: AnswerRows, scale: float) -> list[float]:
    """The post-processed shares, none where there are none."""
    return [row.processed * scale for row in answer.rows if isinstance(row, PostRow)]


def _histogram(axes: Axes, answer: AnswerRows) -> tuple[str, str]:
    """Bars of a number, each from edge to edge; intervals of many rows are a band."""
    scale, ylabel = _quantity(answer)
    values, low, high, truths = _numbers(answer.rows, scale)
    lower, upper = _edges(answer.rows)
    middles, many = (lower + upper) / 2, len(answer.rows) > LINE_ROWS
    name = f"{_interval_name(answer)}{' of the estimate' if answer.post else ''}"
    if many:
        axes.step(middles, values, where="mid", color=COLOURS[0], linewidth=1.2, label="estimate")
        axes.fill_between(middles, low, high, step="mid", color=BAR, alpha=0.6, linewidth=0, label=name)
    else:
        gap = 0.08 * (upper - lower)
        width = upper - lower - gap
        axes.bar(lower + gap / 2, values, width=width, align="edge", color=BAR, label="estimate")
        errors = np.maximum([values - low, high - values], 0)
        axes.errorbar(middles, values, errors, fmt="none", label=name, **_INTERVAL)
    if np.isfinite(truths).any():
        axes.hlines(truths, lower, upper, color=TRUTH, linewidth=2, zorder=4, label="truth")
    processed = _processed(answer, scale)
    if processed and many:
        axes.plot(middles, processed, color=COLOURS[1], linewidth=1.8, zorder=4, label=answer.post)
    elif processed:
        axes.scatter(middles, processed, label=answer.post, **_PROCESSED)
    axes.axhline(0, color="#555555", linewidth=0.8)
    axes.set_xlim(lower[0], upper[-1])
    number_axis(axes.xaxis, 14)
    number_axis(axes.yaxis)
    axes.legend(*_estimate_first(axes))
    outer = "bins" if many else "bars"
    return f"{answer.unit or answer.experiment} (the outer {outer} hold all that lies beyond)", ylabel


def _labels(axes: Axes, answer: AnswerRows) -> tuple[str, str]:
    """A bar for each label, from the top down."""
    scale, xlabel = _quantity(answer)
    values, low, high, truths = _numbers(answer.rows, scale)
    at = named_rows(axes, [row.name for row in answer.rows])
    axes.barh(at, values, height=0.72, color=BAR, label="estimate")
    name = f"{_interval_name(answer)}{' of the estimate' if answer.post else ''}"
    errors = np.maximum([values - low, high - values], 0)
    axes.errorbar(values, at, xerr=errors, fmt="none", label=name, **_INTERVAL)
    _beside(axes, answer, at, truths, scale)
    axes.axvline(0, color="#555555", linewidth=0.8)
    number_axis(axes.xaxis)
    _legend(axes)
    return xlabel, ""


def _beside(axes: Axes, answer: AnswerRows, at: np.ndarray, truths: Floats, scale: float) -> None:
    """Mark the truth and the post-processed shares of named rows, where there are any."""
    if np.isfinite(truths).any():
        axes.scatter(truths, at, s=160, marker="|", linewidths=2.6, color=TRUTH, zorder=4, label="truth")
    processed = _processed(answer, scale)
    if processed:
        axes.scatter(processed, at, label=answer.post, **_PROCESSED)


def _legend(axes: Axes) -> None:
    """Write the legend to the right of the panel, where no data is."""
    axes.legend(*_estimate_first(axes), loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _estimate_first(axes: Axes) -> tuple[list[Artist], list[str]]:
    """Handles and names of a legend; a remark in brackets comes last."""
    handles, names = axes.get_legend_handles_labels()
    order = sorted(
        range(len(names)), key=lambda i: names[i].startswith("(") - names[i].startswith("estimate")
    )
    return [handles[i] for i in order], [names[i] for i in order]


def _side_by_side(axes: Axes, answer: AnswerRows) -> tuple[str, str]:
    """A line for each row: the value and its interval; changes are marked by what they are."""
    scale, xlabel = _quantity(answer)
    if not answer.rows:
        axes.set_axis_off()
        axes.text(
            0.5, 0.5, "\n".join(answer.notes), transform=axes.transAxes, ha="center", va="center", wrap=True
        )
        return "", ""
    values, low, high, truths = _numbers(answer.rows, scale)
    at = named_rows(axes, list(map(_side_name, answer.rows)))
    label = f"estimate and its {_interval_name(answer)}"
    for i, row in enumerate(answer.rows):
        error = np.maximum([[values[i] - low[i]], [high[i] - values[i]]], 0)
        mark = {"markersize": 6, "elinewidth": 2, "capsize": 4, "label": "" if i else label}
        axes.errorbar(values[i], at[i], xerr=error, fmt="o", **mark, **_look(row, answer.confidence))
    _beside(axes, answer, at, truths, scale)
    number_axis(axes.xaxis)
    if answer.kind == "difference":
        axes.axvline(0, color="#555555", linewidth=0.8)
    if answer.kind == "change":
        axes.axvline(0, color="#555555", linewidth=0.8)
        _change_legend(axes, answer)
        return f"change of {xlabel}" + (" points" if answer.quantity == "share" else ""), ""
    if len(axes.get_legend_handles_labels()[1]) > 1:
        _legend(axes)
    return xlabel, ""


def _side_name(row: Row) -> str:
    """A row's name in lines that are short enough to be read whole."""
    if isinstance(row, TopRow):
        return f"{row.name}\n{row.probability * 100:.0f} % belongs"
    return row.name.replace(" less ", "\nless ") if isinstance(row, DifferenceRow) else row.name


def _look(row: Row, confidence: float) -> dict[str, Any]:
    if not isinstance(row, ChangeRow):
        return {"color": COLOURS[0]}
    if row.p_adjusted < 1 - confidence:
        return _CHANGED
    return _TAKEN_AWAY if row.adjusted_away(confidence) else _CHANCE


def _change_legend(axes: Axes, answer: AnswerRows) -> None:
    looks = {"changed": _CHANGED, "may be chance": _CHANCE}
    if any(isinstance(row, ChangeRow) and row.adjusted_away(answer.confidence) for row in answer.rows):
        looks["changed if looked at alone,\nmay be chance among so many rows"] = _TAKEN_AWAY
    handles = [Line2D([], [], marker="o", linestyle="-", label=name, **look) for name, look in looks.items()]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _change_along(axes: Axes, answer: AnswerRows) -> tuple[str, str]:
    """Many changes of a number, along its axis: what counts as changed has dots."""
    scale, _ = _quantity(answer)
    values, low, high, _ = _numbers(answer.rows, scale)
    lower, upper = _edges(answer.rows)
    cumulative = _cumulative(answer)
    x = upper if cumulative else (lower + upper) / 2
    lines_and_band(axes, x, values, low, high, QUIET, _interval_name(answer), label="change")
    looks = [_look(row, answer.confidence) for row in answer.rows]
    changed = np.array([look is _CHANGED for look in looks])
    axes.plot(x[changed], values[changed], "o", color=COLOURS[1], markersize=4, label="changed")
    axes.axhline(0, color="#555555", linewidth=0.8)
    number_axis(axes.xaxis, 14)
    number_axis(axes.yaxis)
    axes.legend()
    below = " below" if cumulative else ""
    return answer.unit or answer.experiment, f"change of share of devices{below}, % points"


def _cdf(axes: Axes, answer: AnswerRows) -> tuple[str, str]:
    scale, _ = _quantity(answer)
    values, low, high, truths = _numbers(answer.rows, scale)
    _, x = _edges(answer.rows)
    lines_and_band(axes, x, values, low, high, label="estimate", band_label=_interval_name(answer))
    if np.isfinite(truths).any():
        axes.plot(x, truths, color=TRUTH, linestyle="--", label="truth")
    for share in (0, 100):
        axes.axhline(share, color="#555555", linewidth=0.8)
    number_axis(axes.xaxis, 14)
    number_axis(axes.yaxis)
    axes.legend()
    return answer.unit or answer.experiment, "share of devices below, %"


def _trend(axes: Axes, answer: AnswerRows) -> tuple[str, str]:
    """A line for each statistic over the windows, dates to scale; of many the largest."""
    scale, ylabel = _quantity(answer)
    rows = [row for row in answer.rows if isinstance(row, TrendRow)]
    windows = list(dict.fromkeys(row.window for row in rows))
    by_name: dict[str, list[TrendRow]] = {}
    for row in rows:
        by_name.setdefault(row.name, []).append(row)
    largest = sorted(by_name, key=lambda name: -sum(row.value for row in by_name[name]))[:_MOST_LINES]
    shown = [name for name in by_name if name in largest]
    moments = moments_of(windows)
    places = np.arange(len(windows)) if moments is None else np.asarray(date2num(moments))
    closest = float(np.diff(np.sort(places)).min()) if len(places) > 1 else 1.0
    where = dict(zip(windows, places, strict=True))
    for number, name in enumerate(shown):
        values, low, high, _ = _numbers(by_name[name], scale)
        # Side by side, so that error bars of several lines can be told apart.
        aside = 0.0 if len(windows) > LINE_ROWS else 0.05 * closest * (number - (len(shown) - 1) / 2)
        at = np.array([where[row.window] for row in by_name[name]]) + aside
        intervals(axes, at, values, low, high, COLOURS[number], name)
    if len(shown) < len(by_name):
        axes.plot([], [], " ", label=f"(the table has {len(by_name) - len(shown)} more)")
    if moments is None:
        axes.set_xticks(places, windows)
    else:
        axes.xaxis_date()
        date_axis(axes.xaxis, min(5, len(windows)) if closest >= 1 else 5)
    number_axis(axes.yaxis)
    if len(shown) > 1:
        _legend(axes)
        return "", ylabel
    if answer.quantity == "share":
        return "", f"{shown[0]} {answer.unit}".strip() + f": {ylabel}"
    return "", f"{shown[0]}, {answer.unit}" if answer.unit else f"{shown[0]} of {answer.experiment}"
