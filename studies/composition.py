"""An adversary's view of many releases of one value, and when they have spent a budget.

Everything is computed, nothing is drawn. The value is yes or no, and each release is randomized response with
ε in nats: every ε-LDP release of two values can be made from it, Laplace noise too, and so tells no more.
Gaussian noise has no ε without a δ, and so no place here.
"""

import math
from collections.abc import Callable
from dataclasses import astuple, dataclass
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
from ..server.accounting.errors import positive, probability, whole
from ..server.accounting.theorem import largest
from ..server.epsilon import MICRO, micro_nats
from ..server.plain import plain
from .frame import Running, StudyParameters, StudyResult, StudyTable

EPSILONS = (10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
RELEASES = (3, 3_000)
# ε in micro-nats, k, δ': the example whose printed answer is not the theorem's
TUTORIAL = (500_000, 350, 0.1)
FEW = 3


@dataclass(frozen=True)
class View:
    """What an adversary sees of one board after `releases` releases of ε = epsilon micro-nats each.

    given_yes, given_no: probabilities of seeing 0, 1, ... `releases` times yes, shape (releases + 1,), if the
    board's value is yes, or no. right: how often the best guess of the value is right, both values being as
    likely beforehand; in [0.5, 1].
    """

    epsilon: int
    releases: int
    given_yes: np.ndarray
    given_no: np.ndarray
    right: float


@dataclass(frozen=True)
class ReportsAllowed:
    """How many reports of ε = epsilon micro-nats a total allows by each theorem, and by the misprint."""

    epsilon: int
    basic: int
    zcdp: int
    optimal: int
    advanced: int
    misprint: int


@dataclass(frozen=True)
class TutorialStep:
    """A number of the tutorial's example by the theorem and by the misprint."""

    advanced: float
    misprint: float


@dataclass(frozen=True)
class Composition:
    """The study: views, reports until the budget (total nats, delta) is spent, the tutorial's example.

    advanced, misprint: nats that its k reports cost. few: nats that 3 of them cost. pays: from which k on
    the formula is below kε, what the reports cost by basic composition.
    """

    total: float
    delta: float
    views: tuple[View, ...]
    spent: tuple[ReportsAllowed, ...]
    advanced: float
    misprint: float
    few: TutorialStep
    pays: TutorialStep


def study(epsilon: int, total: float, delta: float) -> Composition:
    """Run the study. epsilon: micro-nats of a release; total: nats, > 0; delta: in (0, 1)."""
    micro, reports, slack = TUTORIAL
    return Composition(
        total,
        delta,
        tuple(view(epsilon, n) for n in RELEASES),
        tuple(until_spent(e, total, delta) for e in EPSILONS),
        advanced(micro, reports, slack),
        misprint(micro, reports, slack),
        TutorialStep(advanced(micro, FEW, slack), misprint(micro, FEW, slack)),
        TutorialStep(_pays(advanced, micro, slack), _pays(misprint, micro, slack)),
    )


def _pays(formula: Callable[[int, int, float], float], epsilon: int, delta: float) -> int:
    """The fewest reports that the formula makes cheaper than their sum; from there on it always does."""
    return 1 + largest(lambda k: formula(epsilon, k, delta) >= k * epsilon / MICRO, 1 << 20)


def view(epsilon: int, releases: int) -> View:
    """What is seen of one board after `releases` releases (1 to 100,000) of epsilon micro-nats each."""
    nats = whole("epsilon in micro-nats", epsilon) / MICRO
    n = whole("the number of releases", releases, high=100_000)
    seen = np.arange(n + 1)
    # Binomial probabilities; scipy.stats has them too and takes as long to load as all of this.
    ways = special.gammaln(n + 1) - special.gammaln(seen + 1) - special.gammaln(n - seen + 1)
    given_yes = np.exp(ways + seen * special.log_expit(nats) + (n - seen) * special.log_expit(-nats))
    given_no = given_yes[::-1]
    return View(epsilon, n, given_yes, given_no, 0.5 + 0.25 * float(np.abs(given_yes - given_no).sum()))


def until_spent(epsilon: int, total: float, delta: float) -> ReportsAllowed:
    """How many reports of epsilon micro-nats each until the total is spent."""
    rules = (Basic(total), ZcdpFilter(total, delta), Optimal(total, delta), Advanced(total, delta))
    counts = [rule.most_reports(epsilon) or 0 for rule in rules]
    wrong = largest(lambda k: misprint(epsilon, k, delta) <= total, 1 << 27)
    return ReportsAllowed(epsilon, *counts, misprint=wrong)


def advanced(epsilon: int, reports: int, delta: float) -> float:
    """Nats that `reports` reports cost by advanced composition: ε sqrt(2k ln(1/δ)) + kε(e^ε - 1)."""
    return Advanced(1.0, delta).spent([epsilon] * reports).epsilon


def misprint(epsilon: int, reports: int, delta: float) -> float:
    """The same formula without the ε before the root: not a theorem, kept to recognise its numbers."""
    nats = epsilon / MICRO
    root = math.sqrt(2 * reports * math.log(1 / probability("delta", delta, zero=False)))
    return root + reports * nats * math.expm1(nats)


# --- The study as it is asked and shown -----------------------------------------------------------


class CompositionParameters(StudyParameters):
    """Releases, and the budget that they spend."""

    epsilon: float = Field(0.1, description="ε of each release that an adversary sees, in nats.")
    total: float = Field(10.0, description="Budget of all reports together, in nats.")
    delta: float = Field(1e-6, description="δ of (total, δ)-LDP, above 0.")


def run(asked: CompositionParameters, running: Running) -> StudyResult:
    """Run the study and say what it found."""
    found = study(micro_nats(asked.epsilon, AccountingError), asked.total, asked.delta)
    return StudyResult(_plain(found), _shown(found), found)


def _plain(found: Composition) -> dict[str, object]:
    epsilon, reports, delta = TUTORIAL
    views = [
        {"releases": v.releases, "sum": v.epsilon / MICRO * v.releases, "right": v.right} for v in found.views
    ]
    tutorial = {"epsilon": epsilon / MICRO, "reports": reports, "delta": delta}
    tutorial |= {name: plain(getattr(found, name)) for name in ("advanced", "misprint", "few", "pays")}
    spent = [plain(row) | {"epsilon": row.epsilon / MICRO} for row in found.spent]
    return {"total": found.total, "delta": found.delta, "views": views, "spent": spent, "tutorial": tutorial}


def _shown(found: Composition) -> tuple[StudyTable | str, ...]:
    nats = found.views[0].epsilon / MICRO
    views = []
    for v in found.views:
        fail = optimal_delta(v.epsilon / MICRO, v.releases, positive("the total", found.total))
        views.append((f"{v.releases:,}", f"{nats * v.releases:g}", f"{100 * v.right:.4g} %", f"{fail:.3g}"))
    spent = [(f"{e / MICRO:g}", *(f"{x:,}" for x in counts)) for e, *counts in map(astuple, found.spent)]
    epsilon, reports, delta = TUTORIAL
    costs = [
        (f"k = {k} reports cost", f"{k * epsilon / MICRO:g}", f"{right:.3f}", f"{wrong:.3f}")
        for k, right, wrong in ((FEW, *astuple(found.few)), (reports, found.advanced, found.misprint))
    ]
    pays = ("cheaper than basic from k =", "", f"{found.pays.advanced:g}", f"{found.pays.misprint:g}")
    return (
        StudyTable(
            f"what an adversary sees, ε = {nats:g} per release",
            ("releases", "Σε", "best guess is right", f"δ at a total of {found.total:g}"),
            views,
            (),
        ),
        StudyTable(
            f"\nreports until the budget is spent: total {found.total:g}, δ = {found.delta:g}",
            ("ε per report", "basic", "zCDP filter", "optimal", "advanced", "misprint"),
            spent,
            (),
        ),
        "",
        "basic is ε-LDP, the next three are (ε, δ)-LDP, the misprint is no theorem: it is advanced "
        "composition as a tutorial prints it, without the factor ε before the root. What its numbers should "
        "be:",
        StudyTable(
            f"\nthe tutorial's example: ε = {epsilon / MICRO:g}, δ' = {delta:g}",
            ("", "basic", "theorem", "misprint"),
            [*costs, pays],
        ),
    )


# --- The picture ----------------------------------------------------------------------------------


def draw(path: Path, found: Composition) -> None:
    """Write the views, the reports until the budget is spent, and the tutorial's example."""
    from .drawing import COLOURS, figure, panel

    lines = {
        "basic": ("basic: ε-LDP", COLOURS[0], "-"),
        "zcdp": ("zCDP filter: (ε, δ)-LDP", COLOURS[1], "-"),
        "optimal": ("optimal: (ε, δ)-LDP", COLOURS[2], "-"),
        "advanced": ("advanced: (ε, δ)-LDP", COLOURS[3], "-"),
        "misprint": ("misprint: no theorem", COLOURS[6], ":"),
    }
    with figure(path, columns=2, rows=2) as (_, (*drawn, third, last)):
        for axes, view in zip(drawn, found.views, strict=True):
            seen = np.arange(view.releases + 1)
            for given, colour, name, shift in (
                (view.given_no, COLOURS[1], "no", -0.2),
                (view.given_yes, COLOURS[0], "yes", 0.2),
            ):
                label = f"the value is {name}"
                if len(seen) <= 31:
                    axes.bar(seen + shift, given, 0.4, color=colour, label=label)
                    axes.set_xticks(seen)
                else:
                    kept = given > given.max() * 1e-4
                    axes.plot(seen[kept], given[kept], color=colour, label=label, lw=1.9)
                    axes.fill_between(seen[kept], given[kept], color=colour, alpha=0.25)
            axes.set_ylim(0, 1.35 * float(view.given_yes.max()))
            title = f"{view.releases:,} releases of ε = {view.epsilon / MICRO:g}"
            note = f"the best guess of the value is right in {100 * view.right:.2f} % of cases"
            words = title, note, "how often an adversary sees yes", "probability"
            panel(axes, words, loc="upper right", ncols=2)
        epsilons = [row.epsilon / MICRO for row in found.spent]
        for name, (label, colour, line) in lines.items():
            counts = [float(getattr(row, name)) or math.nan for row in found.spent]
            third.plot(epsilons, counts, line, marker="o", ms=4, color=colour, label=label, lw=1.8)
        note = f"total {found.total:g}, δ = {found.delta:g}"
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
