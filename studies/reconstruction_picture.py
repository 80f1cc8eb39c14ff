"""The figure of the reconstruction study: records given away, and the error of a day, against questions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from scipy import special

from ..server.answers.figure import COLOURS, figure, legend_below, plain, style
from .noise import noise_variance
from .reconstruction import Attack, Reconstruction, Target, words

_MARKS: dict[Attack, tuple[str, str]] = {
    "repeat": (COLOURS[1], "o"),
    "ranges": (COLOURS[5], "s"),
    "subsets": (COLOURS[3], "^"),
    "kept": (COLOURS[0], "D"),
    "boards": (COLOURS[2], "v"),
}


def draw(path: Path, study: Reconstruction) -> None:
    """Write both targets against the number of questions."""
    with figure(path, columns=2) as (drawing, (left, right)):
        for attack in _MARKS:
            _line(left, study, "records", attack, 100.0)
            _line(right, study, "days", attack, 1.0)
        n = study.records
        asked = np.geomspace(1.5 * n, max(o.questions for o in study.outcomes), 60)
        closed = special.ndtr(np.sqrt((asked - n) / noise_variance(1, study.epsilon)) / 4)
        label = "Φ(√(questions - records) / 4σ)"
        left.plot(asked, 100 * closed, ":", color="#333333", linewidth=2, label=label)
        left.axhline(100 * study.allowed, color="#777777", linewidth=1.2, linestyle="--")
        left.annotate(
            f"what ε = {study.epsilon:g} in all lets anybody get right: {100 * study.allowed:.1f} %",
            (0.99, 100 * study.allowed),
            (-30, -5),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=9,
            color="#555555",
        )
        left.set_ylim(48, 101.5)
        right.set_yscale("log")
        plain(right.yaxis, lambda y: f"{y:,.0f}" if y >= 1 else f"{y:g}")
        for axes in (left, right):
            axes.set_xscale("log")
            plain(axes.xaxis, lambda x: f"{x:,.0f}")
        note = f"{n} records; dots measured, lines theory; half are right by guessing"
        style(left, "Records reconstructed", note, "questions", "records guessed right, %")
        note = f"{study.days} days of {study.per_day:,.0f} on average; dots measured, lines theory"
        style(right, "Error of a day's count", note, "questions", "RMS error, records")
        legend_below(drawing, left, 3, 9.5)


def _line(axes: Axes, study: Reconstruction, target: Target, attack: Attack, scale: float) -> None:
    outcomes = study.select(target, attack)
    if not outcomes:
        return
    colour, mark = _MARKS[attack]
    questions = [o.questions for o in outcomes]
    predicted = [scale * o.predicted for o in outcomes]
    measured = [scale * o.measured for o in outcomes]
    if attack in ("kept", "boards"):  # the same answers, or none, however often one asks
        last = max(o.questions for o in study.outcomes if o.target == target)
        questions, predicted, measured = [questions[0], last], 2 * predicted, 2 * measured
    axes.plot(questions, predicted, color=colour, linewidth=1.6)
    name = f"{words(attack)}, ε = {study.epsilon:g} " + (
        "each" if attack not in ("kept", "boards") else "in all"
    )
    axes.plot(questions, measured, mark, color=colour, markersize=5.5, label=name)
