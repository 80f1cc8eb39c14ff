"""Plot answers as bars, intervals, distributions, lines over time or heat maps."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..arrays import Floats
from ..plain_text import shorten
from ..words.numbers import READING_STEPS, counted, decimals
from ..words.scope import picture_title
from . import figure as pictures
from .figure import COLOURS, LINE_ROWS, QUIET, number_axis
from .rows import (
    SHARE_OF_FLEET,
    SHARE_OF_READINGS,
    AnswerRows,
    CellRow,
    ChangeRow,
    DifferenceRow,
    PostRow,
    Row,
    TopRow,
    TrendRow,
)

_INTERVAL = {"ecolor": pictures.ERROR, "elinewidth": 1.4, "capsize": 3, "zorder": 3}
_PROCESSED = {"s": 48, "marker": "D", "facecolors": "none", "edgecolors": COLOURS[1], "zorder": 4}
_ZERO = {"color": "#555555", "linewidth": 0.8}
_LEGEND_OUTSIDE = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}  # places a legend outside the data
_PANEL_INCHES, _ROW_INCHES, _HIGHEST_INCHES = 4.6, 0.3, 24.0
_OF_SHARES = {"conditional": "share of those devices, %", "difference": "difference, % points"}
_MAX_LINES = 6  # lines in a picture, because more cannot be told apart
_CHANGED: dict[str, Any] = {"color": COLOURS[1], "markerfacecolor": COLOURS[1]}
_ADJUSTED_AWAY: dict[str, Any] = {"color": COLOURS[1], "markerfacecolor": "white"}
_CHANCE: dict[str, Any] = {"color": QUIET, "markerfacecolor": QUIET}
_PARTIAL = {"linestyle": "none", "marker": "o", "markerfacecolor": "white", "zorder": 5}
_MAP = LinearSegmentedColormap.from_list("shares", ["#ffffff", "#9ec3e6", COLOURS[0], "#08306b"])
_MAX_WRITTEN = 12  # rows and columns up to which numbers fit into cells
_LONGEST_NAME = 16  # characters in the name of a heat map's row or column
_MAX_CELL_NAMES = 24
_LONGEST_MARK = 32  # characters of the text that says how a new version differs


@dataclass(frozen=True)
class _Panel:
    """An answer and the axes to draw it on; arrays have shape (rows,), and shares are percentages."""

    axes: Axes
    answer: AnswerRows

    @property
    def rows(self) -> Sequence[Row]:
        return self.answer.rows

    @property
    def scale(self) -> float:
        return 100.0 if self.answer.quantity == "share" else 1.0

    @property
    def unit(self) -> str:
        return self.answer.unit or self.answer.experiment

    @property
    def quantity(self) -> str:
        shares = _OF_SHARES.get(self.answer.kind, f"share of {self.answer.population}, %")
        return shares if self.answer.quantity == "share" else self.unit

    @property
    def interval_name(self) -> str:
        return self.answer.interval_heading

    @property
    def estimate_interval_name(self) -> str:
        return self.interval_name + (" of the estimate" if self.answer.post else "")

    def _all(self, name: str, scale: float = 1.0) -> Floats:
        return np.array([getattr(row, name) for row in self.rows], float) * scale

    @cached_property
    def values(self) -> Floats:
        return self._all("value", self.scale)

    @cached_property
    def interval_ends(self) -> tuple[Floats, Floats]:
        """The lower and upper bounds of the intervals."""
        return self._all("low", self.scale), self._all("high", self.scale)

    @cached_property
    def errors(self) -> Floats:
        """The distances from the values to both bounds of the intervals, shape (2, rows)."""
        low, high = self.interval_ends
        return np.maximum([self.values - low, high - self.values], 0)

    @cached_property
    def truths(self) -> Floats:
        """The true values, NaN where unknown."""
        return self._all("truth", self.scale)

    @property
    def is_truth_known(self) -> bool:
        return bool(np.isfinite(self.truths).any())

    @property
    def processed(self) -> list[float]:
        """The post-processed shares, empty if there are none."""
        return [row.processed * self.scale for row in self.rows if isinstance(row, PostRow)]

    @cached_property
    def edges(self) -> tuple[Floats, Floats]:
        """The lower and upper edges of the rows."""
        return self._all("lower"), self._all("upper")

    @property
    def is_cumulative(self) -> bool:
        """Whether all rows begin at the lowest edge."""
        return len(self.rows) > 1 and _have_edges(self.answer) and len({row.lower for row in self.rows}) == 1

    @cached_property
    def middles(self) -> Floats:
        """The middles of the rows on the horizontal axis."""
        lower, upper = self.edges
        return np.sqrt(lower * upper) if self.answer.scale else (lower + upper) / 2

    def number_axes(self) -> None:
        """Format both axes for numbers; the horizontal one has the scale of the bins."""
        if self.answer.scale:
            pictures.log_axis(self.axes)
        else:
            number_axis(self.axes.xaxis, 14)
        number_axis(self.axes.yaxis)


_Labels = tuple[str, str]  # for the horizontal and the vertical axis


def plot(path: Path | None, answers: Sequence[AnswerRows], title: str = "", subtitle: str = "") -> Figure:
    """Plot answers one below the other, and save the figure to `path` if given.

    Args:
        path: The file to write; its suffix selects PNG, PDF or SVG.
        answers: The answers.
        title: The title; by default the experiment with its unit, fleet and windows.
        subtitle: The line below the title; by default the number of reports and what is plotted.
    """
    heights = [_inches(answer) for answer in answers] or [_PANEL_INCHES]
    with pictures.figure(path, rows=max(1, len(answers)), heights=heights) as (drawing, panels):
        for i, (axes, answer) in enumerate(zip(panels, answers, strict=False)):
            panel = _Panel(axes, answer)
            labels, is_alone = _draw_function(answer)(panel), len(answers) == 1
            head = pictures.as_title(title) or _title(answer) if is_alone else _panel_title(panel)
            default_title = _title(answer).replace("\n", " ") + "; " if title else ""
            panel_subtitle = subtitle or default_title + _subtitle(panel, is_alone)
            if answer.quantity == "share" and answer.kind not in ("change", "difference"):
                pictures.start_at_zero(axes.xaxis if _rows_are_named(answer) else axes.yaxis)
            pictures.style_axes(axes, head, "" if i else panel_subtitle, *labels)
            has_vertical_grid = _rows_are_named(answer) or _draw_function(answer) is _draw_heat_map
            axes.grid(
                visible=not has_vertical_grid,
                axis="both" if _draw_function(answer) is _draw_heat_map else "y",
            )
        if len(answers) > 1:
            pictures.add_heading(drawing, pictures.as_title(title) or _title(answers[0]))
    return drawing


def _title(answer: AnswerRows) -> str:
    """Return the figure's title, which has two lines for a change."""
    head = picture_title(answer.experiment, answer.unit, answer.about)
    return f"{head}\nagainst {answer.against}" if answer.against else head


def _panel_title(panel: _Panel) -> str:
    answer = panel.answer
    if answer.title or answer.kind not in ("change", "trend"):
        return answer.heading
    if answer.kind == "trend" and len({row.name for row in answer.rows}) == 1:
        return answer.rows[0].name
    if answer.quantity == "reading":
        return "readings"
    title = SHARE_OF_FLEET if answer.population == "devices" else SHARE_OF_READINGS
    return f"{title} below" if panel.is_cumulative else title


def _subtitle(panel: _Panel, is_alone: bool) -> str:
    answer = panel.answer
    about = f"{answer.title}; " if answer.title and is_alone else ""
    if _draw_function(answer) is _draw_heat_map:
        half = float(np.median([100 * row.half_width for row in answer.rows]))
        about += f"a cell ±{half:.2g} points; "
    return f"{about}{counted(answer.reports, 'private report')}, {panel.interval_name}s"


def _have_edges(answer: AnswerRows) -> bool:
    """Return whether rows have edges in the reading's unit."""
    return all(row.upper is not None for row in answer.rows)


def _draw_function(answer: AnswerRows) -> Callable[[_Panel], _Labels]:
    if answer.kind == "joint" and all(isinstance(row, CellRow) and len(row.cell) == 2 for row in answer.rows):
        return _draw_heat_map
    if answer.kind in ("joint", "marginal"):
        return _draw_labels
    if answer.kind == "histogram":
        return _draw_histogram if _have_edges(answer) else _draw_labels
    if answer.kind == "change" and len(answer.rows) > LINE_ROWS and _have_edges(answer):
        return _draw_changes
    return {"cdf": _draw_cdf, "trend": _draw_trend}.get(answer.kind, _draw_side_by_side)


def _rows_are_named(answer: AnswerRows) -> bool:
    return _draw_function(answer) in (_draw_labels, _draw_side_by_side)


def _inches(answer: AnswerRows) -> float:
    if not _rows_are_named(answer):
        return _PANEL_INCHES
    lines_per_row = 1.6 if answer.kind in ("top", "ties") else 1.0
    return min(_HIGHEST_INCHES, 1.9 + _ROW_INCHES * lines_per_row * len(answer.rows))


def _draw_histogram(p: _Panel) -> _Labels:
    """Draw a number's bars from edge to edge; with many rows, draw the intervals as a band."""
    axes, (lower, upper) = p.axes, p.edges
    middles, has_many_rows, method = p.middles, len(p.rows) > LINE_ROWS, p.answer.post
    if has_many_rows:
        axes.step(middles, p.values, where="mid", color=COLOURS[0], linewidth=1.2, label="estimate")
        band = {"step": "mid", "color": pictures.BAR, "alpha": 0.6, "linewidth": 0}
        axes.fill_between(middles, *p.interval_ends, label=p.estimate_interval_name, **band)
    else:
        gap = 0.08 * (upper - lower)
        bars = {"width": upper - lower - gap, "align": "edge", "color": pictures.BAR}
        axes.bar(lower + gap / 2, p.values, label="estimate", **bars)
        axes.errorbar(middles, p.values, p.errors, fmt="none", label=p.estimate_interval_name, **_INTERVAL)
    if p.is_truth_known:
        axes.hlines(p.truths, lower, upper, color=pictures.TRUTH, linewidth=2, zorder=4, label="truth")
    if p.processed and has_many_rows:
        axes.plot(middles, p.processed, color=COLOURS[1], linewidth=1.8, zorder=4, label=method)
    elif p.processed:
        axes.scatter(middles, p.processed, label=method, **_PROCESSED)
    axes.axhline(0, **_ZERO)
    axes.set_xlim(lower[0], upper[-1])
    p.number_axes()
    axes.legend(*_ordered_legend(axes))
    outer = "bins" if has_many_rows else "bars"
    return f"{p.unit} (the outer {outer} include everything beyond)", p.quantity


def _draw_labels(p: _Panel) -> _Labels:
    axes, at = p.axes, pictures.label_rows(p.axes, [row.name for row in p.rows])
    axes.barh(at, p.values, height=0.72, color=pictures.BAR, label="estimate")
    axes.errorbar(p.values, at, xerr=p.errors, fmt="none", label=p.estimate_interval_name, **_INTERVAL)
    _mark_truth(p, at)
    axes.axvline(0, **_ZERO)
    number_axis(axes.xaxis)
    axes.legend(*_ordered_legend(axes), **_LEGEND_OUTSIDE)
    return p.quantity, ""


def _mark_truth(p: _Panel, at: np.ndarray) -> None:
    """Mark the true and post-processed shares of labelled rows, if there are any."""
    if p.is_truth_known:
        mark = {"s": 160, "marker": "|", "linewidths": 2.6, "color": pictures.TRUTH}
        p.axes.scatter(p.truths, at, zorder=4, label="truth", **mark)
    if p.processed:
        p.axes.scatter(p.processed, at, label=p.answer.post, **_PROCESSED)


def _ordered_legend(axes: Axes) -> tuple[list[Artist], list[str]]:
    """Return a legend's handles and names, with the estimate first and any parenthesized remark last."""
    both = zip(*axes.get_legend_handles_labels(), strict=True)
    ordered = sorted(both, key=lambda one: one[1].startswith("(") - one[1].startswith("estimate"))
    return [handle for handle, _ in ordered], [name for _, name in ordered]


def _draw_side_by_side(p: _Panel) -> _Labels:
    """Draw each row's value and interval on its own line; changes are coloured by significance."""
    axes, answer = p.axes, p.answer
    if not answer.rows:
        axes.set_axis_off()
        middle = {"transform": axes.transAxes, "ha": "center", "va": "center", "wrap": True}
        axes.text(0.5, 0.5, "\n".join(answer.notes), **middle)
        return "", ""
    at = pictures.label_rows(axes, list(map(_broken_name, answer.rows)))
    label = f"estimate and its {p.interval_name}"
    for i, row in enumerate(answer.rows):
        mark = {"markersize": 6, "elinewidth": 2, "capsize": 4, "label": "" if i else label}
        look = _marker_style(row, answer.confidence)
        axes.errorbar(p.values[i], at[i], xerr=p.errors[:, [i]], fmt="o", **mark, **look)
    _mark_truth(p, at)
    number_axis(axes.xaxis)
    if answer.kind in ("change", "difference"):
        axes.axvline(0, **_ZERO)
    if answer.kind == "change":
        _change_legend(p)
        return f"change of {p.quantity}" + (" points" if answer.quantity == "share" else ""), ""
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(*_ordered_legend(axes), **_LEGEND_OUTSIDE)
    return p.quantity, ""


def _broken_name(row: Row) -> str:
    """Break a row's name into lines short enough to be shown in full."""
    if isinstance(row, TopRow):
        return f"{row.name}\n{row.probability * 100:.0f}% belongs"
    return row.name.replace(" less ", "\nless ") if isinstance(row, DifferenceRow) else row.name


def _marker_style(row: Row, confidence: float) -> dict[str, Any]:
    if not isinstance(row, ChangeRow):
        return {"color": COLOURS[0]}
    if row.p_adjusted < 1 - confidence:
        return _CHANGED
    return _ADJUSTED_AWAY if row.adjusted_away(confidence) else _CHANCE


def _change_legend(p: _Panel) -> None:
    looks = {"changed": _CHANGED, "may be chance": _CHANCE}
    if any(_marker_style(row, p.answer.confidence) is _ADJUSTED_AWAY for row in p.rows):
        looks["changed if considered alone,\nmay be chance among this many rows"] = _ADJUSTED_AWAY
    handles = [Line2D([], [], marker="o", linestyle="-", label=name, **look) for name, look in looks.items()]
    p.axes.legend(handles=handles, **_LEGEND_OUTSIDE)


def _draw_changes(p: _Panel) -> _Labels:
    """Draw many changes along a number's axis, with dots on those that count as changed."""
    _, upper = p.edges
    x = upper if p.is_cumulative else p.middles
    pictures.draw_lines_and_band(
        p.axes, x, p.values, *p.interval_ends, QUIET, p.interval_name, label="change"
    )
    changed = np.array([_marker_style(row, p.answer.confidence) is _CHANGED for row in p.rows])
    p.axes.plot(x[changed], p.values[changed], "o", color=COLOURS[1], markersize=4, label="changed")
    p.axes.axhline(0, **_ZERO)
    p.number_axes()
    p.axes.legend()
    return p.unit, f"change of share of {p.answer.population}{' below' if p.is_cumulative else ''}, % points"


def _draw_cdf(p: _Panel) -> _Labels:
    _, x = p.edges
    pictures.draw_lines_and_band(
        p.axes, x, p.values, *p.interval_ends, label="estimate", band_label=p.interval_name
    )
    if p.is_truth_known:
        p.axes.plot(x, p.truths, color=pictures.TRUTH, linestyle="--", label="truth")
    for share in (0, 100):
        p.axes.axhline(share, **_ZERO)
    p.number_axes()
    p.axes.legend()
    return p.unit, f"share of {p.answer.population} below, %"


def _draw_trend(p: _Panel) -> _Labels:
    """Draw a line over time for each of the largest statistics, with dates to scale."""
    axes = p.axes
    windows = sorted({row.window for row in p.rows if isinstance(row, TrendRow)})
    names = list(dict.fromkeys(row.name for row in p.rows))
    total = {name: sum(row.value for row in p.rows if row.name == name) for name in names}
    largest = sorted(names, key=lambda name: -total[name])[:_MAX_LINES]
    line_names = [name for name in names if name in largest]
    moments = pictures.window_starts(windows, p.answer.calendar)
    places = np.arange(len(windows)) if moments is None else np.asarray(date2num(moments))
    closest = float(np.diff(np.sort(places)).min()) if len(places) > 1 else 1.0
    has_partial = False
    for number, name in enumerate(line_names):
        at = {row.window: i for i, row in enumerate(p.rows) if isinstance(row, TrendRow) and row.name == name}
        # A window whose version does not count the value leaves a gap in its line.
        value, low, high = (
            np.array([each[at[w]] if w in at else np.nan for w in windows])
            for each in (p.values, *p.interval_ends)
        )
        # Shift the lines sideways, so that their error bars can be told apart.
        offset = 0.0 if len(windows) > LINE_ROWS else 0.05 * closest * (number - (len(line_names) - 1) / 2)
        pictures.draw_intervals(axes, places + offset, value, low, high, COLOURS[number], name)
        is_partial = np.array([w in at and cast(TrendRow, p.rows[at[w]]).partial for w in windows])
        has_partial = has_partial or bool(is_partial.any())
        axes.plot((places + offset)[is_partial], value[is_partial], color=COLOURS[number], **_PARTIAL)
    _draw_version_marks(p, dict(zip(windows, places.astype(float), strict=True)))
    if len(line_names) < len(names):
        axes.plot([], [], " ", label=f"(the table has {len(names) - len(line_names)} more)")
    if moments is None:
        axes.set_xticks(places, windows)
    else:
        axes.xaxis_date()
        pictures.date_axis(axes.xaxis, min(5, len(windows)) if closest >= 1 else 5)
    number_axis(axes.yaxis)
    unit, below = p.answer.unit, "hollow: partial" if has_partial else ""
    if len(line_names) > 1:
        axes.legend(*_ordered_legend(axes), **_LEGEND_OUTSIDE)
        return below, p.quantity
    if p.answer.quantity == "share":
        return below, f"{line_names[0]} {unit}".strip() + f": {p.quantity}"
    return below, f"{line_names[0]}, {unit}" if unit else f"{line_names[0]} of {p.answer.experiment}"


def _draw_version_marks(p: _Panel, place_of: Mapping[str, float]) -> None:
    """Draw a thin labelled line before the first window of each new version."""
    for mark in p.answer.marks:
        place = place_of.get(mark.window)
        before = [other for other in place_of.values() if place is not None and other < place]
        if place is None or not before:
            continue
        at = (place + max(before)) / 2
        p.axes.axvline(at, color=QUIET, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        label = f" version {mark.version}: {shorten(mark.text, _LONGEST_MARK)} "
        look = {"rotation": 90, "ha": "right", "va": "top", "fontsize": 8, "color": QUIET, "zorder": 1}
        p.axes.text(at, 1, label, transform=p.axes.get_xaxis_transform(), **look)


def _draw_heat_map(p: _Panel) -> _Labels:
    """Draw the joint table of two parts, with a cell for each pair of values, coloured by its share.

    In a small table, each cell shows the share and half its interval width; in a larger one, a small cross
    marks cells whose interval contains 0.
    """
    axes = p.axes
    cells = [row.cell for row in p.rows if isinstance(row, CellRow)]
    ((across, down),) = {tuple(part for part, _ in cell) for cell in cells}
    columns, lines = (list(dict.fromkeys(cell[i][1] for cell in cells)) for i in (0, 1))
    shape = (len(columns), len(lines))
    low, high = p.interval_ends
    shares, half = p.values.reshape(shape).T, ((high - low) / 2).reshape(shape).T
    image = axes.pcolormesh(np.clip(shares, 0, None), cmap=_MAP, vmin=0, edgecolors="white", linewidth=1)
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.set_label(f"share of {p.answer.population}, %")
    for axis, names in ((axes.xaxis, columns), (axes.yaxis, lines)):
        apart = -(-len(names) // _MAX_CELL_NAMES)
        centres = np.arange(0, len(names), apart) + 0.5
        axis.set_ticks(centres, [shorten(name, _LONGEST_NAME) for name in names[::apart]])
        axis.set_tick_params(length=0)
    if max(map(len, columns), default=0) * len(columns) > 70:
        axes.tick_params(axis="x", labelrotation=45)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
    if max(shape) <= _MAX_WRITTEN:
        dark = np.nanmax(shares) * 0.55
        places = decimals(0.0, 2 * float(np.nanmin(half)), READING_STEPS)
        for (y, x), share in np.ndenumerate(shares):
            text = f"{share + 0.0:.{places}f}\n±{half[y, x]:.{places}f}"
            colour = "white" if share > dark else "#222222"
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8.5, color=colour)
    else:
        y, x = np.nonzero(low.reshape(shape).T <= 0)
        cross = {"s": 200 / max(shape), "marker": "x", "linewidths": 0.7, "color": QUIET}
        axes.scatter(x + 0.5, y + 0.5, label="may be 0", **cross)
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), borderpad=0, handletextpad=0.1)
    axes.invert_yaxis()
    return across, down
