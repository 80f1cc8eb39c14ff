"""One picture of an estimate: bars, 95 % error bars, and the truth where it is known."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

BAR, ERROR, TRUTH = "#9ec3e6", "#1f3b57", "#d1495b"


def histogram(
    path: Path,
    names: Sequence[str],
    values: np.ndarray,
    intervals: np.ndarray,
    *,
    title: str,
    subtitle: str,
    xlabel: str,
    truth: np.ndarray | None = None,
) -> None:
    """Write a PNG of shares (names, values shape (n,), intervals shape (n, 2), truth shape (n,) or None)."""
    at = np.arange(len(names))
    figure, axes = plt.subplots(figsize=(9.5, 5.2), dpi=150, layout="constrained")
    errors = np.abs(intervals.T - values) * 100
    axes.bar(at, values * 100, width=0.86, color=BAR, label="estimate", zorder=2)
    style = {"fmt": "none", "ecolor": ERROR, "elinewidth": 1.4, "capsize": 3, "zorder": 3}
    axes.errorbar(at, values * 100, yerr=errors, label="95 % interval", **style)
    if truth is not None:
        axes.scatter(at, truth * 100, s=200, marker="_", linewidths=2.6, color=TRUTH, zorder=4, label="truth")
    axes.axhline(0, color="#555555", linewidth=0.8, zorder=1)
    step = max(1, len(names) // 32)
    slant = {"rotation": 45, "ha": "right"} if len(names) > 6 else {}
    axes.set_xticks(at[::step], list(names)[::step], **slant)
    axes.set_ylabel("share of devices, %")
    axes.set_xlabel(xlabel)
    axes.set_title(title, loc="left", fontsize=13, fontweight="bold", pad=26)
    axes.text(0, 1.02, subtitle, transform=axes.transAxes, fontsize=9.5, color="#444444")
    axes.grid(axis="y", color="#dddddd", linewidth=0.7, zorder=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path)
    plt.close(figure)
