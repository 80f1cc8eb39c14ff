"""`hushmote study composition`: what releases of one value give away, and when a budget is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...server.accounting import AccountingError
from ...server.answers import tables as show
from ...server.epsilon import MICRO, micro_nats
from ...simulator.studies.composition import TUTORIAL, Composition, fails, study
from ..options import AsJson, print_json


def composition_command(
    epsilon: Annotated[float, typer.Option(help="ε of each release that an adversary sees, nats.")] = 0.1,
    total: Annotated[float, typer.Option(help="Budget of all reports together, nats.")] = 10.0,
    delta: Annotated[float, typer.Option(help="Chance that the budget fails, above 0.")] = 1e-6,
    plot: Annotated[Path | None, typer.Option(help="Write the figure (PNG, PDF or SVG).")] = None,
    as_json: AsJson = False,
) -> None:
    """An adversary's view of 3 and of 3,000 releases; how many reports there are until a budget is spent."""
    if plot and plot.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise AccountingError(f"a plot is a .png, .pdf or .svg file, not {plot}")
    composition = study(micro_nats(epsilon, AccountingError), total, delta)
    if plot:
        from ...simulator.studies.composition_plot import (
            plot_composition,  # matplotlib takes a second to load
        )

        plot_composition(plot, composition)
    if as_json:
        print_json(composition.to_dict())
        return
    _show(composition)
    if plot:
        show.out.print(f"plot: {plot}", markup=False)


def _show(composition: Composition) -> None:
    epsilon = composition.views[0].epsilon / MICRO
    table = show.table(f"what an adversary sees, ε = {epsilon:g} per release")
    for heading in ("releases", "Σε", "best guess is right", f"δ at a total of {composition.total:g}"):
        table.add_column(heading, justify="right")
    for view in composition.views:
        delta = fails(view.epsilon, view.releases, composition.total)
        spent = view.epsilon / MICRO * view.releases
        table.add_row(f"{view.releases:,}", f"{spent:g}", f"{100 * view.right:.4g} %", f"{delta:.3g}")
    show.out.print(table)
    table = show.table(
        f"\nreports until the budget is spent: total {composition.total:g}, δ = {composition.delta:g}"
    )
    for heading in ("ε per report", "basic", "zCDP filter", "optimal", "advanced", "misprint"):
        table.add_column(heading, justify="right")
    for row in composition.spent:
        counts = (row.basic, row.zcdp, row.optimal, row.advanced, row.misprint)
        table.add_row(f"{row.epsilon / MICRO:g}", *(f"{x:,}" for x in counts))
    show.out.print(table)
    epsilon, reports, delta = TUTORIAL
    show.out.print(
        "\nbasic is ε-LDP, the next three are (ε, δ)-LDP, the misprint is no theorem: it is\n"
        "advanced composition as a tutorial prints it, without the factor ε before the\n"
        f"root. At ε = {epsilon / MICRO:g}, k = {reports}, δ' = {delta:g} it gives "
        f"{composition.misprint:.2f}; the theorem gives {composition.advanced:.2f}.",
        soft_wrap=True,
    )
