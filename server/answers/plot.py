"""Pictures of answers: bars, intervals side by side, distributions, lines over time, heat maps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..arrays import Floats
from ..plain_text import shorten
from ..words.numbers import READING_STEPS, decimals
from ..words.scope import titled
from . import figure as pictures
from .figure import COLOURS, LINE_ROWS, QUIET, number_axis
from .rows import AnswerRows, CellRow, ChangeRow, DifferenceRow, PostRow, Row, TopRow, TrendRow

_INTERVAL = {"ecolor": pictures.ERROR, "elinewidth": 1.4, "capsize": 3, "zorder": 3}
_PROCESSED = {"s": 48, "marker": "D", "facecolors": "none", "edgecolors": COLOURS[1], "zorder": 4}
_ZERO = {"color": "#555555", "linewidth": 0.8}
_OUTSIDE = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}  # a legend's place, outside the data
_PANEL_INCHES, _ROW_INCHES, _HIGHEST_INCHES = 4.6, 0.3, 24.0
_OF_SHARES = {"conditional": "share of those devices, %", "difference": "difference, % points"}
_MOST_LINES = 6  # lines in a picture: more cannot be told apart
_CHANGED: dict[str, Any] = {"color": COLOURS[1], "markerfacecolor": COLOURS[1]}
_TAKEN_AWAY: dict[str, Any] = {"color": COLOURS[1], "markerfacecolor": "white"}
_CHANCE: dict[str, Any] = {"color": QUIET, "markerfacecolor": QUIET}
_MAP = LinearSegmentedColormap.from_list("shares", ["#ffffff", "#9ec3e6", COLOURS[0], "#08306b"])
_MOST_WRITTEN = 12  # rows and columns whose numbers fit their cells
_LONGEST_NAME = 16  # characters of the name of a row or column of cells
_MOST_CELL_NAMES = 24


@dataclass(frozen=True)
class _Panel:
    """An answer and its axes; arrays have shape (rows,), and shares are percentages."""

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
        shares = _OF_SHARES.get(self.answer.kind, "share of devices, %")
        return shares if self.answer.quantity == "share" else self.unit

    @property
    def interval_name(self) -> str:
        return self.answer.interval_heading

    @property
    def of_the_estimate(self) -> str:
        return self.interval_name + (" of the estimate" if self.answer.post else "")

    def _all(self, name: str, scale: float = 1.0) -> Floats:
        return np.array([getattr(row, name) for row in self.rows], float) * scale

    @cached_property
    def values(self) -> Floats:
        return self._all("value", self.scale)

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """The ends of the intervals."""
        return self._all("low", self.scale), self._all("high", self.scale)

    @cached_property
    def errors(self) -> Floats:
        """The distances from the values to both ends of the intervals, shape (2, rows)."""
        low, high = self.ends
        return np.maximum([self.values - low, high - self.values], 0)

    @cached_property
    def truths(self) -> Floats:
        """The true values, NaN where they are not known."""
        return self._all("truth", self.scale)

    @property
    def truth_known(self) -> bool:
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
    def cumulative(self) -> bool:
        """Whether all rows begin at the lowest edge."""
        return len(self.rows) > 1 and _has_places(self.answer) and len({row.lower for row in self.rows}) == 1

    def number_axes(self) -> None:
        number_axis(self.axes.xaxis, 14)
        number_axis(self.axes.yaxis)


_Labels = tuple[str, str]  # for the horizontal and the vertical axis


def plot(path: Path | None, answers: Sequence[AnswerRows], title: str = "", subtitle: str = "") -> Figure:
    """Draw answers one below the other, and write them to `path` if one is given.

    Args:
        path: The file to write; its suffix selects PNG, PDF or SVG.
        answers: The answers.
        title: The title; by default the experiment with its unit, fleet and windows.
        subtitle: The line below the title; by default the number of reports and what is drawn.
    """
    heights = [_inches(answer) for answer in answers] or [_PANEL_INCHES]
    with pictures.figure(path, rows=max(1, len(answers)), heights=heights) as (drawing, panels):
        for i, (axes, answer) in enumerate(zip(panels, answers, strict=False)):
            panel = _Panel(axes, answer)
            labels, alone = _drawing(answer)(panel), len(answers) == 1
            head = pictures.as_title(title) or _title(answer) if alone else _panel_title(panel)
            before = _title(answer).replace("\n", " ") + "; " if title else ""
            panel_subtitle = subtitle or before + _subtitle(panel, alone)
            if answer.quantity == "share" and answer.kind not in ("change", "difference"):
                pictures.from_zero(axes.xaxis if _rows_are_named(answer) else axes.yaxis)
            pictures.style(axes, head, "" if i else panel_subtitle, *labels)
            flat = _rows_are_named(answer) or _drawing(answer) is _heat_map
            axes.grid(visible=not flat, axis="both" if _drawing(answer) is _heat_map else "y")
        if len(answers) > 1:
            pictures.heading(drawing, pictures.as_title(title) or _title(answers[0]))
    return drawing


def _title(answer: AnswerRows) -> str:
    """Return the picture's title, which has two lines for a change."""
    head = titled(answer.experiment, answer.unit, answer.about)
    return f"{head}\nagainst {answer.against}" if answer.against else head


def _panel_title(panel: _Panel) -> str:
    answer = panel.answer
    if answer.title or answer.kind not in ("change", "trend"):
        return answer.heading
    if answer.kind == "trend" and len({row.name for row in answer.rows}) == 1:
        return answer.rows[0].name
    if answer.quantity == "reading":
        return "readings"
    return "share of the fleet below" if panel.cumulative else "share of the fleet"


def _subtitle(panel: _Panel, alone: bool) -> str:
    answer = panel.answer
    about = f"{answer.title}; " if answer.title and alone else ""
    if _drawing(answer) is _heat_map:
        half = float(np.median([100 * row.half_width for row in answer.rows]))
        about += f"a cell ±{half:.2g} points; "
    return f"{about}{answer.reports:,} private reports, {panel.interval_name}s"


def _has_places(answer: AnswerRows) -> bool:
    """Return whether rows have edges in the reading's unit."""
    return all(row.upper is not None for row in answer.rows)


def _drawing(answer: AnswerRows) -> Callable[[_Panel], _Labels]:
    if answer.kind == "joint" and all(isinstance(row, CellRow) and len(row.cell) == 2 for row in answer.rows):
        return _heat_map
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


def _histogram(p: _Panel) -> _Labels:
    """Draw a number's bars from edge to edge; the intervals of many rows are drawn as a band."""
    axes, (lower, upper) = p.axes, p.edges
    middles, many, method = (lower + upper) / 2, len(p.rows) > LINE_ROWS, p.answer.post
    if many:
        axes.step(middles, p.values, where="mid", color=COLOURS[0], linewidth=1.2, label="estimate")
        band = {"step": "mid", "color": pictures.BAR, "alpha": 0.6, "linewidth": 0}
        axes.fill_between(middles, *p.ends, label=p.of_the_estimate, **band)
    else:
        gap = 0.08 * (upper - lower)
        bars = {"width": upper - lower - gap, "align": "edge", "color": pictures.BAR}
        axes.bar(lower + gap / 2, p.values, label="estimate", **bars)
        axes.errorbar(middles, p.values, p.errors, fmt="none", label=p.of_the_estimate, **_INTERVAL)
    if p.truth_known:
        axes.hlines(p.truths, lower, upper, color=pictures.TRUTH, linewidth=2, zorder=4, label="truth")
    if p.processed and many:
        axes.plot(middles, p.processed, color=COLOURS[1], linewidth=1.8, zorder=4, label=method)
    elif p.processed:
        axes.scatter(middles, p.processed, label=method, **_PROCESSED)
    axes.axhline(0, **_ZERO)
    axes.set_xlim(lower[0], upper[-1])
    p.number_axes()
    axes.legend(*_estimate_first(axes))
    outer = "bins" if many else "bars"
    return f"{p.unit} (the outer {outer} hold all that lies beyond)", p.quantity


def _labels(p: _Panel) -> _Labels:
    axes, at = p.axes, pictures.named_rows(p.axes, [row.name for row in p.rows])
    axes.barh(at, p.values, height=0.72, color=pictures.BAR, label="estimate")
    axes.errorbar(p.values, at, xerr=p.errors, fmt="none", label=p.of_the_estimate, **_INTERVAL)
    _beside(p, at)
    axes.axvline(0, **_ZERO)
    number_axis(axes.xaxis)
    axes.legend(*_estimate_first(axes), **_OUTSIDE)
    return p.quantity, ""


def _beside(p: _Panel, at: np.ndarray) -> None:
    """Mark the truth and the post-processed shares of named rows, if there are any."""
    if p.truth_known:
        mark = {"s": 160, "marker": "|", "linewidths": 2.6, "color": pictures.TRUTH}
        p.axes.scatter(p.truths, at, zorder=4, label="truth", **mark)
    if p.processed:
        p.axes.scatter(p.processed, at, label=p.answer.post, **_PROCESSED)


def _estimate_first(axes: Axes) -> tuple[list[Artist], list[str]]:
    """Return handles and names of a legend, with a parenthesized remark last."""
    both = zip(*axes.get_legend_handles_labels(), strict=True)
    ordered = sorted(both, key=lambda one: one[1].startswith("(") - one[1].startswith("estimate"))
    return [handle for handle, _ in ordered], [name for _, name in ordered]


def _side_by_side(p: _Panel) -> _Labels:
    """Draw each row's value and interval on a line; changes are marked by their kind."""
    axes, answer = p.axes, p.answer
    if not answer.rows:
        axes.set_axis_off()
        middle = {"transform": axes.transAxes, "ha": "center", "va": "center", "wrap": True}
        axes.text(0.5, 0.5, "\n".join(answer.notes), **middle)
        return "", ""
    at = pictures.named_rows(axes, list(map(_side_name, answer.rows)))
    label = f"estimate and its {p.interval_name}"
    for i, row in enumerate(answer.rows):
        mark = {"markersize": 6, "elinewidth": 2, "capsize": 4, "label": "" if i else label}
        look = _look(row, answer.confidence)
        axes.errorbar(p.values[i], at[i], xerr=p.errors[:, [i]], fmt="o", **mark, **look)
    _beside(p, at)
    number_axis(axes.xaxis)
    if answer.kind in ("change", "difference"):
        axes.axvline(0, **_ZERO)
    if answer.kind == "change":
        _change_legend(p)
        return f"change of {p.quantity}" + (" points" if answer.quantity == "share" else ""), ""
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(*_estimate_first(axes), **_OUTSIDE)
    return p.quantity, ""


def _side_name(row: Row) -> str:
    """Break a row's name into lines that are short enough to be shown in full."""
    if isinstance(row, TopRow):
        return f"{row.name}\n{row.probability * 100:.0f}% belongs"
    return row.name.replace(" less ", "\nless ") if isinstance(row, DifferenceRow) else row.name


def _look(row: Row, confidence: float) -> dict[str, Any]:
    if not isinstance(row, ChangeRow):
        return {"color": COLOURS[0]}
    if row.p_adjusted < 1 - confidence:
        return _CHANGED
    return _TAKEN_AWAY if row.adjusted_away(confidence) else _CHANCE


def _change_legend(p: _Panel) -> None:
    looks = {"changed": _CHANGED, "may be chance": _CHANCE}
    if any(_look(row, p.answer.confidence) is _TAKEN_AWAY for row in p.rows):
        looks["changed if looked at alone,\nmay be chance among so many rows"] = _TAKEN_AWAY
    handles = [Line2D([], [], marker="o", linestyle="-", label=name, **look) for name, look in looks.items()]
    p.axes.legend(handles=handles, **_OUTSIDE)


def _change_along(p: _Panel) -> _Labels:
    """Draw many changes of a number along its axis, with dots on those that count as changed."""
    lower, upper = p.edges
    x = upper if p.cumulative else (lower + upper) / 2
    pictures.lines_and_band(p.axes, x, p.values, *p.ends, QUIET, p.interval_name, label="change")
    changed = np.array([_look(row, p.answer.confidence) is _CHANGED for row in p.rows])
    p.axes.plot(x[changed], p.values[changed], "o", color=COLOURS[1], markersize=4, label="changed")
    p.axes.axhline(0, **_ZERO)
    p.number_axes()
    p.axes.legend()
    return p.unit, f"change of share of devices{' below' if p.cumulative else ''}, % points"


def _cdf(p: _Panel) -> _Labels:
    _, x = p.edges
    pictures.lines_and_band(p.axes, x, p.values, *p.ends, label="estimate", band_label=p.interval_name)
    if p.truth_known:
        p.axes.plot(x, p.truths, color=pictures.TRUTH, linestyle="--", label="truth")
    for share in (0, 100):
        p.axes.axhline(share, **_ZERO)
    p.number_axes()
    p.axes.legend()
    return p.unit, "share of devices below, %"


def _trend(p: _Panel) -> _Labels:
    """Draw a line for each of the largest statistics over the windows, with dates to scale."""
    axes = p.axes
    windows = list(dict.fromkeys(row.window for row in p.rows if isinstance(row, TrendRow)))
    names = list(dict.fromkeys(row.name for row in p.rows))
    total = {name: sum(row.value for row in p.rows if row.name == name) for name in names}
    largest = sorted(names, key=lambda name: -total[name])[:_MOST_LINES]
    line_names = [name for name in names if name in largest]
    moments = pictures.moments_of(windows)
    places = np.arange(len(windows)) if moments is None else np.asarray(date2num(moments))
    closest = float(np.diff(np.sort(places)).min()) if len(places) > 1 else 1.0
    for number, name in enumerate(line_names):
        of = np.array([row.name == name for row in p.rows])
        # Shift the lines sideways, so that their error bars can be told apart.
        aside = 0.0 if len(windows) > LINE_ROWS else 0.05 * closest * (number - (len(line_names) - 1) / 2)
        at, low, high = places + aside, p.ends[0][of], p.ends[1][of]
        pictures.intervals(axes, at, p.values[of], low, high, COLOURS[number], name)
    if len(line_names) < len(names):
        axes.plot([], [], " ", label=f"(the table has {len(names) - len(line_names)} more)")
    if moments is None:
        axes.set_xticks(places, windows)
    else:
        axes.xaxis_date()
        pictures.date_axis(axes.xaxis, min(5, len(windows)) if closest >= 1 else 5)
    number_axis(axes.yaxis)
    unit = p.answer.unit
    if len(line_names) > 1:
        axes.legend(*_estimate_first(axes), **_OUTSIDE)
        return "", p.quantity
    if p.answer.quantity == "share":
        return "", f"{line_names[0]} {unit}".strip() + f": {p.quantity}"
    return "", f"{line_names[0]}, {unit}" if unit else f"{line_names[0]} of {p.answer.experiment}"


def _heat_map(p: _Panel) -> _Labels:
    """Draw a joint table of two parts, with a cell for each pair of values, coloured by its share.

    In a small table each cell shows the share and half its interval; in a larger one a small cross marks the
    cells whose interval contains 0.
    """
    axes = p.axes
    cells = [row.cell for row in p.rows if isinstance(row, CellRow)]
    ((across, down),) = {tuple(part for part, _ in cell) for cell in cells}
    columns, lines = (list(dict.fromkeys(cell[i][1] for cell in cells)) for i in (0, 1))
    shape = (len(columns), len(lines))
    low, high = p.ends
    shares, half = p.values.reshape(shape).T, ((high - low) / 2).reshape(shape).T
    image = axes.pcolormesh(np.clip(shares, 0, None), cmap=_MAP, vmin=0, edgecolors="white", linewidth=1)
    bar = axes.figure.colorbar(image, ax=axes, pad=0.02)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.set_label("share of devices, %")
    for axis, names in ((axes.xaxis, columns), (axes.yaxis, lines)):
        apart = -(-len(names) // _MOST_CELL_NAMES)
        centres = np.arange(0, len(names), apart) + 0.5
        axis.set_ticks(centres, [shorten(name, _LONGEST_NAME) for name in names[::apart]])
        axis.set_tick_params(length=0)
    if max(map(len, columns), default=0) * len(columns) > 70:
        axes.tick_params(axis="x", labelrotation=45)
        for label in axes.get_xticklabels():
            label.set_horizontalalignment("right")
    if max(shape) <= _MOST_WRITTEN:
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
