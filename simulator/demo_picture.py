"""A mean as the reports came in: it nears the truth, and its interval gets narrower."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..server.answers import moments
from ..server.answers.answer import Answers
from ..server.answers.fleet_estimate import FleetEstimate
from ..server.estimate.estimate import estimate
from ..server.estimate.statistic import Statistic
from . import convergence
from .demo_fleet import Reported

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def growing_mean(path: Path, estimates: FleetEstimate, answers: Answers, reported: Reported) -> Figure:
    """Draw the mean of the first reports, up to all of them, beside the truth, and write it to path."""
    # matplotlib takes a second to load
    from ..server.answers.figure import TRUTH, figure, lines_and_band, number_axis, plain, style

    e, row = estimates.experiment, answers[0].rows[0]
    reports, means = list[int](), list[Statistic]()
    for counts in convergence.growing(e, list(reported.fleet.acknowledged.values())):
        reports.append(int(counts.sum()))
        means.append(moments.mean(estimate(e, counts)))
    ends = np.array([mean.interval(estimates.confidence) for mean in means])
    with figure(path) as (made, (axes,)):
        lines_and_band(
            axes, reports, [mean.value for mean in means], ends[:, 0], ends[:, 1],
            label="estimate", band_label=f"{estimates.confidence * 100:g} % interval",
        )  # fmt: skip
        if row.truth is not None:
            axes.axhline(row.truth, color=TRUTH, linestyle="--", label=f"truth: {row.truth:.2f}")
        subtitle = f"private reports of ε = {e.epsilon / 1e6:g}, in the order in which they came"
        style(axes, f"Mean of {e.name}", subtitle, "reports", f"mean, {estimates.unit}")
        axes.set_xscale("log")
        plain(axes.xaxis, "{:,.0f}".format)
        number_axis(axes.yaxis)
        half = 3 * (row.high - row.low)  # the first reports' intervals would hide the last ones'
        axes.set_ylim(row.value - 3 * half, row.value + 3 * half)
        axes.legend()
    return made
