"""`hushmote budget majority`: the majority rule's raw curve and its envelope, side by side."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ...server.accounting import majority_envelope, majority_epsilon, optimal_delta
from ...server.accounting.errors import positive, whole
from ...server.accounting.theorem import MOST_REPORTS
from ...server.answers import tables as show
from ...server.experiments import words
from .. import tables
from ..options import AsJson, print_json


def majority(
    total: Annotated[float, typer.Option(help="One report at this ε tells the bit as well, nats.")],
    reports: Annotated[int, typer.Option(help="Number of reports that vote.")],
    as_json: AsJson = False,
) -> None:
    """The ε of each report by the majority rule, which is not LDP: its raw curve and the envelope."""
    positive("the total", total)
    n = whole("the number of reports", reports, high=MOST_REPORTS - 1)
    rows = [_row(total, k) for k in range(max(1, n - 1), n + 2)]
    if as_json:
        print_json({"total": total, "reports": n, "rows": rows})
        return
    (asked,) = (row for row in rows if row["reports"] == n)
    show.out.print(
        f"This is not local differential privacy: {words.reports(n)} of ε = {asked['envelope']:.4f} tell one "
        f"fixed bit, by a vote, no better than 1 report of ε = {total:g}. As LDP they are Σε = "
        f"{asked['sum']:,.6g}."
    )
    show.out.print()
    title = f"ε of each report by the majority rule, total {total:g}: not LDP"
    table = tables.table(title, ("reports", "raw curve", "envelope", "Σε at the envelope", "δ at the total"))
    for row in rows:
        table.add_row(
            f"{row['reports']:,}",
            f"{row['raw']:.4f}",
            f"{row['envelope']:.4f}",
            f"{row['sum']:,.6g}",
            f"{row['delta']:.3g}",
        )
    show.out.print(table)
    show.out.print(
        "The raw curve lets the attacker win every tie, so it dips at even numbers. More reports never "
        "harm an attacker: the envelope, the largest ε of as many reports or more, is as valid and falls "
        "with their number. Both are about guessing one fixed bit by a vote. Taken as LDP, the reports at "
        "the envelope are Σε-LDP, and (total, δ)-LDP with the δ of the last column and no smaller one."
    )


def _row(total: float, reports: int) -> dict[str, Any]:
    envelope = majority_envelope(reports, total)
    return {
        "reports": reports,
        "raw": majority_epsilon(reports, total),
        "envelope": envelope,
        "sum": envelope * reports,
        "delta": optimal_delta(envelope, reports, total),
    }
