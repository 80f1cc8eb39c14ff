"""`hushmote budget compose`: what a list of releases of different ε, some with a δ, is together."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from ...server.accounting import AccountingError, ComposedRow, History, Kind, ReportCost
from ...server.accounting import compose as composed
from ...server.accounting.compare import TITLES
from ...server.answers import tables as show
from ...server.epsilon import MICRO, micro_nats
from ...server.errors import UsageError, refusing
from .. import tables
from ..options import AsJson, print_json
from ..output import PICTURES, Force, Pictures, checked
from . import answers


def compose(
    releases: Annotated[
        list[str] | None,
        typer.Argument(help="EPSILON[:DELTA][xCOUNT], in order: 0.5x1000 1 0.5:0.01x20.", show_default=False),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="What a theorem may add to the releases' own δ; 0: nothing.")
    ] = 1e-6,
    file: Annotated[
        Path | None,
        typer.Option("--input", help="Releases from a .csv file: columns epsilon, delta, count."),
    ] = None,
    output: Pictures = None,
    force: Force = False,
    everything: Annotated[
        bool, typer.Option("--all", help="List the theorems that do not hold here, too; JSON always does.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """What releases of different ε, pure or with a δ, are together under every theorem."""
    paths = checked(output, force, *PICTURES)
    runs = [release(text) for text in releases or ()] + (_read(file) if file else [])
    if not runs:
        raise UsageError("say what was released: hushmote budget compose 0.5x1000 1x1000 0.5:0.01x1000")
    history = History(tuple(runs))
    rows = composed(history, delta)
    for path in paths:
        from .compose_plot import plot_composed  # matplotlib takes a second to load

        plot_composed(path, history, delta)
    if as_json:
        print_json(_plain(history, rows))
        return
    _show(history, rows, everything)
    for path in paths:
        show.out.print(f"wrote {path}")


def release(text: str) -> tuple[ReportCost, int]:
    """Releases of one kind, EPSILON[:DELTA][xCOUNT] with nats; UsageError where it is not that."""
    head, cross, count = text.replace("×", "x").partition("x")
    epsilon, colon, delta = head.partition(":")
    try:
        return _run(float(epsilon), float(delta) if colon else 0.0, int(count) if cross else 1)
    except ValueError:
        raise UsageError(
            f"a release is EPSILON[:DELTA][xCOUNT], as 0.5, 0.5:0.01 or 0.5:0.01x1000, not {text}"
        ) from None


def _read(file: Path) -> list[tuple[ReportCost, int]]:
    runs: list[tuple[ReportCost, int]] = []
    with refusing(UsageError, f"read {file}"), file.open(encoding="utf-8-sig", newline="") as lines:
        rows = csv.DictReader(lines)
        if "epsilon" not in (rows.fieldnames or ()):
            raise UsageError(f"{file} needs a column epsilon, and may have delta and count")
        for row in rows:
            try:
                count = int(row.get("count") or 1)
                runs.append(_run(float(row["epsilon"]), float(row.get("delta") or 0), count))
            except (ValueError, TypeError):
                raise UsageError(
                    f"{file}, line {rows.line_num}: epsilon, delta and count are numbers"
                ) from None
    return runs


def _run(epsilon: float, delta: float, count: int) -> tuple[ReportCost, int]:
    if count < 1:
        raise UsageError(f"the number of releases is a whole number from 1 up, not {count}")
    return ReportCost(micro_nats(epsilon, AccountingError), delta), count


def _plain(history: History, rows: list[ComposedRow]) -> dict[str, Any]:
    releases = [
        {"epsilon": cost.epsilon / MICRO, "delta": cost.delta, "count": n} for cost, n in history.runs
    ]
    return {
        "releases": releases,
        "count": history.count,
        "sum": history.sum / MICRO,
        "sum_delta": float(history.delta),
        "theorems": [row.to_dict() for row in rows],
    }


def _show(history: History, rows: list[ComposedRow], everything: bool) -> None:
    show.out.print(answers.composed(history, rows))
    own = f", Σδ = {float(history.delta):g}" if history.delta else ""
    title = f"{history.count:,} releases, Σε = {history.sum / MICRO:,g}{own}: together they are"
    table = tables.table(title, ("theorem", "ε", "δ", "each ε is"), 0)
    table.columns[0].justify = table.columns[3].justify = "left"
    held = [row for row in rows if row.kind != Kind.ONE_BIT and not row.refused]
    for row in rows if everything else held:
        if row.kind == Kind.ONE_BIT:
            continue
        delta = "" if row.delta is None else "0" if row.delta == 0 else f"{row.delta:.7g}"
        table.add_row(TITLES.get(row.theorem, row.theorem), _nats(row.epsilon), delta, row.when)
    show.out.print()
    show.out.print(table)
    if everything:
        _left_out(rows)
    else:
        show.out.print(answers.left_out([row.theorem for row in rows if row not in held], "hold no LDP here"))
    show.out.print(_meaning(history))


def _left_out(rows: list[ComposedRow]) -> None:
    for row in rows:
        if row.refused:
            show.out.print(f"{TITLES.get(row.theorem, row.theorem)}: {row.refused}.")
        elif row.kind == Kind.ONE_BIT:
            total = "650 or more" if row.epsilon == math.inf else f"{row.epsilon:.6g}"
            show.out.print(
                f"majority: not LDP; a vote of all tells one fixed bit as one release at ε = {total} does."
            )


def _meaning(history: History) -> str:
    if history.delta:
        return (
            "(ε, δ): no event is likelier under one course of readings than e^ε times its chance under "
            "another, plus δ. The odds may pass e^ε more often than δ."
        )
    return (
        "zCDP, Rogers, advanced: the odds pass e^ε with probability at most δ. closed form, optimal: no "
        "event is likelier than e^ε times its chance under other readings, plus δ."
    )


def _nats(epsilon: float | None) -> str:
    return "not valid" if epsilon is None else f"{epsilon:,.6f}"
