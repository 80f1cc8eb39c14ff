"""`hushmote plan`: how many devices, which epsilon, how many values, what error; how to spend a lifetime."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ...server.answers import tables as show
from ...server.planning import experiment_file as plan_file
from ...server.planning.devices import Plan, PlanError, solve
from ...server.planning.experiment_file import Reading
from ...server.planning.lifetime import LifetimePlan, plan_lifetime
from ...server.planning.second_epsilon import histogram, lifetime_histograms
from ..options import check_picture, command, print_json
from . import tables as plan_show
from .options import PlanOptions

if TYPE_CHECKING:  # the simulator takes a while to load
    from ...simulator.plan_check import CheckRow, PlanCheck, Unmeasured


def _plan(options: PlanOptions) -> None:
    """Give three of devices, ε, domain (--bins, --labels or --yes-no) and error; get the fourth.

    With --lifetime, --horizon and --call instead of --epsilon: how to spend a lifetime budget, and what a
    day, a week and 30 days of the fleet will show.
    """
    reading = options.reading()
    question = options.question(reading)
    density = options.devices_per_unit(reading, question)
    error = options.share_error(density, question)
    if not 2 <= options.fleets <= 100_000:
        raise PlanError(f"--fleets must be from 2 to 100000, not {options.fleets}")
    check_picture(options.plot, PlanError)
    if options.lifetime is None:
        options.check_no_lifetime()
        epsilon = options.epsilon_of_report(question, reading.domain)
        plan = solve(question, devices=options.devices, epsilon=epsilon, domain=reading.domain, error=error)
        _one_report(plan, reading, density, options)
        return
    if options.epsilon is not None:
        raise PlanError("--lifetime finds the ε of a report itself: leave --epsilon out, or take --limit")
    budget, rhythm, most = options.lifetime_parts()
    if options.devices is None or reading.domain is None:
        raise PlanError("--lifetime needs --devices and one of --bins, --labels and --yes-no")
    if error is not None and not 0 < error < 0.5:
        raise PlanError(f"error must be a share of devices between 0 and 0.5 (0.01 is ±1 %), not {error:g}")
    plan = plan_lifetime(question, options.devices, reading.domain, budget, rhythm, most)
    _life(plan, reading, density, error, options)


plan_command = command(PlanOptions, _plan)


def _measured(rows: Sequence[CheckRow | Unmeasured], options: PlanOptions) -> list[PlanCheck | Unmeasured]:
    """Draw the rows' fleets; a terminal sees how far that is."""
    import numpy as np

    from ...simulator import plan_check

    rng = np.random.default_rng(options.seed)
    quiet = options.as_json or not show.err.is_terminal
    columns = (TextColumn("{task.description}"), BarColumn(40), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=show.err, transient=True, disable=quiet) as progress:
        total = sum(row.fleets for row in rows if isinstance(row, plan_check.CheckRow))
        task = progress.add_task("drawing fleets", total=total)
        return [
            plan_check.measure(row, rng, lambda n: progress.advance(task, n))
            if isinstance(row, plan_check.CheckRow)
            else row
            for row in rows
        ]


def _one_report(plan: Plan, reading: Reading, density: float | None, options: PlanOptions) -> None:
    checked: list[PlanCheck | Unmeasured] = []
    if options.check:
        from ...simulator import plan_check

        checked = _measured([plan_check.plan_row(plan, options.fleets)], options)
    if options.write:
        said = f"{plan_show.asked(plan.question)}, to ±{plan.error:.2%} with {plan.devices:,} devices"
        terms = options.terms(said, 365, 1, "sum", plan_file.nats(plan.design.epsilon))
        sized = reading if reading.domain else dataclasses.replace(reading, bins=plan.design.domain)
        plan_file.write(options.write, plan_file.toml(sized, plan.design, terms))
    seen = histogram(plan.design, plan.devices, 1, options.histogram_delta)
    if options.plot:
        from .plot import plot_plan

        plot_plan(options.plot, plan)
    if options.as_json:
        result = plan.to_dict() | plan_show.in_unit(plan.error, plan.design.domain, reading, density)
        result["histogram"] = seen.to_dict() | {"wanted": options.histogram_epsilon}
        print_json(result | ({"check": [c.to_dict() for c in checked]} if checked else {}))
        return
    plan_show.one_report(plan, reading, density, seen, options.histogram_epsilon)
    plan_show.after(checked, options.write, options.plot)


def _life(
    life: LifetimePlan, reading: Reading, density: float | None, error: float | None, options: PlanOptions
) -> None:
    checked: list[PlanCheck | Unmeasured] = []
    if options.check:
        from ...simulator import plan_check

        checked = _measured(plan_check.lifetime_rows(life, options.fleets), options)
    best = life.best
    if options.write:
        length = plan_show.length(life.rhythm.horizon_s)
        said = f"{plan_show.asked(life.question)}, {life.devices:,} devices, for {length}"
        cap = plan_file.nats(best.cap * best.epsilon) if best.rule == "sum" else str(best.cap)
        terms = options.terms(said, life.rhythm.days, best.every, best.rule, cap)
        plan_file.write(options.write, plan_file.toml(reading, best.design, terms))
    seen_by_window = lifetime_histograms(life)
    if options.plot:
        from .plot import plot_lifetime

        plot_lifetime(options.plot, life)
    if options.as_json:
        result = life.to_dict()
        result["histograms"] = [{"window": name, **seen.to_dict()} for name, seen in seen_by_window.items()]
        if error is not None:
            result["devices_for_error"] = {
                name: plan_show.devices_needed(life, days, error) for name, days in life.windows().items()
            }
        print_json(result | ({"check": [c.to_dict() for c in checked]} if checked else {}))
        return
    plan_show.lifetime(life, reading, density, error, seen_by_window)
    plan_show.after(checked, options.write, options.plot)
