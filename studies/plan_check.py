"""Check a plan against simulated fleets: predicted errors compared with measured ones.

Fleets of the plan's size are drawn with the boards' real channel and estimated like real ones. The measured
error is relative to the population from which the fleets were drawn. To compare like with like, each fleet
uses a random one of the places over which the plan's error is averaged, with the population assumed there.
Its squared error is divided by the variance predicted there, and multiplied by its number of reports over the
mean number (since a window's number is random, and E[1/n] > 1/E[n]).

The sum over fleets then has a chi-square distribution, with fewer degrees of freedom if errors have heavier
tails than normal ones, which gives the band in which a correct prediction agrees.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import numpy as np
from pydantic import Field, create_model
from scipy import special

from ..planning import expected_error
from ..planning.answer import answer
from ..planning.devices import Plan, Z
from ..planning.expected_error import Design, MeanPopulation, Places, Question
from ..planning.lifetime import LifetimePlan, Spending
from ..planning.request import PlanRequest
from ..server.estimate.estimate import estimate
from ..server.words.numbers import format_expected_count
from ..server.words.text_table import TextTable
from ..simulator import vectorised
from ..simulator.worker_pool import THIS_PROCESS, Workers
from .frame import Row, RunContext, StudyParameters, StudyResult, table

FALSE_ALARM = 1e-4  # probability that a row disagrees although the prediction is correct
MAX_REPORTS = 50_000_000  # over all fleets of one row
_MIN_REPORTS = 30  # reports on a level; with fewer, the prediction's assumptions fail
_MANY_REPORTS = 300  # minimum reports on a level if only a part of each fleet is drawn
_SLACK = 0.01  # relative; a correct prediction may be off by this much, since it assumes many reports
_AT_ONCE = 25  # fleets that a worker draws at once
_TAILS = 16  # places whose fourth moments are computed

_DrawReports = Callable[[np.random.Generator], int]


@dataclass(frozen=True)
class CheckRow:
    """The fleets to draw for one row of a check.

    Attributes:
        reports: Expected number of reports per fleet.
        draw_reports: Function that draws a fleet's number of reports.
    """

    name: str
    design: Design
    question: Question
    reports: float
    draw_reports: _DrawReports
    fleets: int

    @property
    def fewest(self) -> float:
        """Expected number of reports of the level with the fewest reports."""
        return self.reports * _least_chance(self.design)


def plan_row(plan: Plan, fleets: int) -> CheckRow | Row:
    """Return the row for a plan's error, with smaller fleets if whole ones would take too long."""
    part = _part(plan.devices, fleets, plan.design)
    devices = max(2, int(plan.devices * part))
    row = CheckRow(
        "" if part == 1 else "a part", plan.design, plan.question, devices, lambda _: devices, fleets
    )
    return _measurable(row)


def lifetime_rows(lifetime: LifetimePlan, fleets: int) -> list[CheckRow | Row]:
    """Return rows for the horizon's last day, week and 30 days, with sampling and the cap."""
    rows: list[CheckRow | Row] = []
    for name, days in lifetime.windows().items():
        per_device = lifetime.best.per_device(days)
        part = _part(max(1.0, per_device) * lifetime.devices, fleets, lifetime.best.design, per_device)
        devices = max(2, int(lifetime.devices * part))
        draw = window_reports(lifetime.best, devices, days)
        name = name if part == 1 else f"{name}, a part"
        row = CheckRow(name, lifetime.best.design, lifetime.question, per_device * devices, draw, fleets)
        rows.append(_measurable(row))
    return rows


def _measurable(row: CheckRow) -> CheckRow | Row:
    if row.fewest >= _MIN_REPORTS:
        return row
    fewest = f"{row.fewest:.2g}" if row.fewest < 10 else f"{row.fewest:.0f}"
    where = "" if row.fewest == row.reports else f" on one level of the tree, of {row.reports:,.0f}"
    why = f"{fewest} reports{where} are too few; {_MIN_REPORTS} are needed"
    return {"name": row.name, "unmeasured": why}


def _part(work: float, fleets: int, design: Design, reports_per_work: float = 1.0) -> float:
    """Return the share of each fleet that can be drawn within seconds.

    Args:
        work: Number of reports or boards in a fleet.
        fleets: Number of fleets.
        design: The plan's design.
        reports_per_work: Reports for each unit of work.
    """
    enough = _MANY_REPORTS / _least_chance(design) / min(1.0, reports_per_work)
    return min(1.0, max(MAX_REPORTS / fleets, enough) / work)


def _least_chance(design: Design) -> float:
    return min(chance for chance in design.mechanism.stratum_chances if chance)


def window_reports(spending: Spending, devices: int, days: float) -> _DrawReports:
    """Return a function that draws a fleet's reports in its last `days` days, board by board."""
    rhythm = spending.rhythm
    calls = rhythm.calls_in(days)
    whole = min(max(1, round(calls)), rhythm.calls)
    # Share of the boards that call, if they call less than once in these days.
    calling = min(1.0, calls / whole)

    def draw(rng: np.random.Generator) -> int:
        p = 1 / spending.every
        boards = devices if calling == 1 else int(rng.binomial(devices, calling))
        before = rng.binomial(rhythm.calls - whole, p, boards)
        remaining = spending.cap - np.minimum(before, spending.cap)
        return int(np.minimum(rng.binomial(whole, p, boards), remaining).sum())

    return draw


_Drawing = tuple[int, np.random.SeedSequence]
"""Number of fleets of a row, and the seed of their draws."""


def measure(
    row: CheckRow,
    seed: np.random.SeedSequence,
    workers: Workers = THIS_PROCESS,
    on_drawn: Callable[[int], object] = lambda _: None,
) -> Row:
    """Draw a row's fleets on workers and compare.

    In the result, `reports` is the mean per fleet, `fleets` the number of fleets, and `population` a
    description of the devices' values. `predicted` and `measured` are half-widths of 95% intervals, as shares
    of devices, and `uncertainty` is the standard error of `measured`. If the prediction is correct,
    `measured` is between `least` and `most`, except with probability FALSE_ALARM. `why` is the likely cause
    of a difference, or None.

    Args:
        row: The row.
        seed: The draws' seed.
        workers: Workers to draw the fleets.
        on_drawn: Called with the number of fleets drawn since the last call.
    """
    design, fleets = row.design, row.fleets
    targets = expected_error.question_places(design, row.question)
    predicted = Z * math.sqrt(targets.variance.mean() / row.reports)
    sizes = [min(_AT_ONCE, fleets - first) for first in range(0, fleets, _AT_ONCE)]
    parts = list(zip(sizes, seed.spawn(len(sizes)), strict=True))
    total, report_count = 0.0, 0
    for squares, reports in workers.map(_draw, parts, row, targets, advance=lambda part: on_drawn(part[0])):
        total, report_count = total + squares, report_count + reports
    excess = excess_kurtosis(design, targets, row.reports)
    freedom = fleets / (1 + excess / 2)
    least, most = band(freedom, row.fewest)
    measured, uncertainty = predicted * math.sqrt(total / fleets), predicted / math.sqrt(2 * freedom)
    least, most = predicted * least, predicted * most
    agrees, why = least <= measured <= most, None
    if not agrees:
        errors, side = abs(measured - predicted) / uncertainty, "less" if measured < predicted else "more"
        why = f"predicted ±{predicted:.3%}, measured ±{measured:.3%}: {errors:.1f} standard errors {side}"
        why += f"; {_cause(row, excess)}"
    check: Row = {"name": row.name, "reports": report_count / fleets, "fleets": fleets}
    check |= {
        "population": _describe_population(targets, row.question),
        "predicted": predicted,
        "measured": measured,
    }
    check |= {"uncertainty": uncertainty, "least": least, "most": most}
    return check | {"agrees": agrees, "why": why}


def _draw(part: _Drawing, row: CheckRow, targets: Places | MeanPopulation) -> tuple[float, int]:
    """Return the sums of fleets' squared errors, relative to the prediction, and of their reports."""
    fleets, seed = part
    design, rng = row.design, np.random.default_rng(seed)
    total, report_count = 0.0, 0
    for _ in range(fleets):
        place = int(rng.integers(len(targets.variance)))
        n = max(2, row.draw_reports(rng))
        shares, statistic = targets.population(design.domain, place), targets.statistic(design.domain, place)
        counts = vectorised.histogram(design.experiment, rng.multinomial(n, shares), rng)
        decoded = estimate(design.experiment, counts).decoded
        off = float(decoded.value(statistic[:, None])[0]) - float(shares @ statistic)
        total += off * off * n / targets.variance[place]
        report_count += n
    return total, report_count


def band(freedom: float, fewest: float) -> tuple[float, float]:
    """Return the bounds of measured / predicted if the prediction is correct.

    By chance, the ratio is outside with probability FALSE_ALARM. The number n of arriving reports is random,
    which adds at most 1 / 2n to the error; that and another 1% do not count as disagreement.

    Args:
        freedom: Degrees of freedom of the sum of squares: the number of fleets, if errors are normal.
        fewest: Expected number of reports of the level with the fewest reports.
    """
    slack = _SLACK + 0.5 / fewest
    quantiles = 2 * special.gammaincinv(freedom / 2, (FALSE_ALARM / 2, 1 - FALSE_ALARM / 2))  # chi-square's
    low, high = np.sqrt(quantiles / freedom)
    return float(low) * (1 - slack), float(high) * (1 + slack)


def excess_kurtosis(design: Design, targets: Places | MeanPopulation, reports: float) -> float:
    """Return the excess kurtosis of the estimates' errors, averaged over some of the places."""
    mechanism = design.mechanism
    total = 0.0
    chosen = np.unique(np.linspace(0, len(targets.variance) - 1, _TAILS).astype(int)).tolist()
    for place in chosen:
        variance = targets.variance[place]
        laws = mechanism.law(targets.population(design.domain, place))
        weights, _ = mechanism.weights(
            targets.statistic(design.domain, place)[:, None], mechanism.stratum_chances
        )
        for w, law, chance in zip(weights, laws, mechanism.stratum_chances, strict=True):
            if w is not None:
                off = w[:, 0] - law @ w[:, 0]
                fourth = law @ off**4 - 3 * (law @ off**2) ** 2
                total += float(fourth / (chance**3 * reports * variance**2))
    return total / len(chosen)


def _describe_population(targets: Places | MeanPopulation, question: Question) -> str:
    if isinstance(targets, MeanPopulation):
        return "the worst" if question.spread is None else f"deviation {question.spread:.3g}"
    share = f"{targets.share:.3g}" if 0 < targets.share < 0.01 else f"{targets.share:.0%}"
    if len(targets.low) == 1:
        low, high = int(targets.low[0]), int(targets.high[0])
        return f"{share} hold value {low}" if high == low + 1 else f"{share} in values {low}:{high}"
    if question.kind == "quantile":
        return f"{share} below a value"
    if question.kind == "frequency" or question.width == 1:
        return f"{share} hold a value"
    return f"{share} in {question.width} bins" if question.width else f"{share} in a range"


def _cause(row: CheckRow, excess: float) -> str:
    if row.fewest < min(_MANY_REPORTS, row.reports):
        return f"likely cause: a level of the tree has only {row.fewest:.0f} reports"
    if excess > 1:
        return "likely cause: so few reports differ from the rest that errors are far from normal"
    return "no cause is known: please report it, with the command and its --seed"


# --- The study ----------------------------------------------------------------------------------------


class FleetsParameters(StudyParameters):
    """Fleets to draw, in addition to the plan's own fields."""

    fleets: int = Field(1000, ge=2, le=100_000, description="Fleets to draw.")


def _request_fields() -> dict[str, Any]:
    """Return the fields of a plan's request as parameters; several ranges are separated by commas."""
    parameters: dict[str, Any] = {}
    kinds = get_type_hints(PlanRequest)
    for field in dataclasses.fields(PlanRequest):
        kind = kinds[field.name]
        if str in get_args(kind):
            kind = str | None
        elif Sequence[str] in get_args(kind):
            kind = tuple[str, ...]
        parameters[field.name] = (kind, Field(field.default, description=field.metadata["help"]))
    return parameters


PlanCheckParameters = create_model("PlanCheckParameters", __base__=FleetsParameters, **_request_fields())


def run(parameters: FleetsParameters, context: RunContext) -> StudyResult:
    """Compute the plan, draw its fleets, and measure its errors; raise PlanError."""
    plan_answer = answer(PlanRequest(**parameters.model_dump(exclude={"fleets"})))
    plan = plan_answer.plan
    rows = (
        [plan_row(plan, parameters.fleets)]
        if isinstance(plan, Plan)
        else lifetime_rows(plan, parameters.fleets)
    )
    seeds = np.random.SeedSequence(context.seed).spawn(len(rows))
    total = sum(row.fleets for row in rows if isinstance(row, CheckRow))
    checks = [
        measure(row, seed, context.workers, lambda more: context.advance(more / total))
        if isinstance(row, CheckRow)
        else row
        for row, seed in zip(rows, seeds, strict=True)
    ]
    return StudyResult(plan_answer.to_dict() | {"check": checks}, (*plan_answer.lines, "", *_tables(checks)))


run.__annotations__["parameters"] = PlanCheckParameters  # catalogue.model() reads it


def _tables(checks: Sequence[Row]) -> list[TextTable | str]:
    measured = [row for row in checks if "measured" in row]
    output: list[TextTable | str] = []
    if measured:
        cells = "{name} | {population} | {fleets:,} | {expected} | {predicted:.3%}"
        cells += " | {measured:.3%} ({uncertainty:.3%}) | {verdict}"
        lines = [
            row
            | {"expected": format_expected_count(row["reports"]), "verdict": "yes" if row["agrees"] else "no"}
            for row in measured
        ]
        headings = "window | population | fleets | reports | predicted | measured | agrees"
        title = "checked with simulated fleets, against the true population"
        output += [
            table(title, headings, cells, lines, (0, 1)),
            "  half-widths, with the measurement's standard error in brackets; a correct plan",
            f"  fails to agree in 1 of {1 / FALSE_ALARM:,.0f} rows",
        ]
    for row in checks:
        why = f"not measured: {row['unmeasured']}" if "unmeasured" in row else row["why"]
        if why:
            output.append(f"  {row['name']}: {why}" if row["name"] else f"  {why}")
    return output
