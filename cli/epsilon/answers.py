"""The answer of each `hushmote epsilon` command in a sentence or two, which stands before its tables."""

from __future__ import annotations

from ...server.accounting.compare import TITLES
from ...server.epsilon import LEAST, MICRO
from ...server.privacy.many_reports import BudgetRow
from ...server.privacy.questions import Chosen, Seen
from ...server.words.epsilon import belief, rounded_down
from ...server.words.numbers import chance, counted

_SHOWN = 3
_WORTH_A_DELTA = 1.05  # how much more ε a theorem has to allow before its δ is worth a sentence


def chosen(choice: Chosen) -> str:
    """Which ε to take for a risk, and what it then means."""
    allowed, reports = choice.allowed, choice.reports
    if allowed.total is None:
        return "Any ε will do: no report can take a belief that far."
    before, after = chance(allowed.prior), chance(allowed.ceiling, up=True)
    risk = f"{allowed.target}: an attacker who thought {before} then thinks at most {after}."
    promised = [row for row in choice.rows if row.fails is not None]
    if reports is None or reports == 1 or not promised:
        epsilon = allowed.total / MICRO
        if allowed.total < LEAST:
            return f"No ε keeps this risk: it would be below 0.001. Allow a higher risk.\n{risk}"
        take = f"Take ε = {rounded_down(epsilon)} per report, or for all reports of a board together."
        return f"{take}\n{risk}\n{belief(epsilon)}"
    certain = max((row for row in promised if not row.fails), key=_allowed)
    likely = max(promised, key=_allowed)
    best = certain if _allowed(certain) * MICRO >= LEAST else likely
    if _allowed(best) * MICRO < LEAST:
        few = "Allow a higher risk, or fewer reports."
        return f"No ε keeps this risk in {reports:,} reports: it would be below 0.001. {few}\n{risk}"
    each = _allowed(best)
    take = f"Take ε = {rounded_down(each)} per report: {counted(reports)} of a board keep the risk"
    take += " together, whatever they say." if best is certain else f" but for a chance of {best.fails:g}."
    if best is certain and _allowed(likely) > _WORTH_A_DELTA * each:
        title = TITLES.get(likely.theorem, likely.theorem)
        take += f" With a chance of {likely.fails:g} that they do not, by {title}: ε = "
        take += f"{rounded_down(_allowed(likely))}."
    return f"{take}\n{risk}\n{belief(each)}"


def _allowed(row: BudgetRow) -> float:
    return row.epsilon or 0.0


def seen(view: Seen) -> str:
    """What reports of an ε make an attacker believe of the value in most danger."""
    first, epsilon = view.beliefs[0], view.experiment.epsilon / MICRO
    before, after = chance(first.prior), chance(first.posterior, up=True)
    text = f"{first.name}: an attacker who thought {before} thinks at most {after} after one report"
    if view.reports is not None and view.reports > 1:
        text += f", and at most {chance(view.posteriors[0], up=True)} after {view.reports:,}"
    return f"{text}.\n{belief(epsilon)}"
