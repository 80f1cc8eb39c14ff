"""`hushmote plan`: how many devices, which epsilon, how many values, what error; how to spend a lifetime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...server.planning import experiment_file, sentences
from ...server.planning.devices import Plan, PlanError, error_of, solve
from ...server.planning.experiment_file import Reading
from ...server.planning.lifetime import LifetimePlan, plan_lifetime
from ...server.planning.second_epsilon import histogram, lifetime_histograms
from .. import output
from ..options import command, print_json
from ..progress import progress
from . import guided
from . import tables as plan_show
from .options import EXPERIMENT, PlanOptions

if TYPE_CHECKING:  # the simulator takes a while to load
    from ...studies.plan_check import CheckRow, PlanCheck, Unmeasured


def _plan(options: PlanOptions) -> None:
    """Plan an experiment: five questions in words, or three of devices, ε, values and error.

    Without options it asks. Of devices, ε, values (--bins, --labels or --yes-no) and error, three give the
    fourth. With --lifetime, --horizon and --call instead of --epsilon: how to spend a lifetime budget, and
    what a day, a week and 30 days of the fleet will show.
    """
    if options.says_nothing:
        guided.plan(options)
        return
    reading = options.reading()
    question = options.question(reading)
    density = options.devices_per_unit(reading, question)
    error = options.share_error(density, question)
    if not 2 <= options.fleets <= 100_000:
        raise PlanError(f"--fleets must be from 2 to 100000, not {options.fleets}")
    if not options.check and (options.worker_count is not None or options.dask is not None):
        raise PlanError("--workers and --dask are for the fleets of --check")
    paths = options.files(reading)
    if options.lifetime is None:
        options.check_no_lifetime()
        epsilon = options.epsilon_of_report(question, reading.domain)
        plan = solve(question, devices=options.devices, epsilon=epsilon, domain=reading.domain, error=error)
        _one_report(plan, reading, density, options, paths)
        return
    if options.epsilon is not None:
        raise PlanError("--lifetime finds the ε of a report itself: leave --epsilon out, or take --limit")
    budget, rhythm, most = options.lifetime_parts()
    if options.devices is None or reading.domain is None:
        raise PlanError("--lifetime needs --devices and one of --bins, --labels and --yes-no")
    if error is not None and not 0 < error < 0.5:
        raise PlanError(f"error must be {error_of(question)} between 0 and 0.5 (0.01 is ±1 %), not {error:g}")
    plan = plan_lifetime(question, options.devices, reading.domain, budget, rhythm, most)
    _life(plan, reading, density, error, options, paths)


plan_command = command(PlanOptions, _plan)


def _measured(rows: Sequence[CheckRow | Unmeasured], options: PlanOptions) -> list[PlanCheck | Unmeasured]:
    """Draw the rows' fleets; a terminal sees how far that is."""
    import numpy as np

    from ...simulator.workers import workers
    from ...studies.plan_check import CheckRow, measure

    seeds = np.random.SeedSequence(options.seed).spawn(len(rows))
    total = sum(row.fleets for row in rows if isinstance(row, CheckRow))
    with (
        workers(options.worker_count, options.dask) as crew,
        progress("drawing fleets", total) as more,
    ):
        return [
            measure(row, seed, crew, more) if isinstance(row, CheckRow) else row
            for row, seed in zip(rows, seeds, strict=True)
        ]


def _one_report(
    plan: Plan, reading: Reading, density: float | None, options: PlanOptions, paths: Sequence[Path]
) -> None:
    checked: list[PlanCheck | Unmeasured] = []
    if options.check:
        from ...studies import plan_check

        checked = _measured([plan_check.plan_row(plan, options.fleets)], options)
    seen = histogram(plan.design, plan.devices, 1, options.histogram_delta)
    for path in paths:
        if path.suffix.lower() != EXPERIMENT:
            from .plot import plot_plan  # matplotlib takes a second to load

            plot_plan(path, plan)
            continue
        output.write(path, experiment_file.of_one_report(plan, reading, options.named(path)))
    if options.as_json:
        result = plan.to_dict() | plan_show.in_unit(plan.error, plan.design.domain, reading, density)
        result["histogram"] = seen.to_dict() | {"wanted": options.histogram_epsilon}
        result["answer"] = sentences.one_report(plan, reading.yes_no).split("\n")
        print_json(result | ({"check": [c.to_dict() for c in checked]} if checked else {}))
        return
    plan_show.one_report(plan, reading, density, seen, options.histogram_epsilon)
    plan_show.after(checked, paths)


def _life(
    life: LifetimePlan,
    reading: Reading,
    density: float | None,
    error: float | None,
    options: PlanOptions,
    paths: Sequence[Path],
) -> None:
    checked: list[PlanCheck | Unmeasured] = []
    if options.check:
        from ...studies import plan_check

        checked = _measured(plan_check.lifetime_rows(life, options.fleets), options)
    seen_by_window = lifetime_histograms(life)
    for path in paths:
        if path.suffix.lower() == EXPERIMENT:
            output.write(path, experiment_file.of_life(life, reading, options.named(path)))
            continue
        from .plot import plot_lifetime  # matplotlib takes a second to load

        plot_lifetime(path, life)
    if options.as_json:
        result = life.to_dict()
        result["histograms"] = [{"window": name, **seen.to_dict()} for name, seen in seen_by_window.items()]
        if error is not None:
            result["devices_for_error"] = {
                name: plan_show.devices_needed(life, days, error) for name, days in life.windows().items()
            }
        result["answer"] = sentences.lifetime(life, error, reading.yes_no).split("\n")
        print_json(result | ({"check": [c.to_dict() for c in checked]} if checked else {}))
        return
    plan_show.lifetime(life, reading, density, error, seen_by_window)
    plan_show.after(checked, paths)
