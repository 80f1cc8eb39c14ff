"""The result of a simulation in words: reports, privacy, precision and next steps."""

import math
import textwrap
from pathlib import Path

from ...server.answers import tables as show
from ...server.answers.answer import Answer, Answers
from ...server.answers.summary import answer_in_focus, exact, half_width
from ...server.epsilon import MICRO
from ...server.mechanisms.views.factors import parts_of
from ...server.words import experiment as words
from ...server.words.answers import capitalize, halved, to_one_point
from ...server.words.epsilon import belief
from ...server.words.numbers import counted, is_too_wide, points, two_digits
from ...simulator.attack import AttackOutcome
from ...simulator.calls import Reporting, expected_reports, usual_calls, usual_reports
from ...simulator.planned_case import PlannedError
from ...simulator.simulate import SimulatedEstimate
from ..options import DEFAULT_STORE


def say(label: str, text: str) -> None:
    """Print a labelled paragraph, 80 columns wide."""
    lines = textwrap.wrap(text, 67, break_long_words=False, break_on_hyphens=False)
    show.out.print(f"{label:<13}" + f"\n{'':<13}".join(lines), soft_wrap=True)


def heading(estimate: SimulatedEstimate) -> None:
    """Print the number of reports and the devices' population."""
    e, reporting = estimate.experiment, estimate.reporting
    unit = (
        f" {estimate.unit}"
        if estimate.unit and ":" in estimate.population and not estimate.population.startswith("file:")
        else ""
    )
    description = (
        f"{counted(estimate.reports)} of {estimate.devices:,} devices that hold {estimate.population}{unit}"
    )
    show.out.print(f"{e.name}: {description}")
    if reporting is not None:
        show.out.print(_describe_reporting(estimate, reporting))
    show.out.print(words.mechanism(e))
    if blank := rows_without_reading(estimate):
        show.out.print(blank)


def rows_without_reading(estimate: SimulatedEstimate) -> str:
    """Return a sentence on the rows of a file without a reading, or "" if all have one."""
    e, rows = estimate.experiment, estimate.rows
    if rows is None or not rows.blank:
        return ""
    count = f"{rows.blank:,.0f} of {counted(round(rows.count), 'row')} have no reading"
    if e.type == "text":
        return f"{count}; devices report a random text for them."
    parts = parts_of(e) or (e,)
    if all(part.missing is not None for part in parts):
        return f"{count}; shares and truth are among the others."
    if any(part.missing is not None for part in parts):
        return (
            f"{count} of some part. A part without missing in the file has them spread over all its values."
        )
    return (
        f"{count}. The experiment does not set missing, so these are spread evenly over all values, also in "
        "the truth."
    )


def _describe_reporting(estimate: SimulatedEstimate, reporting: Reporting) -> str:
    every = estimate.experiment.every
    times = counted(reporting.calls, "call")
    if not reporting.calls_are_fixed and reporting.spoke == reporting.devices:
        each = usual_reports(estimate.experiment)
        reports = f"the {counted(each)} that its budget holds" if reporting.spent else counted(each)
        return f"each makes {reports}, in {times} to report() on average"
    coin = f": one in {every} makes a report" if every > 1 else ""
    spent = f"; {reporting.spent:,} used up their budget" if reporting.spent else ""
    return f"{reporting.spoke:,} devices reported, in {times} to report(){coin}{spent}"


def too_few(estimate: SimulatedEstimate, answers: Answers) -> str:
    """Return advice if the intervals are too wide to be useful, else ""."""
    about = answer_in_focus(answers)
    width = half_width(about)
    if about.quantity != "share" or not is_too_wide(width):
        return ""
    precision = f"a share is known to ±{two_digits(100 * width)} points only"
    return f"Too few reports: {precision}. {_more(estimate, width)}"


def _more(estimate: SimulatedEstimate, width: float) -> str:
    """Describe how to reach ±1 point, or as near as budgets allow."""
    if estimate.approximate:
        return capitalize(halved(estimate.reports, approximate=True))
    reporting, e = estimate.reporting, estimate.experiment
    advice = ""
    if reporting is not None and reporting.calls_are_fixed and reporting.calls < usual_calls(e):
        more = round(reporting.devices * expected_reports(e, usual_calls(e)))
        width *= math.sqrt(estimate.reports / more)
        advice = f"--calls {usual_calls(e)} makes about {more:,} reports: ±{two_digits(100 * width)} points. "
    return f"{advice}{to_one_point(estimate.devices, width)}"


def conclusion(estimate: SimulatedEstimate, file: Path | None, answers: Answers) -> None:
    """Print privacy, precision, the planned error and the next step."""
    e = estimate.experiment
    show.out.print()
    nats = e.epsilon / MICRO
    say("how private", f"ε = {nats:g} per report; {words.budget(e)}. {belief(nats)}")
    about = answer_in_focus(answers)
    if width := half_width(about):  # without it, there is no estimate
        say("how exact", _exact(estimate, answers, about, width))
    if estimate.planned is not None:
        say("planned", _planned(estimate.planned))
    if file is None:
        return
    say("what next", "Fill a store with 30 days of such devices, then ask it:")
    show.out.print(f"  hushmote simulate {file} --to {DEFAULT_STORE}", soft_wrap=True)


def _planned(error: PlannedError) -> str:
    of = "% of the range" if error.mean else "points"
    planned, measured = (points(half, of) for half in (error.planned, error.measured))
    text = f"{planned} for the {error.question}, with as many reports. Measured: {measured}"
    return f"{text}; the estimate is {100 * error.missed:.2g} {of} off."


def _exact(estimate: SimulatedEstimate, answers: Answers, about: Answer, width: float) -> str:
    if about.quantity == "reading":
        more = capitalize(halved(estimate.reports, approximate=True)) if estimate.approximate else ""
        return f"{exact(answers)} {more or 'Four times as many devices halve that.'}"
    middle = f" In the middle of them it is ±{two_digits(100 * width)}." * (
        estimate.experiment.type == "pair"
    )
    return f"{exact(answers)}{middle} {_more(estimate, width)}"


def attack(outcome: AttackOutcome) -> None:
    """Print the effect of fake devices."""
    headings = ("", "true %", "honest est. %", "est. %", "gain", "in theory")
    table = show.table(f"attack: {outcome.kind}", headings)
    shares = (outcome.truth, outcome.honest, outcome.attacked)
    gains = (outcome.gain, outcome.theory)
    table.add_row(outcome.target, *(f"{x * 100:.2f}" for x in shares), *(f"{x * 100:+.2f}" for x in gains))
    show.out.print()
    show.out.print(table)
    show.out.print(
        f"{outcome.fake_devices:,} fake devices sent {outcome.forged:,} of {outcome.reports:,} reports"
        f" ({outcome.share * 100:.2f}%)"
    )
    if outcome.uncapped != outcome.theory:
        show.out.print(f"without the cap, in theory: {outcome.uncapped * 100:+.2f}")
    plausibility = outcome.plausibility
    chance = (
        ""
        if plausibility.p is None
        else f" (p {plausibility.p:.2g})"
        if plausibility.p
        else " (p below 1e-300)"
    )
    show.out.print(f"detection: {plausibility.words}{chance}")
