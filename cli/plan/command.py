"""`hushmote plan`: how many devices, which epsilon, how many values, what error; how to spend a lifetime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...server.answers import facts
from ...server.answers import tables as show
from ...server.planning.answer import PlanAnswer, answer
from ...server.planning.devices import Plan, PlanError
from ...server.words.numbers import expected
from .. import output, tables
from ..options import command, print_json
from ..progress import progress
from . import guided
from .options import EXPERIMENT, PlanOptions

if TYPE_CHECKING:  # the simulator takes a while to load
    from ...studies.plan_check import PlanCheck, Unmeasured


def _plan(options: PlanOptions) -> None:
    """Plan an experiment: five questions in words, or three of devices, ε, values and error.

    Without options it asks. Of devices, ε, values (--bins, --labels or --yes-no) and error, three give the
    fourth. With --lifetime, --horizon and --call instead of --epsilon: how to spend a lifetime budget, and
    what a day, a week and 30 days of the fleet will show.
    """
    if options.says_nothing:
        guided.plan(options)
        return
    if not 2 <= options.fleets <= 100_000:
        raise PlanError(f"--fleets must be from 2 to 100000, not {options.fleets}")
    if not options.check and options.workers is not None:
        raise PlanError("--workers is for the fleets of --check")
    paths = options.files()
    made = answer(options)
    checked = _measured(made, options) if options.check else []
    for path in paths:
        if path.suffix.lower() == EXPERIMENT:
            output.write(path, made.file(options.named(path)))
            continue
        from .plot import plot  # matplotlib takes a second to load

        plot(path, made.plan)
    if options.as_json:
        print_json(made.to_dict() | ({"check": [row.to_dict() for row in checked]} if checked else {}))
        return
    show.out.print(facts.printed(made.lines, made.facts, made.tables))
    if checked:
        _show(checked)
    show.out.print()
    for path in paths:
        show.out.print(f"wrote {path}")
    written = [path for path in paths if path.suffix.lower() == EXPERIMENT]
    add = "add --output NAME.toml to write the experiment's file"
    show.out.print(f"next: {f'hushmote experiment show {written[0]}' if written else add}")


plan_command = command(PlanOptions, _plan)


def _measured(made: PlanAnswer, options: PlanOptions) -> list[PlanCheck | Unmeasured]:
    """Draw the plan's fleets; a terminal sees how far that is."""
    import numpy as np

    from ...simulator.workers import workers
    from ...studies.plan_check import CheckRow, lifetime_rows, measure, plan_row

    plan, fleets = made.plan, options.fleets
    rows = [plan_row(plan, fleets)] if isinstance(plan, Plan) else lifetime_rows(plan, fleets)
    seeds = np.random.SeedSequence(options.seed).spawn(len(rows))
    total = sum(row.fleets for row in rows if isinstance(row, CheckRow))
    with workers(options.workers) as crew, progress("drawing fleets", total) as more:
        return [
            measure(row, seed, crew, more) if isinstance(row, CheckRow) else row
            for row, seed in zip(rows, seeds, strict=True)
        ]


def _show(checked: Sequence[PlanCheck | Unmeasured]) -> None:
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
            expected(row.reports),
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
