"""`hushmote budget histogram`: ε of a report for a wanted ε of the histogram, and the other way round."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ...server.accounting import AccountingError
from ...server.answers import tables as show
from ...server.epsilon import check_epsilon, micro_nats
from ...server.errors import UsageError
from ...server.estimate.shuffled import LIMITS
from ...server.privacy.histogram import for_histogram, for_reports
from .. import tables
from ..options import AsJson, print_json
from . import answers


def histogram(
    devices: Annotated[int, typer.Option(help="Honest boards whose reports the histogram holds.")],
    epsilon: Annotated[
        float | None, typer.Option(help="ε of the histogram that is wanted, nats: gives ε of a report.")
    ] = None,
    local: Annotated[
        float | None, typer.Option(help="ε of a report, nats: gives ε of the histogram.")
    ] = None,
    domain: Annotated[int, typer.Option(help="Number of values; 2 is a yes or no.")] = 64,
    delta: Annotated[float, typer.Option(help="δ of the histogram's ε.")] = 1e-6,
    own: Annotated[int, typer.Option("--reports-each", help="Reports of each board in the histogram.")] = 1,
    as_json: AsJson = False,
) -> None:
    """What a histogram gives away to whoever sees histograms only, by mechanism, and what ε allows it."""
    if (epsilon is None) == (local is None):
        raise UsageError("give either --epsilon, of the histogram, or --local, of a report")
    if local is not None:
        micro = micro_nats(local, AccountingError)
        check_epsilon(micro, AccountingError, "ε of a report")
        rows = for_reports(domain, devices, micro, delta, own)
    else:
        assert epsilon is not None
        rows = for_histogram(domain, devices, epsilon, delta, own)
    if as_json:
        print_json({"delta": delta, "holds": LIMITS, "rows": [asdict(row) for row in rows]})
        return
    if local is not None:
        show.out.print(answers.for_reports(rows, devices, local, delta))
    else:
        show.out.print(answers.for_histogram(rows, devices, epsilon or 0, delta))
    show.out.print()
    each = "one report each" if own == 1 else f"{own:,} reports each"
    title = f"{devices:,} boards, {each}, {domain:,} values; δ = {delta:g}"
    show.out.print(title, style="bold")
    table = tables.table(None, ("mechanism", "ε of a report", "ε of the histogram"), 1)
    for row in rows:
        if row.local is None or row.histogram is None:
            table.add_row(row.described, "none", "")
        else:
            table.add_row(row.described, f"{row.local:.6f}", f"{row.histogram:.6f}")
    show.out.print(table)
    if any(row.local is None for row in rows):
        show.out.print("none: no ε of a report from 0.001 to 16 does, or the mechanism has no such ε.")
    show.out.print(
        f"The ε of the histogram holds {LIMITS}. It is for all these reports in one histogram: where windows "
        "are seen one by one, say how many reports a window has."
    )
