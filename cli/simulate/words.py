"""What a simulation came to, in words: how many boards spoke, how private and how exact it is, what next."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path

from ...server.answers import tables as show
from ...server.epsilon import MICRO, belief
from ...server.experiments import words
from ...simulator.attack import AttackOutcome
from ...simulator.calls import Reporting, expected_reports, usual_calls, usual_reports
from ...simulator.simulate import SimulatedEstimate
from .. import tables as columns
from ..options import DEFAULT_STORE

FEW = 0.1  # intervals of ±10 points and more show nothing


def say(label: str, text: str) -> None:
    """Print a labelled paragraph, 80 columns wide."""
    lines = textwrap.wrap(text, 67, break_long_words=False, break_on_hyphens=False)
    show.out.print(f"{label:<13}" + f"\n{'':<13}".join(lines), soft_wrap=True)


def heading(estimate: SimulatedEstimate) -> None:
    """How many boards spoke, and what they hold."""
    e, made = estimate.experiment, estimate.reporting
    of = "1 report" if estimate.reports == 1 else f"{estimate.reports:,} reports"
    unit = f" {estimate.unit}" if estimate.unit and ":" in estimate.held else ""
    show.out.print(f"{e.name}: {of} of {estimate.devices:,} boards that hold {estimate.held}{unit}")
    if made is not None:
        show.out.print(_spoke(estimate, made))
    show.out.print(words.mechanism(e))


def _spoke(estimate: SimulatedEstimate, made: Reporting) -> str:
    every = estimate.experiment.every
    times = f"{made.calls:,} calls" if made.calls > 1 else "1 call"
    if not made.given and made.spoke == made.devices:
        each = usual_reports(estimate.experiment)
        reports = "1 report" if each == 1 else f"{each} reports"
        reports = f"the {reports} that its budget holds" if made.spent else reports
        return f"each makes {reports}, in {times} to report() on average"
    coin = f": one in {every} makes a report" if every > 1 else ""
    spent = f"; {made.spent:,} used up their budget" if made.spent else ""
    return f"{made.spoke:,} boards reported, in {times} to report(){coin}{spent}"


def too_few(estimate: SimulatedEstimate, width: float) -> str:
    """What to do where intervals show nothing; an empty text where they show something."""
    if width < FEW:
        return ""
    return f"Too few reports: a share is known to ±{_points(width)} points only. {_more(estimate, width)}"


def _more(estimate: SimulatedEstimate, width: float) -> str:
    """How to come to ±1 point, or as near as budgets allow."""
    made, e = estimate.reporting, estimate.experiment
    reports, devices, advice = estimate.reports, estimate.devices, ""
    if made is not None and made.given and made.calls < usual_calls(e):
        more = round(made.devices * expected_reports(e, usual_calls(e)))
        width *= math.sqrt(reports / more)
        advice = f"--calls {usual_calls(e)} makes about {more:,} reports: ±{_points(width)} points. "
        reports = more
    boards = devices * (width / 0.01) ** 2
    return f"{advice}±1 point takes {_rounded_up(boards):,} boards."


def _points(width: float) -> str:
    return f"{100 * width:.2g}" if width < 1 else f"{100 * width:,.0f}"


def _rounded_up(boards: float) -> int:
    """With two digits, never fewer than it takes."""
    unit = 10 ** max(0, math.floor(math.log10(max(boards, 1))) - 1)
    return max(2, math.ceil(boards / unit) * unit)


def conclusion(estimate: SimulatedEstimate, file: Path, width: float, confidence: float) -> None:
    """How private, how exact, what next."""
    e = estimate.experiment
    show.out.print()
    nats = e.epsilon / MICRO
    say("how private", f"ε = {nats:g} per report; {words.budget(e)}. {belief(nats)}")
    if estimate.answers == {"mean"}:
        unit = f" {estimate.unit}" if estimate.unit else ""
        exact = f"The mean is known to ±{width:.2g}{unit} ({confidence * 100:g} %)."
        say("how exact", f"{exact} Four times as many boards halve that.")
        width = 0.0
    exact = f"A row's share is known to ±{_points(width)} points ({confidence * 100:g} %)."
    if width:  # else nothing was found that could be known
        say("how exact", f"{exact} {_more(estimate, width)}")
    say("what next", "Fill a store with 30 days of such boards, then ask it:")
    show.out.print(f"  hushmote simulate {file} --store {DEFAULT_STORE}", soft_wrap=True)


def attack(outcome: AttackOutcome) -> None:
    """What fake devices came to."""
    headings = ("", "true %", "honest est. %", "est. %", "gain", "in theory")
    table = columns.table(f"attack: {outcome.kind}", headings, no_wrap=True)
    shares = (outcome.truth, outcome.honest, outcome.attacked)
    gains = (outcome.gain, outcome.theory)
    table.add_row(outcome.target, *(f"{x * 100:.2f}" for x in shares), *(f"{x * 100:+.2f}" for x in gains))
    show.out.print()
    show.out.print(table)
    show.out.print(
        f"{outcome.fake_devices:,} fake devices sent {outcome.forged:,} of {outcome.reports:,} reports"
        f" ({outcome.share * 100:.2f} %)"
    )
    if outcome.uncapped != outcome.theory:
        show.out.print(f"without the cap, in theory: {outcome.uncapped * 100:+.2f}")
    seen = outcome.plausibility
    chance = "" if seen.p is None else f" (p {seen.p:.2g})" if seen.p else " (p below 1e-300)"
    show.out.print(f"detection: {seen.words}{chance}")
