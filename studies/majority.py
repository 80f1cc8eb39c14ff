"""The ε of each report by the majority rule, which is not LDP: its raw curve and its envelope."""

from pathlib import Path

import numpy as np
from pydantic import Field

from ..server.accounting import optimal_delta
from ..server.accounting.errors import positive_number, whole_number
from ..server.accounting.theorem import MAX_REPORTS
from ..server.words.numbers import counted
from .frame import RunContext, StudyParameters, StudyResult, table
from .majority_rule import majority_envelope, majority_epsilon


class MajorityParameters(StudyParameters):
    """A single report's ε and the number of voting reports that reveal the bit as well."""

    total: float = Field(2.0, description="One report at this ε tells the bit as well, nats.")
    reports: int = Field(20, description="Number of reports that vote.")


def run(parameters: MajorityParameters, context: RunContext) -> StudyResult:
    """Compute the curve and the envelope for one report fewer, the requested number, and one more."""
    total = positive_number("the total", parameters.total)
    n = whole_number("the number of reports", parameters.reports, high=MAX_REPORTS - 1)
    rows = []
    for reports in range(max(1, n - 1), n + 2):
        envelope = majority_envelope(reports, total)
        row = {"reports": reports, "raw": majority_epsilon(reports, total), "envelope": envelope}
        rows.append(row | {"sum": envelope * reports, "delta": optimal_delta(envelope, reports, total)})
    (requested,) = (row for row in rows if row["reports"] == n)
    output = (
        f"This is not local differential privacy: {counted(n)} of ε = {requested['envelope']:.4f} tell one "
        f"fixed bit, by a vote, no better than 1 report of ε = {total:g}. As LDP they are Σε = "
        f"{requested['sum']:,.6g}.",
        "",
        table(
            f"ε of each report by the majority rule, total {total:g}: not LDP",
            "reports | raw curve | envelope | Σε at the envelope | δ at the total",
            "{reports:,} | {raw:.4f} | {envelope:.4f} | {sum:,.6g} | {delta:.3g}",
            rows,
            (),
        ),
        "The raw curve lets the attacker win every tie, so it dips at even numbers. More reports never "
        "harm an attacker: the envelope, the largest ε of as many reports or more, is as valid and falls "
        "with their number. Both are about guessing one fixed bit by a vote. Taken as LDP, the reports at "
        "the envelope are Σε-LDP, and (total, δ)-LDP with the δ of the last column and no smaller one.",
    )
    return StudyResult({"total": total, "reports": n, "rows": rows}, output, (total, n))


def draw(path: Path, figure_data: tuple[float, int]) -> None:
    """Plot both curves, starting with 1 report."""
    from .drawing import COLOURS, add_heading, add_legend_below, figure, panel

    total, most = figure_data
    numbers = np.arange(1, whole_number("the number of reports", most, low=2) + 1)
    raw, envelope = majority_epsilon(numbers, total), majority_envelope(numbers, total)
    with figure(path) as (drawing, (axes,)):
        label = "envelope: the largest ε of as many or more"
        axes.plot(numbers, envelope, color=COLOURS[0], lw=1.9, label=label)
        axes.plot(numbers, raw, color=COLOURS[1], lw=1.1, label="raw curve: a tie counts for the attacker")
        axes.set_ylim(0, 1.15 * float(envelope[min(2, most - 1)]))  # one report may use the whole total
        note = f"n = {most:,}: raw {raw[-1]:.4f}, envelope {envelope[-1]:.4f}"
        panel(axes, (f"total {total:g}", note, "number of reports n", "ε of each report, nats"))
        add_heading(drawing, "Majority: guessing one fixed bit, not LDP")
        add_legend_below(drawing, axes, 2)
