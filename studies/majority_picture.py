"""The majority rule's raw curve and its envelope against the number of reports."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..server.accounting import majority_envelope, majority_epsilon
from ..server.accounting.errors import whole
from ..server.answers.figure import COLOURS, figure, heading, legend_below, style


def draw(path: Path, found: tuple[float, int]) -> None:
    """Write both curves from 1 report on."""
    total, most = found
    numbers = np.arange(1, whole("the number of reports", most, low=2) + 1)
    raw, envelope = majority_epsilon(numbers, total), majority_envelope(numbers, total)
    with figure(path) as (made, (axes,)):
        label = "envelope: the largest ε of as many or more"
        axes.plot(numbers, envelope, color=COLOURS[0], lw=1.9, label=label)
        axes.plot(numbers, raw, color=COLOURS[1], lw=1.1, label="raw curve: a tie counts for the attacker")
        axes.set_ylim(0, 1.15 * float(envelope[min(2, most - 1)]))  # one report has the total itself
        note = f"n = {most:,}: raw {raw[-1]:.4f}, envelope {envelope[-1]:.4f}"
        style(axes, f"total {total:g}", note, "number of reports n", "ε of each report, nats")
        heading(made, "Majority: guessing one fixed bit, not LDP")
        legend_below(made, axes, 2)
