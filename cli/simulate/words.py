"""The result of a simulation in words: reports, privacy, precision and next steps."""

import math
from collections.abc import Sequence
from pathlib import Path

from ...device.ldp_client import Experiment
from ...server.answers import tables as show
from ...server.answers.answer import Answer, Answers
from ...server.answers.rows import Row, coverage
from ...server.answers.summary import answer_in_focus, half_width
from ...server.epsilon import MICRO
from ...server.mechanisms.views.factors import parts_of
from ...server.wire.experiments import every_by_value, reports_in_budget
from ...server.words import experiment as words
from ...server.words.answers import (
    FOUR_TIMES,
    HALF_AS_WIDE,
    capitalize,
    devices_for_one_point,
    halving_advice,
)
from ...server.words.epsilon import belief_of_all
from ...server.words.numbers import counted, decimals, is_too_wide, points, two_digits, with_unit
from ...simulator.attack import AttackOutcome
from ...simulator.calls import Reporting, expected_reports, usual_calls, usual_reports
from ...simulator.planned_case import PlannedError
from ...simulator.simulate import SimulatedEstimate
from ..options import DEFAULT_STORE


def heading(estimate: SimulatedEstimate) -> None:
    """Print the number of reports and the devices' population."""
    e, reporting = estimate.experiment, estimate.reporting
    unit = (
        f" {estimate.unit}"
        if estimate.unit and ":" in estimate.population and not estimate.population.startswith("file:")
        else ""
    )
    source = f"{counted(estimate.devices, 'device')} with {estimate.population}{unit}"
    show.out.print(f"{e.name}: {counted(estimate.reports)} from {source}")
    if reporting is not None:
        show.out.print(_describe_reporting(estimate, reporting))
    for note in estimate.rows.notes if estimate.rows else ():
        show.out.print(note)
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
        return f"{count}; shares and truth cover only the others."
    if any(part.missing is not None for part in parts):
        return (
            f"{count} for some part. If the file does not set missing for a part, they are spread "
            "over all its values."
        )
    return (
        f"{count}. The experiment does not set missing, so these are spread evenly over all values, in the "
        "truth as well."
    )


def _describe_reporting(estimate: SimulatedEstimate, reporting: Reporting) -> str:
    times = counted(reporting.calls, "call")
    if not reporting.calls_are_fixed and reporting.reporting_devices == reporting.devices:
        report_count = usual_reports(estimate.experiment)
        reports = (
            f"the {counted(report_count)} that its budget allows"
            if reporting.spent
            else counted(report_count)
        )
        return f"each makes {reports} in {times} to report() on average"
    e = estimate.experiment
    exceptions = _describe_exceptions(e)
    part = "each" if e.every == 1 else f"one in {e.every:,}"
    thinning = f", of which {part} makes a report{exceptions}" if e.every > 1 or exceptions else ""
    spent = f"; {reporting.spent:,} used up their budget" if reporting.spent else ""
    subject = counted(reporting.reporting_devices, "device")
    return f"{subject} reported, with {times} to report(){thinning}{spent}"


def describe_every(experiment: Experiment) -> str:
    """Describe which calls make a report, and the values of the open group with a different rate."""
    part = "each call" if experiment.every == 1 else f"one call in {experiment.every:,}"
    return f"{part} makes a report{_describe_exceptions(experiment)}"


def _describe_exceptions(experiment: Experiment) -> str:
    """Return " (firmware 2.4.0: each)" for the values whose `every` is not that of "other", or ""."""
    rates = every_by_value(experiment).items()
    texts = [f"{value}: {'each' if n == 1 else f'one in {n}'}" for value, n in rates if n != experiment.every]
    return f" ({experiment.group} {'; '.join(texts)})" if texts else ""


def groups_table(estimate: SimulatedEstimate) -> None:
    """Print one statistic of each value of the open group, and how many devices have it."""
    rows = [(f"{g.name} ({counted(g.devices, 'device')})", g.reports, g.row) for g in estimate.groups]
    statistics = [g.statistic for g in estimate.groups if g.row is not None]
    if statistics:
        truth_table(estimate.experiment.group, statistics[0], estimate.experiment, estimate.unit, rows)


def truth_table(
    first: str,
    statistic: str,
    experiment: Experiment,
    unit: str,
    rows: Sequence[tuple[str, int, Row | None]],
) -> None:
    """Print one statistic for each part of the reports, next to the truth.

    Args:
        first: Heading of the parts' names.
        statistic: The statistic's name.
        experiment: The experiment.
        unit: The unit of its readings.
        rows: Each part's name, number of reports, and statistic; None if there are too few reports.
    """
    scale, unit = (1.0, unit) if experiment.type == "number" else (100.0, "%")
    headings = (first, "reports", "truth", "estimate", "95% interval")
    table = show.table(f"{statistic}{f', {unit}' if unit else ''}", headings)
    widths = [row.high - row.low for _, _, row in rows if row is not None]
    places = decimals(0.0, scale * min((width for width in widths if width > 0), default=0.0))
    for name, reports, row in rows:
        if row is None:
            table.add_row(name, f"{reports:,}", "-", "-", "too few reports")
            continue
        truth, *numbers = (
            "-" if value is None else f"{scale * value:.{places}f}"
            for value in (row.truth, row.value, row.low, row.high)
        )
        estimate, low, high = numbers
        table.add_row(name, f"{reports:,}", truth, estimate, f"{low} to {high}")
    show.out.print()
    show.out.print(table)


def too_few(estimate: SimulatedEstimate, answers: Answers) -> str:
    """Return advice if the intervals are too wide to be useful, else ""."""
    about = answer_in_focus(answers)
    width = half_width(about)
    if about.quantity != "share" or not is_too_wide(width):
        return ""
    precision = f"shares are known only to ±{two_digits(100 * width)} points"
    return f"Too few reports: {precision}. {_more(estimate, width)}"


def _more(estimate: SimulatedEstimate, width: float) -> str:
    """Describe how to reach ±1 point, or to get as close to it as the budgets allow."""
    if estimate.approximate:
        return capitalize(halving_advice(estimate.reports, approximate=True))
    reporting, e = estimate.reporting, estimate.experiment
    advice = ""
    if reporting is not None and reporting.calls_are_fixed:
        groups = [(group.index, group.devices) for group in estimate.groups] or [(0, reporting.devices)]
        calls = max(usual_calls(e, i) for i, _ in groups)
        if reporting.calls < calls:
            reports = round(sum(devices * expected_reports(e, calls, i) for i, devices in groups))
            width *= math.sqrt(estimate.reports / reports)
            advice = f"--calls {calls} makes about {reports:,} reports: ±{two_digits(100 * width)} points. "
    return f"{advice}{devices_for_one_point(estimate.devices, width)}"


def method(estimate: SimulatedEstimate) -> None:
    """Print the mechanism."""
    e = estimate.experiment
    show.out.print(f"\nversion {e.digest.hex()}: {words.mechanism(e)}")


def budget_in_words(experiment: Experiment) -> str:
    """Describe how much a report, and all reports within the budget, can reveal at most."""
    protected = belief_of_all((experiment.epsilon / MICRO, reports_in_budget(experiment)))
    return f"{protected} {words.unprotected(experiment)}".rstrip()


def conclusion(estimate: SimulatedEstimate, file: Path | None, answers: Answers, *, privacy: bool) -> None:
    """Print the privacy, precision, planned error and next step; with `privacy`, also each ε."""
    e = estimate.experiment
    show.out.print()
    if privacy:
        show.out.print(f"ε of a report: {e.epsilon / MICRO:g}; {words.budget(e)}.\n")
    show.out.print(f"Privacy: {budget_in_words(e)}")
    if sentence := _exact(estimate, answers):
        show.out.print(f"How exact: {sentence}")
    if estimate.planned is not None:
        show.out.print(f"Planned: {_planned(estimate.planned)}")
    if file is None:
        return
    show.out.print("Next: fill a store with 30 days of such devices' reports, then query it:")
    show.out.print(f"  hushmote simulate {file} --to {DEFAULT_STORE}", soft_wrap=True)


def _planned(error: PlannedError) -> str:
    unit = "% of the range" if error.mean else "points"
    planned, measured = (points(half, unit) for half in (error.planned, error.measured))
    text = f"{planned} for the {error.question}, with the same number of reports. Measured: {measured}"
    return f"{text}; the estimate is {with_unit(f'{100 * error.missed:.2g}', unit)} off."


def _exact(estimate: SimulatedEstimate, answers: Answers) -> str:
    """Describe how many intervals contain the truth and how to narrow them; "" without an estimate."""
    parts, about = list[str](), answer_in_focus(answers)
    covered, interval_count = coverage(answers)
    if interval_count:
        hold = f"{covered} of {counted(interval_count, 'interval')} contain the truth"
        parts.append(f"{hold} (95% of them should, in the long run).")
    if width := half_width(about):
        parts.append(_narrower(estimate, about, width))
    return " ".join(parts)


def _narrower(estimate: SimulatedEstimate, about: Answer, width: float) -> str:
    """Describe how to narrow the intervals, whose half-width in the middle of a table is `width`."""
    if about.quantity == "reading":
        advice = (
            capitalize(halving_advice(estimate.reports, approximate=True)) if estimate.approximate else ""
        )
        return advice or f"With {FOUR_TIMES} devices, {HALF_AS_WIDE}"
    if estimate.experiment.type == "pair":
        return f"The median row is known to ±{two_digits(100 * width)} points. {_more(estimate, width)}"
    return _more(estimate, width)


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
        f"{counted(outcome.fake_devices, 'fake device')} sent {outcome.forged:,} of "
        f"{counted(outcome.reports)}"
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
