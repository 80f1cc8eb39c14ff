"""A plan as tables of 80 columns, in words that say what each number holds for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from ...server.answers import tables as show
from ...server.epsilon import MICRO, rounded_up
from ...server.estimate.shuffled import LIMITS
from ...server.experiments import words
from ...server.planning import sentences
from ...server.planning.devices import MOST_RANGE_VALUES, Plan, devices_for, half_width
from ...server.planning.expected_error import Design, Question
from ...server.planning.experiment_file import Reading, nats
from ...server.planning.lifetime import LifetimePlan, Spending
from ...server.planning.second_epsilon import HistogramEpsilon
from ...server.planning.words import NOTHING, asked, assumed, length, mechanism, percent
from .. import tables

if TYPE_CHECKING:  # the simulator stands on the server
    from ...studies.plan_check import PlanCheck, Unmeasured

_OPTIMAL = "; optimal: by optimal composition at δ"
_UNIT = "half_width_95_in_unit"
_SEEN = {"a day": "the last day", "a week": "the last week", "30 days": "the last 30 days"}
_SEEN |= {"all of it": "all reports"}


def in_unit(error: float, domain: int, reading: Reading, density: float | None) -> dict[str, float]:
    """A quantile's or a mean's half-width in the reading's unit, and half of a bin, which comes on top.

    density: share of devices for each unit around a quantile, or the part of the range that a unit is; else
    nothing is shown.
    """
    if density is None:
        return {}
    result = {_UNIT: error / density}
    if reading.low is not None and reading.high is not None:
        result["half_bin_in_unit"] = (reading.high - reading.low) / domain / 2
    return result


def _facts(rows: Sequence[tuple[str, str]]) -> Table:
    table = show.table(header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for row in rows:
        table.add_row(*row)
    return table


def _about(design: Design, question: Question) -> list[tuple[str, str]]:
    return [
        ("asked", f"{asked(question)} ({assumed(question, design)})"),
        ("mechanism", mechanism(design)),
    ]


def one_report(
    plan: Plan, reading: Reading, density: float | None, seen: HistogramEpsilon, wanted: float | None
) -> None:
    """Print a plan of one report for each device; wanted: of the histogram, if that was asked for."""

    def mark(name: str, text: str) -> str:
        return f"{text}   <- the answer" if plan.solved == name else text

    show.out.print(sentences.one_report(plan, reading.yes_no))
    show.out.print()
    design = plan.design
    half = f"±{plan.error:.3%} of the {'range' if plan.question.kind == 'mean' else 'devices'}"
    rows = [
        (
            "devices",
            mark("devices", f"{plan.devices:,}") + ("" if plan.solved == "devices" else ", one report each"),
        ),
        ("ε", mark("epsilon", f"{plan.epsilon:g}") + _of_report(wanted)),
        ("", f"{rounded_up(seen.epsilon)} of the histogram (δ = {seen.delta:g}), {LIMITS}"),
        ("values", mark("domain", f"{design.domain:,}")),
        ("error", mark("error", half)),
        ("", f"half-width of the 95 % interval; standard error {plan.stderr:.3%}"),
        *_unit_rows(plan, reading, density),
        *_about(design, plan.question),
    ]
    show.out.print(_facts(rows))
    rows = _beside(plan, reading)
    if rows:
        show.out.print("\nwhat the same reports show besides", style="bold")
        table = tables.table(None, ("asked", "error"), 1)
        for row in rows:
            table.add_row(*row)
        show.out.print(table)
    if plan.error >= NOTHING:
        show.out.print("An interval this wide says nothing: take more devices, a larger ε or fewer values.")


def _of_report(wanted: float | None) -> str:
    if wanted is None:
        return " of a report, against everybody"
    return f" of a report, the largest with which the histogram stays at {wanted:g}; against everybody"


def _beside(plan: Plan, reading: Reading) -> list[tuple[str, str]]:
    if plan.design.domain == 2 or plan.design.domain > MOST_RANGE_VALUES:
        return []
    others = (Question("frequency", 0.0), Question("frequency"), Question("range"), Question("quantile", 0.5))
    texts = (
        "a value that hardly any device holds",
        "any one value, at its worst share",
        "any range",
        "the median",
    )
    return [
        (text, percent(half_width(plan.devices, plan.design, question)))
        for question, text in zip(others, texts, strict=True)
        if question != plan.question and _fits(question, reading) and plan.design.answers(question)
    ]


def _fits(question: Question, reading: Reading) -> bool:
    """Whether a question makes sense of a reading: labels have no order."""
    return question.kind == "frequency" or not reading.labels


def _unit_rows(plan: Plan, reading: Reading, density: float | None) -> list[tuple[str, str]]:
    widths = in_unit(plan.error, plan.design.domain, reading, density)
    if not widths:
        return []
    text = f"±{widths[_UNIT]:.3g} {reading.unit}".rstrip()
    if "half_bin_in_unit" in widths:
        dense = "" if plan.question.kind == "mean" else " where devices are as dense as stated"
        text += f"{dense}; half a bin is {widths['half_bin_in_unit']:.3g}"
    return [("in unit", text)]


def devices_needed(life: LifetimePlan, days: float, error: float) -> int:
    """Fewest devices with which the last `days` days meet an error."""
    return devices_for(life.best.design, life.question, error, life.best.per_device(days))


def _best(best: Spending) -> str:
    rarely = "every call" if best.every == 1 else f"one call in {best.every:,}"
    added = "" if best.composition == "basic" else " (optimal composition)"
    return f"{words.reports(best.cap)} of ε = {nats(best.epsilon)}{added}; {rarely} makes one"


def lifetime(
    life: LifetimePlan,
    reading: Reading,
    density: float | None,
    error: float | None,
    seen: Mapping[str, HistogramEpsilon],
) -> None:
    """Print how a budget is best spent, what else was compared, what the fleet will show and give away."""
    best, rhythm, budget = life.best, life.rhythm, life.budget
    show.out.print(sentences.lifetime(life, error, reading.yes_no))
    show.out.print()
    spent = f"ε = {budget.epsilon / MICRO:g}" + (f", δ = {budget.delta:g}" if budget.delta else "")
    calls = f"{length(rhythm.horizon_s)}, a call every {length(rhythm.call_s).removeprefix('1 ')}"
    show.out.print(
        _facts(
            [
                ("devices", f"{life.devices:,}, {best.design.domain:,} values"),
                ("budget", f"{spent} for life; {calls}"),
                *_about(best.design, life.question),
                ("best", _best(best)),
                ("boards", _policy(best)),
            ]
        )
    )
    windows = life.windows()
    show.out.print("\nways to spend the budget, and their errors at the end of the horizon", style="bold")
    table = show.table()
    table.add_column("reports for life", no_wrap=True)
    for heading in ("ε each", "every", "used", *windows):
        table.add_column(heading, justify="right", no_wrap=True)
    for s in life.spendings:
        table.add_row(
            f"{'>' if s is best else ' '} {s.cap:,}{' optimal' if s.composition == 'optimal' else ''}",
            f"{s.epsilon / MICRO:.3g}",
            f"{s.every:,}",
            f"{s.used:.0%}",
            *(percent(life.error(s, days)) for days in windows.values()),
            style="bold" if s is best else "",
        )
    show.out.print(table)
    for r in life.refused:
        many = f"{r.cap:,}{' optimal' if r.composition == 'optimal' else ''}"
        show.out.print(f"  {many}: ε would be {r.epsilon / MICRO:.2g}, and no board takes one below 0.001")
    show.out.print("  used: of a board's budget, at the end" + (_OPTIMAL if budget.delta else ""))
    _shows(life, reading, density, error)
    given = ", ".join(f"{rounded_up(one.epsilon)} of {_SEEN[name]}" for name, one in seen.items())
    delta = seen["all of it"].delta
    show.out.print(f"  ε of the histogram (δ = {delta:g}): {given}; {LIMITS}")


def _shows(life: LifetimePlan, reading: Reading, density: float | None, error: float | None) -> None:
    best = life.best
    questions = {k: q for k, q in life.shown().items() if q == life.question or _fits(q, reading)}
    show.out.print("\nwhat the best way shows, at first and at the end", style="bold")
    table = tables.table(None, ("window", "reports", *map(_heading, questions.values())), 1)
    if error is not None:
        table.add_column(f"devices for {percent(error)}", justify="right")
    for name, days in life.windows().items():
        for first in (True, False):
            cells = [percent(life.error(best, days, q, first=first)) for q in questions.values()]
            needed = "" if error is None or first else f"{devices_needed(life, days, error):,}"
            place = f"{name}, {'first' if first else 'last'}"
            table.add_row(place, _count(life.devices * best.per_device(days, first)), *cells, needed)
    show.out.print(table)
    if density is not None:
        errors = [
            f"{name} ±{in_unit(life.error(best, days), best.design.domain, reading, density)[_UNIT]:.3g}"
            for name, days in life.windows().items()
        ]
        show.out.print(f"  {asked(life.question)} in {reading.unit or 'its unit'}, last: {', '.join(errors)}")
    if all(life.error(best, days) >= NOTHING for days in life.windows().values()):
        show.out.print("±50% says nothing: take more devices, a larger budget or fewer values.")


def _heading(question: Question) -> str:
    if question.kind == "frequency":
        return "a value" if question.share is None else f"a value at {question.share:g}"
    if question.kind == "quantile":
        return "median" if question.share == 0.5 else f"{question.share:g} quantile"
    if question.kind == "mean":
        return "mean, of the range"
    if question.width or question.ranges:
        return f"{question.width} bins" if question.width else "the ranges"
    return "any range"


def _policy(best: Spending) -> str:
    total = best.cap * best.epsilon
    allowed = f'"sum" {total:,}'
    if best.composition == "optimal":
        allowed += f' or "squares" {best.cap * best.epsilon**2:,}'
    return f'policy must allow rule "{best.rule}", "epsilon" {best.epsilon:,}, {allowed}'


def _count(reports: float) -> str:
    return f"{reports:,.0f}" if reports >= 10 else f"{reports:.2g}"


def after(checked: Sequence[PlanCheck | Unmeasured], written: Sequence[Path]) -> None:
    """Print what was measured, which files there are now, and what to do next."""
    if checked:
        _checked(checked)
    show.out.print()
    for path in written:
        show.out.print(f"wrote {path}")
    experiments = [path for path in written if path.suffix.lower() == ".toml"]
    todo = (
        f"hushmote experiment show {experiments[0]}"
        if experiments
        else "add --output NAME.toml to write the experiment's file"
    )
    show.out.print(f"next: {todo}")


def _checked(checked: Sequence[PlanCheck | Unmeasured]) -> None:
    from ...studies.plan_check import FALSE_ALARM, Unmeasured

    show.out.print("\nchecked with simulated fleets, against the population drawn from", style="bold")
    headings = ("window", "population", "fleets", "reports", "predicted", "measured", "agrees")
    table = tables.table(None, headings, 2)
    notes: list[str] = []
    for row in checked:
        name = f"{row.name}: " if row.name else ""
        if isinstance(row, Unmeasured):
            notes.append(f"{name}not measured: {row.why}")
            continue
        table.add_row(
            row.name,
            row.population,
            f"{row.fleets:,}",
            _count(row.reports),
            f"{row.predicted:.3%}",
            f"{row.measured:.3%} ({row.uncertainty:.3%})",
            "yes" if row.agrees else "no",
        )
        if row.why:
            notes.append(f"{name}{row.why}")
    if table.row_count:
        show.out.print(table)
        show.out.print("  half-widths; in brackets the standard error of what was measured; a right plan")
        show.out.print(f"  is said not to agree in 1 of {1 / FALSE_ALARM:,.0f} rows")
    for note in notes:
        show.out.print(f"  {note}")
