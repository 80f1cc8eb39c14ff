"""`hushmote plan`: how many devices, which epsilon, how many values, what error; how to spend a lifetime."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ...server.epsilon import MICRO
from ...server.planning import experiment_file as plan_file
from ...server.planning.devices import Plan, PlanError, solve
from ...server.planning.experiment_file import Reading
from ...server.planning.lifetime import DEFAULT_LIMIT, LifetimePlan, plan_lifetime
from ..options import AsJson, print_json
from . import tables as plan_show
from .options import For, LifetimeOptions, Output, QuestionOptions, ReadingOptions, micro


def plan_command(
    devices: Annotated[int | None, typer.Option(help="Number of devices.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy of one report, nats: 0.001 to 16.")] = None,
    bins: Annotated[int | None, typer.Option(help="Bins of a number.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="Labels of a choice: a,b,c. 'other' comes on top.")
    ] = None,
    yes_no: Annotated[bool, typer.Option("--yes-no", help="The reading is yes or no.")] = False,
    error: Annotated[
        float | None,
        typer.Option(help="Wanted half-width of the 95 % interval, share of devices: 0.01 is ±1 %."),
    ] = None,
    unit_error: Annotated[
        float | None, typer.Option(help="The same for a quantile, in the reading's unit; see --density.")
    ] = None,
    kind: Annotated[
        For | None, typer.Option("--for", help="What the error is of.", show_default=False)
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            help="Share that the value or range holds; without it the worst one.", show_default=False
        ),
    ] = None,
    width: Annotated[int | None, typer.Option(help="Ranges of n bins; without it all ranges.")] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", help="low:high in the unit, or in bins without --low; either may be empty."),
    ] = None,
    quantile: Annotated[float | None, typer.Option(help="Which quantile.", show_default="0.5")] = None,
    low: Annotated[float | None, typer.Option(help="Least reading of a number.")] = None,
    high: Annotated[float | None, typer.Option(help="Largest reading of a number.")] = None,
    unit: Annotated[str, typer.Option(help="The reading's unit, for what is printed.")] = "",
    density: Annotated[
        float | None,
        typer.Option(
            help="Share of devices for each unit around the quantile; else evenly from low to high."
        ),
    ] = None,
    lifetime: Annotated[
        float | None, typer.Option(help="Plan a life: the ε that all of a board's reports may cost.")
    ] = None,
    delta: Annotated[float, typer.Option(help="With --lifetime: the δ that goes with it.")] = 0.0,
    horizon: Annotated[str | None, typer.Option(help="With --lifetime: how long, such as 2y.")] = None,
    call: Annotated[
        str | None, typer.Option(help="With --lifetime: time between calls to report(), such as 10min.")
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            help="With --lifetime: most ε that the boards' policy allows one report.",
            show_default=f"{DEFAULT_LIMIT / MICRO:g}",
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Draw fleets and measure the plan's errors.")
    ] = False,
    fleets: Annotated[int, typer.Option(help="With --check: fleets to draw, at most.")] = 200,
    seed: Annotated[int | None, typer.Option(help="With --check: repeat a run exactly.", min=0)] = None,
    write: Annotated[Path | None, typer.Option(help="Write the experiment as a TOML file.")] = None,
    name: Annotated[str | None, typer.Option(help="With --write: the experiment's name.")] = None,
    purpose: Annotated[str | None, typer.Option(help="With --write: why it is asked.")] = None,
    owner: Annotated[str, typer.Option(help="With --write: who answers for it.")] = "owner@example.org",
    plot: Annotated[Path | None, typer.Option(help="Write a plot (PNG, PDF or SVG).")] = None,
    as_json: AsJson = False,
) -> None:
    """Give three of devices, ε, domain (--bins, --labels or --yes-no) and error; get the fourth.

    With --lifetime, --horizon and --call instead of --epsilon: how to spend a lifetime budget, and what a
    day, a week and 30 days of the fleet will show.
    """
    reading = ReadingOptions(bins, labels, yes_no, low, high, unit).reading()
    asked = QuestionOptions(kind, share, width, tuple(ranges or ()), quantile, density)
    question = asked.question(reading)
    density = asked.devices_per_unit(reading, question)
    if unit_error is not None:
        if error is not None or question.kind != "quantile" or density is None:
            raise PlanError(
                "--unit-error is for a quantile, in the place of --error, with --density or --low and --high"
            )
        error = unit_error * density
        if not 0 < error < 0.5:
            raise PlanError(
                f"--unit-error {unit_error:g} is {error:.3g} of the devices, {density:.3g} of them a unit:"
                " it must be between 0 and 0.5"
            )
    if not 2 <= fleets <= 100_000:
        raise PlanError(f"--fleets must be from 2 to 100000, not {fleets}")
    if plot and plot.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise PlanError(f"a plot is a .png, .pdf or .svg file, not {plot}")
    output = Output(fleets if check else 0, seed, write, name, purpose, owner, plot, as_json)
    life = LifetimeOptions(lifetime, delta, horizon, call, limit)
    if lifetime is None:
        life.check_absent()
        plan = solve(
            question, devices=devices, epsilon=micro("epsilon", epsilon), domain=reading.domain, error=error
        )
        _one_report(plan, reading, density, output)
        return
    if epsilon is not None:
        raise PlanError("--lifetime finds the ε of a report itself: leave --epsilon out, or take --limit")
    budget, rhythm, most = life.parsed()
    if devices is None or reading.domain is None:
        raise PlanError("--lifetime needs --devices and one of --bins, --labels and --yes-no")
    if error is not None and not 0 < error < 0.5:
        raise PlanError(f"error must be a share of devices between 0 and 0.5 (0.01 is ±1 %), not {error:g}")
    plan = plan_lifetime(question, devices, reading.domain, budget, rhythm, most)
    _life(plan, reading, density, error, output)


def _one_report(plan: Plan, reading: Reading, density: float | None, output: Output) -> None:
    checked = []
    if output.fleets:
        from ...simulator import plan_check

        checked = plan_check.check_plan(plan, output.fleets, output.seed)
    if output.write:
        said = f"{plan_show.asked(plan.question)}, to ±{plan.error:.2%} with {plan.devices:,} devices"
        terms = output.terms(said, 365, 1, "sum", plan_file.nats(plan.design.epsilon))
        sized = reading if reading.domain else dataclasses.replace(reading, bins=plan.design.domain)
        plan_file.write(output.write, plan_file.toml(sized, plan.design, terms))
    if output.plot:
        from .plot import plot_plan

        plot_plan(output.plot, plan)
    if output.as_json:
        result = plan.to_dict() | plan_show.in_unit(plan.error, plan.design.domain, reading, density)
        print_json(result | ({"check": [c.to_dict() for c in checked]} if checked else {}))
        return
    plan_show.one_report(plan, reading, density)
    plan_show.after(checked, output.write, output.plot)


def _life(
    life: LifetimePlan, reading: Reading, density: float | None, error: float | None, output: Output
) -> None:
    checked = []
    if output.fleets:
        from ...simulator import plan_check

        checked = plan_check.check_lifetime(life, output.fleets, output.seed)
    best = life.best
    if output.write:
        length = plan_show.length(life.rhythm.horizon_s)
        said = f"{plan_show.asked(life.question)}, {life.devices:,} devices, for {length}"
        cap = plan_file.nats(best.cap * best.epsilon) if best.rule == "sum" else str(best.cap)
        terms = output.terms(said, life.rhythm.days, best.every, best.rule, cap)
        plan_file.write(output.write, plan_file.toml(reading, best.design, terms))
    if output.plot:
        from .plot import plot_lifetime

        plot_lifetime(output.plot, life)
    if output.as_json:
        result = life.to_dict()
        if error is not None:
            result["devices_for_error"] = {
                name: plan_show.devices_needed(life, days, error) for name, days in life.windows().items()
            }
        print_json(result | ({"check": [c.to_dict() for c in checked]} if checked else {}))
        return
    plan_show.lifetime(life, reading, density, error)
    plan_show.after(checked, output.write, output.plot)
