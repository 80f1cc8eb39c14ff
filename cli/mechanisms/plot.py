"""Mechanisms for a question as a picture: error against ε, and what the bits of a code buy."""

import math
from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from ...planning.devices import PlanError
from ...planning.listing import ASKED, Listing, half_width, listing
from ...server.answers.figure import COLOURS, figure, log_log, plain, style
from ...server.epsilon import MICRO

_EPSILONS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.0, 6.0, 8.0)
_MARKED = (0.5, 1.0, 2.0, 4.0, 8.0)
_MARKERS = "osD^vPX*"
_PEER = "#555555"
_LINES = ("-", "--", ":", "-.")  # so that lines that lie on each other are all seen


def plot_mechanisms(path: Path, shown: Listing, devices: int) -> None:
    """Write both panels as PNG, PDF or SVG by the file's name; right: at the listing's ε."""
    along = {e: one for e in _EPSILONS if (one := _at(shown, e))}
    words = list(dict.fromkeys(one.word for each in (shown, *along.values()) for one in each.listed))
    colours = dict(zip(words, COLOURS * 2, strict=False))
    markers = {peer.name: _MARKERS[i % len(_MARKERS)] for i, peer in enumerate(shown.peers)}
    with figure(path, columns=2) as (made, (left, right)):
        for number, word in enumerate(words):
            points = [(e, v.variance) for e, one in along.items() for v in one.listed if v.word == word]
            errors = [100 * half_width(variance, devices) for _, variance in points]
            left.plot(
                [e for e, _ in points], errors, _LINES[number % 4], color=colours[word], label=word, lw=2.4
            )
        for peer in shown.peers:
            errors = [
                100 * half_width(one.peer_variance(peer), devices) for e, one in along.items() if e in _MARKED
            ]
            left.plot(
                [e for e in along if e in _MARKED],
                errors,
                ls="",
                marker=markers[peer.name],
                ms=7,
                mfc="none",
                color=_PEER,
                label=peer.name,
            )
        log_log(left)
        left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        plain(left.xaxis)
        plain(left.yaxis)
        left.set_xticks(_MARKED)
        style(
            left,
            f"{ASKED[shown.asked]}",
            f"{shown.counted}, {devices:,} devices; markers: not here",
            "ε of a report, nats",
            "half-width of 95 % interval, ±%",
        )
        left.legend(frameon=False, ncols=2)
        _bits(right, shown, colours, markers)
        made.align_labels()


def _at(shown: Listing, epsilon: float) -> Listing | None:
    """The same at another ε, or None where nothing fits there."""
    try:
        return listing(shown.asked, shown.domain, round(epsilon * MICRO))
    except PlanError:
        return None


def _bits(axes: Axes, shown: Listing, colours: Mapping[str, str], markers: Mapping[str, str]) -> None:
    """Variance over the least there is against the bits of a code."""
    epsilon, best = shown.epsilon / MICRO, shown.optimum
    for number, one in enumerate(sorted(shown.listed, key=lambda one: one.codes)):
        at = math.log2(one.codes), one.variance / best
        beside = (8, 7) if number % 2 else (8, -17)
        axes.plot(*at, "o", color=colours[one.word], ms=10, zorder=4)
        axes.annotate(
            one.word, at, beside, textcoords="offset points", color=colours[one.word], weight="bold"
        )
    for peer in shown.peers:
        if not math.isfinite(shown.peer_variance(peer)):
            continue
        at = max(1.0, peer.bits(shown.domain, epsilon)), shown.peer_variance(peer) / best
        axes.plot(*at, markers[peer.name], color=_PEER, ms=8, mfc="none")
        axes.annotate(peer.name, at, (9, -4), textcoords="offset points", color=_PEER)
    axes.axhline(1, color="#888888", lw=1, ls="--", zorder=0)
    log_log(axes)
    axes.margins(x=0.2, y=0.14)
    axes.autoscale_view()
    right = max(axes.get_xlim()[1], 60)
    axes.set_xlim(right=right)
    axes.axvspan(24, right, color="#eef3f8", zorder=0)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plain(axes.xaxis, "{:,g}".format)
    plain(axes.yaxis)
    style(
        axes,
        "What the bits of a code buy",
        f"ε = {epsilon:g}; shaded: more than a report's code has, 24 bits",
        "bits of a code",
        "variance over the least there is",
    )
