"""An adversary's view of many releases of one value, and how many releases a budget allows.

Everything is computed exactly rather than simulated. The value is yes or no, and each release is randomized
response with ε in nats: every ε-LDP release of two values, including Laplace noise, can be derived from it,
and so does not reveal more. Gaussian noise is left out, because it does not have an ε without a δ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field
from scipy import special

from ..server.accounting import (
    AccountingError,
    Advanced,
    Basic,
    Optimal,
    ZcdpFilter,
    optimal_delta,
    optimal_total,
)
from ..server.accounting.errors import positive_number, probability, whole_number
from ..server.accounting.theorem import largest
from ..server.epsilon import MICRO, micro_nats
from .frame import Row, RunContext, StudyParameters, StudyResult, table

EPSILONS = (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
RELEASES = (3, 3_000)
# ε in micro-nats, k, δ': the example whose printed answer is not the theorem's
TUTORIAL = (500_000, 350, 0.1)
FEW = 3


@dataclass(frozen=True)
class View:
    """An adversary's view of one board after a number of releases.

    Attributes:
        given_yes: Probabilities of seeing yes 0, 1, ... `releases` times if the board's value is yes, shape
            (releases + 1,); in reverse order, the probabilities if it is no.
        right: Probability that the best guess of the value is right if both are equally likely beforehand; in
            [0.5, 1].
    """

    releases: int
    given_yes: np.ndarray
    right: float


def view(epsilon: int, releases: int) -> View:
    """Return the view of one board after `releases` releases (1 to 100,000) of epsilon micro-nats each."""
    nats = whole_number("epsilon in micro-nats", epsilon) / MICRO
    n = whole_number("the number of releases", releases, high=100_000)
    yes_counts = np.arange(n + 1)
    # Compute binomial probabilities directly, because loading scipy.stats takes as long as everything here.
    log_binomials = (
        special.gammaln(n + 1) - special.gammaln(yes_counts + 1) - special.gammaln(n - yes_counts + 1)
    )
    given_yes = np.exp(
        log_binomials + yes_counts * special.log_expit(nats) + (n - yes_counts) * special.log_expit(-nats)
    )
    return View(n, given_yes, 0.5 + 0.25 * float(np.abs(given_yes - given_yes[::-1]).sum()))


def until_spent(epsilon: int, total: float, delta: float) -> Row:
    """Return how many reports of epsilon micro-nats fit in a total, by each theorem and the misprint."""
    rules = (Basic(total), ZcdpFilter(total, delta), Optimal(total, delta), Advanced(total, delta))
    counts = {rule.name: rule.most_reports(epsilon) or 0 for rule in rules}
    wrong = largest(lambda k: misprint(epsilon, k, delta) <= total, 1 << 27)
    return {"epsilon": epsilon / MICRO, **counts, "misprint": wrong}


def advanced(epsilon: int, reports: int, delta: float) -> float:
    """Return the cost in nats of reports by advanced composition: ε sqrt(2k ln(1/δ)) + kε(e^ε - 1)."""
    return Advanced(1.0, delta).spent([epsilon] * reports).epsilon


def misprint(epsilon: int, reports: int, delta: float) -> float:
    """Return the cost by a formula that was printed without the ε before its root, and is not valid."""
    nats = epsilon / MICRO
    root = math.sqrt(2 * reports * math.log(1 / probability("delta", delta, zero=False)))
    return root + reports * nats * math.expm1(nats)


def tutorial() -> Row:
    """Return a tutorial's example: the cost in nats of k and of 3 reports, by theorem and misprint."""
    micro, reports, delta = TUTORIAL
    row: Row = {"epsilon": micro / MICRO, "reports": reports, "delta": delta}
    formulas = {"advanced": advanced, "misprint": misprint}
    row |= {name: cost(micro, reports, delta) for name, cost in formulas.items()}
    row["few"] = {name: cost(micro, FEW, delta) for name, cost in formulas.items()}
    return row | {"pays": {name: _break_even(cost, micro, delta) for name, cost in formulas.items()}}


def _break_even(cost: Callable[[int, int, float], float], epsilon: int, delta: float) -> int:
    """Return the lowest number of reports for which a formula costs less than the sum."""
    return 1 + largest(lambda k: cost(epsilon, k, delta) >= k * epsilon / MICRO, 1 << 20)


# --- Parameters and output ------------------------------------------------------------------------


class CompositionParameters(StudyParameters):
    """The releases and the budget that they use."""

    epsilon: float = Field(0.1, description="ε of each release that an adversary sees, in nats.")
    total: float = Field(10.0, description="Budget of all reports together, in nats.")
    delta: float = Field(1e-6, description="δ of (total, δ)-LDP, above 0.")


def run(parameters: CompositionParameters, context: RunContext) -> StudyResult:
    """Run the study."""
    micro, total, delta = micro_nats(parameters.epsilon, AccountingError), parameters.total, parameters.delta
    nats, views = micro / MICRO, [view(micro, n) for n in RELEASES]
    view_rows: list[Row] = [
        {"releases": v.releases, "sum": nats * v.releases, "right": v.right} for v in views
    ]
    spent = [until_spent(e, total, delta) for e in EPSILONS]
    example = tutorial()
    json = {"total": total, "delta": delta, "views": view_rows, "spent": spent, "tutorial": example}
    total_nats = positive_number("the total", total)
    costs: list[Row] = [
        {"what": f"k = {k} reports cost", "basic": f"{k * example['epsilon']:g}"}
        | {name: f"{of[name]:.3f}" for name in example["pays"]}
        for k, of in ((FEW, example["few"]), (example["reports"], example))
    ]
    costs.append({"what": "cheaper than basic from k =", "basic": ""} | example["pays"])
    output = (
        table(
            f"what an adversary sees, ε = {nats:g} per release",
            f"releases | Σε | best guess is right | δ at a total of {total:g}",
            "{releases:,} | {sum:g} | {percent:.4g}% | {fail:.3g}",
            [
                row
                | {"percent": 100 * row["right"], "fail": optimal_delta(nats, row["releases"], total_nats)}
                for row in view_rows
            ],
            (),
        ),
        table(
            f"\nreports until the budget is spent: total {total:g}, δ = {delta:g}",
            "ε per report | basic | zCDP filter | optimal | advanced | misprint",
            "{epsilon:g} | {basic:,} | {zcdp:,} | {optimal:,} | {advanced:,} | {misprint:,}",
            spent,
            (),
        ),
        "",
        "basic is ε-LDP, the next three are (ε, δ)-LDP, the misprint is no theorem: it is advanced "
        "composition as a tutorial prints it, without the factor ε before the root. What its numbers should "
        "be:",
        table(
            f"\nthe tutorial's example: ε = {example['epsilon']:g}, δ' = {example['delta']:g}",
            " | basic | theorem | misprint",
            "{what} | {basic} | {advanced} | {misprint}",
            costs,
        ),
    )
    return StudyResult(json, output, (nats, views, json))


# --- The figure -----------------------------------------------------------------------------------


def draw(path: Path, figure_data: tuple[float, list[View], Row]) -> None:
    """Plot the views, the reports until the budget is spent, and the tutorial's example."""
    from .drawing import COLOURS, figure, panel

    nats, views, json = figure_data
    lines = {
        "basic": ("basic: ε-LDP", COLOURS[0], "-"),
        "zcdp": ("zCDP filter: (ε, δ)-LDP", COLOURS[1], "-"),
        "optimal": ("optimal: (ε, δ)-LDP", COLOURS[2], "-"),
        "advanced": ("advanced: (ε, δ)-LDP", COLOURS[3], "-"),
        "misprint": ("misprint: no theorem", COLOURS[6], ":"),
    }
    with figure(path, columns=2, rows=2) as (_, (*view_axes, third, last)):
        for axes, view in zip(view_axes, views, strict=True):
            yes_counts = np.arange(view.releases + 1)
            for probabilities, colour, name, shift in (
                (view.given_yes[::-1], COLOURS[1], "no", -0.2),
                (view.given_yes, COLOURS[0], "yes", 0.2),
            ):
                label = f"the value is {name}"
                if len(yes_counts) <= 31:
                    axes.bar(yes_counts + shift, probabilities, 0.4, color=colour, label=label)
                    axes.set_xticks(yes_counts)
                else:
                    visible = probabilities > probabilities.max() * 1e-4
                    axes.plot(yes_counts[visible], probabilities[visible], color=colour, label=label, lw=1.9)
                    axes.fill_between(yes_counts[visible], probabilities[visible], color=colour, alpha=0.25)
            axes.set_ylim(0, 1.35 * float(view.given_yes.max()))
            title = f"{view.releases:,} releases of ε = {nats:g}"
            note = f"the best guess of the value is right in {100 * view.right:.2f}% of cases"
            words = title, note, "number of times an adversary sees yes", "probability"
            panel(axes, words, loc="upper right", ncols=2)
        epsilons = [row["epsilon"] for row in json["spent"]]
        for name, (label, colour, line) in lines.items():
            counts = [row[name] or math.nan for row in json["spent"]]
            third.plot(epsilons, counts, line, marker="o", ms=4, color=colour, label=label, lw=1.8)
        note = f"total {json['total']:g}, δ = {json['delta']:g}"
        words = "Reports until the budget is spent", note, "ε of each report, nats", "reports"
        panel(third, words, "xy", "{:g}", "{:,g}", loc="best")
        epsilon, most, delta = TUTORIAL
        reports = np.unique(np.linspace(1, most, 50).astype(int)).tolist()
        costs: dict[str, Callable[[int], float]] = {
            "basic": lambda k: epsilon / MICRO * k,
            "optimal": lambda k: optimal_total(epsilon / MICRO, k, delta),
            "advanced": lambda k: advanced(epsilon, k, delta),
            "misprint": lambda k: misprint(epsilon, k, delta),
        }
        for name, cost in costs.items():
            label, colour, line = lines[name]
            spent = list(map(cost, reports))
            last.plot(reports, spent, line, color=colour, label=label, lw=1.8)
            if name in ("advanced", "misprint"):
                last.annotate(f"{spent[-1]:.2f}", (most, spent[-1]), (5, -4), textcoords="offset points")
        last.set_xlim(right=1.17 * most)
        note = f"a tutorial's example: ε = {epsilon / MICRO:g}, δ = {delta:g}"
        panel(last, ("What k reports cost", note, "number of reports k", "spent, nats"), loc="best")
