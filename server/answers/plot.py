"""Pictures of answers: bars, intervals side by side, a distribution function, lines over windows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from .answer import Answer, ChangeRow, PostRow, Row, TopRow, TrendRow
from .figure import BAR, COLOURS, ERROR, TRUTH, figure, style

_INTERVAL = {"ecolor": ERROR, "elinewidth": 1.4, "capsize": 3, "zorder": 3}
_PROCESSED = {"s": 60, "marker": "D", "facecolors": "none", "edgecolors": COLOURS[1], "zorder": 4}


def plot(path: Path | None, answers: Sequence[Answer], title: str = "", subtitle: str = "") -> Figure:
    """Draw answers one below the other and write them to path, if any: PNG, PDF or SVG by its name."""
    with figure(path, rows=max(1, len(answers))) as (made, panels):
        for axes, answer in zip(panels, answers, strict=False):
            draw = {"histogram": _histogram, "cdf": _cdf, "trend": _trend}.get(answer.kind, _side_by_side)
            heading = title or f"{answer.experiment}: {answer.reports:,} private reports"
            style(axes, heading, subtitle or f"{_interval_name(answer)}s", *draw(axes, answer))
            axes.grid(visible=answer.kind != "histogram", axis="x")
    return made


def _quantity(answer: Answer) -> tuple[float, str]:
    """What values are multiplied with, and what they are then called."""
    if answer.quantity == "share":
        return 100.0, "share of devices, %"
    return 1.0, answer.unit or answer.experiment


def _numbers(rows: Sequence[Row], scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, distances to the ends of the intervals, shape (2, n), and truths, NaN where not known."""
    values = np.array([row.value for row in rows]) * scale
    low, high = (np.array([getattr(row, end) for row in rows]) * scale for end in ("low", "high"))
    truths = np.array([np.nan if row.truth is None else row.truth for row in rows]) * scale
    return values, np.maximum([values - low, high - values], 0), truths


def _processed(answer: Answer, scale: float) -> list[float]:
    """The post-processed shares, none where there are none."""
    return [row.processed * scale for row in answer.rows if isinstance(row, PostRow)]


def _histogram(axes: Axes, answer: Answer) -> tuple[str, str]:
    scale, ylabel = _quantity(answer)
    values, errors, truths = _numbers(answer.rows, scale)
    names, at = [row.name for row in answer.rows], np.arange(len(answer.rows))
    axes.bar(at, values, width=0.86, color=BAR, label="estimate", zorder=2)
    processed = _processed(answer, scale)
    interval = f"{_interval_name(answer)}{' of the estimate' if processed else ''}"
    axes.errorbar(at, values, errors, fmt="none", label=interval, **_INTERVAL)
    if np.isfinite(truths).any():
        axes.scatter(at, truths, s=200, marker="_", linewidths=2.6, color=TRUTH, zorder=4, label="truth")
    if processed:
        axes.scatter(at, processed, label=answer.note.partition(":")[0], **_PROCESSED)
    axes.axhline(0, color="#555555", linewidth=0.8, zorder=1)
    step = max(1, len(names) // 32)
    slant = {"rotation": 45, "ha": "right"} if len(names) > 6 else {}
    axes.set_xticks(at[::step], names[::step], **slant)
    axes.legend(frameon=False)
    return answer.unit or answer.experiment, ylabel


def _interval_name(answer: Answer) -> str:
    return f"{answer.confidence * 100:g} % interval"


def _side_by_side(axes: Axes, answer: Answer) -> tuple[str, str]:
    """One line for each row: the value and its interval; changes are coloured where they are significant."""
    scale, xlabel = _quantity(answer)
    rows = answer.rows
    values, errors, truths = _numbers(rows, scale)
    at = np.arange(len(rows))[::-1]
    colours = [_colour(row, answer.confidence) for row in rows]
    processed = _processed(answer, scale)
    label = f"estimate and its {_interval_name(answer)}" if processed else ""
    for y, value, error, colour in zip(at, values, errors.T, colours, strict=True):
        error_bar = {"ecolor": colour, "elinewidth": 2, "capsize": 4, "label": label}
        axes.errorbar(value, y, xerr=error[:, None], fmt="o", color=colour, **error_bar)
        label = ""
    if np.isfinite(truths).any():
        axes.scatter(truths, at, s=160, marker="|", linewidths=2.6, color=TRUTH, zorder=4, label="truth")
    if processed:
        axes.scatter(processed, at, label=answer.note.partition(":")[0], **_PROCESSED)
    if processed or np.isfinite(truths).any():
        axes.legend(frameon=False)
    names = [
        f"{row.name}\n{row.probability * 100:.0f} % belongs" if isinstance(row, TopRow) else row.name
        for row in rows
    ]
    axes.set_yticks(at, names)
    axes.set_ylim(-0.7, len(rows) - 0.3)
    if answer.kind == "change":
        axes.axvline(0, color="#555555", linewidth=0.8)
        handles = [Patch(color=COLOURS[1], label="changed"), Patch(color="#888888", label="may be chance")]
        axes.legend(handles=handles, frameon=False)
        xlabel = f"change of {xlabel}" + (" points" if answer.quantity == "share" else "")
    return xlabel, ""


def _colour(row: Row, confidence: float) -> str:
    if isinstance(row, ChangeRow):
        return COLOURS[1] if row.p_adjusted < 1 - confidence else "#888888"
    return COLOURS[0]


def _cdf(axes: Axes, answer: Answer) -> tuple[str, str]:
    scale, _ = _quantity(answer)
    values, errors, truths = _numbers(answer.rows, scale)
    x = np.array([float(row.name) for row in answer.rows])
    axes.fill_between(x, values - errors[0], values + errors[1], color=BAR, label=_interval_name(answer))
    axes.plot(x, values, color=COLOURS[0], label="estimate")
    if np.isfinite(truths).any():
        axes.plot(x, truths, color=TRUTH, linestyle="--", label="truth")
    axes.legend(frameon=False)
    return answer.unit or answer.experiment, "share of devices below, %"


def _trend(axes: Axes, answer: Answer) -> tuple[str, str]:
    scale, ylabel = _quantity(answer)
    rows = [row for row in answer.rows if isinstance(row, TrendRow)]
    windows = list(dict.fromkeys(row.window for row in rows))
    names = list(dict.fromkeys(row.name for row in rows))
    for number, name in enumerate(names):
        mine = [row for row in rows if row.name == name]
        values, errors, _ = _numbers(mine, scale)
        # Side by side, so that error bars of several lines can be told apart.
        at = np.array([windows.index(row.window) for row in mine]) + 0.12 * (number - (len(names) - 1) / 2)
        colour = COLOURS[number % len(COLOURS)]
        axes.errorbar(at, values, errors, fmt="o-", color=colour, capsize=3, linewidth=1.4, label=name)
    step = max(1, len(windows) // 16)
    slant = {"rotation": 45, "ha": "right"} if len(windows) > 6 else {}
    axes.set_xticks(np.arange(len(windows))[::step], windows[::step], **slant)
    axes.legend(frameon=False)
    return "window", ylabel
