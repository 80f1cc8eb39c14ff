"""The output of `hushmote epsilon`: a sentence or two, then tables of 80 columns."""

from collections.abc import Sequence

from ...planning.privacy.histogram import HistogramView
from ...planning.privacy.many_reports import BudgetRow
from ...planning.privacy.questions import Belief, EpsilonBeliefs, RiskEpsilons
from ...server.accounting.compare import TITLES
from ...server.answers import tables as show
from ...server.epsilon import LEAST, MICRO
from ...server.estimate.shuffled import LIMITS
from ...server.plain_text import shorten
from ...server.words import experiment as words
from ...server.words.epsilon import belief, rounded_down
from ...server.words.numbers import chance, counted

_NAME = 24
_WORTH_A_DELTA = 1.05  # mention a theorem with a δ only if it allows an ε larger by this factor


def describe(answer: RiskEpsilons | EpsilonBeliefs) -> str:
    """Describe the answer in sentences, one per line."""
    return _describe_choice(answer) if isinstance(answer, RiskEpsilons) else _describe_view(answer)


def _describe_choice(choice: RiskEpsilons) -> str:
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
        advice = f"Use ε = {rounded_down(epsilon)} per report, or for all of a device's reports together."
        return f"{advice}\n{risk}\n{belief(epsilon)}"
    certain = max((row for row in promised if not row.fails), key=_allowed)
    likely = max(promised, key=_allowed)
    best = certain if _allowed(certain) * MICRO >= LEAST else likely
    if _allowed(best) * MICRO < LEAST:
        hint = "Allow a higher risk, or fewer reports."
        return f"No ε keeps this risk in {counted(reports)}: it would be below 0.001. {hint}\n{risk}"
    per_report = _allowed(best)
    advice = f"Use ε = {rounded_down(per_report)} per report: {counted(reports)} from a device keep the risk"
    advice += (
        " together, whatever they contain."
        if best is certain
        else f" except with probability {best.fails:g}."
    )
    if best is certain and _allowed(likely) > _WORTH_A_DELTA * per_report:
        title = TITLES.get(likely.theorem, likely.theorem)
        advice += f" Accepting a chance of {likely.fails:g} that they do not, {title} allows ε = "
        advice += f"{rounded_down(_allowed(likely))}."
    return f"{advice}\n{risk}\n{belief(per_report)}"


def _allowed(row: BudgetRow) -> float:
    return row.epsilon or 0.0


def _describe_view(view: EpsilonBeliefs) -> str:
    first, epsilon = view.beliefs[0], view.experiment.epsilon / MICRO
    before, after = chance(first.prior), chance(first.posterior, up=True)
    text = f"{first.name}: an attacker who thought {before} thinks at most {after} after one report"
    if view.reports is not None and view.reports > 1:
        text += f", and at most {chance(view.posteriors[0], up=True)} after {view.reports:,}"
    return f"{text}.\n{belief(epsilon)}"


def print_choice(choice: RiskEpsilons) -> None:
    """Print the largest ε that keeps the risk, for any mechanism and for the chosen one."""
    total = choice.allowed.total
    if total is None:
        return
    show.out.print()
    table = show.table(f"the largest ε for a risk of {choice.risk}", ("", "ε"))
    table.add_row("one report, or all of a device's together, any mechanism", f"{total / MICRO:.6f}")
    if choice.mechanism is not None and choice.exact is not None:
        note = " (the maximum)" if choice.exact >= 16 else ""
        table.add_row(f"one report by {_mechanism(choice)}, exact{note}", f"{choice.exact:.6f}")
    show.out.print(table)
    if choice.changes:
        show.out.print("above this ε, the planner would choose a mechanism that exceeds the risk")
    if choice.beliefs and choice.exact is not None:
        show.out.print()
        _print_beliefs(f"after the worst report at ε = {choice.exact:g}", choice.beliefs)
    if choice.reports is not None and choice.rows:
        show.out.print()
        _print_budgets(choice)


def _mechanism(choice: RiskEpsilons) -> str:
    assert choice.mechanism is not None
    text = words.mechanism(choice.mechanism)
    return text if len(text) <= 28 else choice.mechanism.mechanism


def _print_beliefs(title: str, beliefs: Sequence[Belief]) -> None:
    value = "value (+ alike)" if any(b.alike for b in beliefs) else "value"
    headings = (value, "before", "at most", "any mechanism", "in words")
    table = show.table(title, headings)
    for b in beliefs:
        move = f"{chance(b.prior)} -> {chance(b.posterior, up=True)}"
        more = f" (+{b.alike:,})" if b.alike else ""
        name = shorten(b.name, _NAME)
        table.add_row(name + more, *(_belief(x) for x in (b.prior, b.posterior, b.bound)), move)
    show.out.print(table)


def _belief(probability: float) -> str:
    return f"{probability:.6f}" if probability >= 0.001 else f"{probability:.3e}"


def _print_budgets(choice: RiskEpsilons) -> None:
    assert choice.reports is not None  # without it, there are no budgets
    pairs = list(zip(choice.rows, choice.passes, strict=True))
    budgets = [(row, p) for row, p in pairs if row.fails is not None]
    exact = any(p is not None for _, p in budgets)
    headings = ("theorem", "total", "δ", "ε of each", "passes the risk", *(("exactly",) if exact else ()))
    table = show.table(f"{counted(choice.reports)} of a device within the same risk", headings)
    for row, p in budgets:
        cells = [
            TITLES.get(row.theorem, row.theorem),
            "" if row.total is None else f"{row.total:.6f}",
            f"{row.delta:.3g}" if row.delta else "",
            "any" if row.epsilon is None else f"{row.epsilon:.6f}",
            "never" if not row.fails else f"<= {row.fails:g}",
        ]
        table.add_row(*cells, *([] if not exact else ["" if p is None else f"{p:.3g}"]))
    show.out.print(table)
    show.out.print(
        "passes the risk: the chance that the belief in the true value exceeds the risk."
        + (" exactly: if the same value is reported each time." if exact else ""),
    )
    show.out.print(
        "The theorem none, which guarantees nothing about beliefs, is omitted; --json includes it."
    )
    if any(row.epsilon is not None and row.epsilon < 0.001 for row in choice.rows):
        show.out.print("No experiment can have an ε below 0.001; let devices make fewer reports instead.")
    if choice.refused:
        show.out.print(f"no exact chance: {choice.refused}.")


def print_view(view: EpsilonBeliefs) -> None:
    """Print an attacker's beliefs after reports of an ε."""
    epsilon, first = view.experiment.epsilon / MICRO, view.beliefs[0]
    show.out.print()
    _print_beliefs(
        f"after the worst report at ε = {epsilon:g} ({words.mechanism(view.experiment)})", view.beliefs
    )
    if view.reports is None:
        return
    show.out.print()
    headings = ("theorem", "loss", "belief at most", "in words", "chance of exceeding it")
    table = show.table(f"after {counted(view.reports, 'such report')}: the belief in {first.name}", headings)
    for row, p in zip(view.rows, view.posteriors, strict=True):
        more = "never" if not row.fails else f"<= {row.fails:g}"
        table.add_row(
            TITLES.get(row.theorem, row.theorem), f"{row.loss:.6f}", f"{p:.6f}", chance(p, up=True), more
        )
    show.out.print(table)
    if view.repeated:
        mean, guess = view.repeated.mean, view.repeated.guess
        show.out.print(
            "Exactly, if the same value is reported each time: the attacker believes the truth to be "
            f"{chance(mean)} on average, and the best guess is right {guess:.2%} of the time.",
        )
    elif view.refused:
        show.out.print(f"no exact belief: {view.refused}.")


def print_histogram(view: HistogramView) -> None:
    """Print the beliefs of someone who sees only the histogram."""
    show.out.print()
    origin = f"{view.own:,} of them one device's" if view.own > 1 else "one of them the device's"
    show.out.print(f"someone who sees only a histogram of {counted(view.reports)}, {origin}", style="bold")
    certain = "always" if not view.delta else f"except with probability {view.delta:g}"
    table = show.table("", ("value", "before", "at most", "in words"))
    for name, before, after in view.beliefs:
        move = f"{chance(before)} -> {chance(after, up=True)}"
        table.add_row(name[:_NAME], _belief(before), _belief(after), move)
    show.out.print(table)
    show.out.print(
        f"ε of the histogram is {view.epsilon:.6f} at δ = {view.delta:g}. The beliefs stay below these "
        f"{certain}: odds move by e^{view.loss:.4f} at most. All this holds {LIMITS}."
    )
    if view.local is not None:
        show.out.print(
            f"Against such a viewer alone, ε = {view.local:.6f} per report would also keep the risk."
        )
