"""ε for a curator's answers with Laplace noise: Lee and Clifton's upper bound and the tight bound."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from ..planning.privacy.beliefs import DisclosureError, fraction, normalize_prior
from ..planning.tables import split_source
from ..server.arrays import Floats
from ..server.errors import UsageError
from ..server.words.epsilon import rounded_down
from ..server.words.numbers import chance
from ..server.words.text_table import TextTable
from ..simulator import population
from .frame import Row, RunContext, StudyParameters, StudyResult, table
from .lee_clifton import EpsilonChoice, check_epsilon, choose_epsilon
from .sensitivity import Universe, format_count, statistic

_FEW = 3  # maximum number of statistics that the answer names


class CentralParameters(StudyParameters):
    """The universe, the statistics to answer, and the risk allowed."""

    records: tuple[str, ...] = Field(
        min_length=1,
        description="The universe: numbers 1,2,3,10, or FILE.csv:COLUMN; given again for another one.",
        json_schema_extra={"repeated": True},
    )
    risk: str = Field(description="The highest belief in a world that is allowed: 1/3.")
    queries: tuple[str, ...] = Field(
        ("mean", "median", "sum", "min", "max", "p90", "count"),
        description="mean, median, variance, sum, count, min, max, p90, module:function.",
    )
    size: int | None = Field(None, description="Records in the release; all but one by default.")
    prior: str = Field(
        "uniform",
        description="uniform, or how likely each record is the missing one, smallest first: a,b,c.",
    )
    distance: int = Field(1, description="Records that neighbours differ by.")
    neighbours: Literal["unbounded", "bounded"] = Field(
        "unbounded", description="unbounded: records fewer or more; bounded: other ones."
    )
    epsilon: float | None = Field(None, description="Show both bounds at this ε, too.")
    answer: float | None = Field(
        None, description="With epsilon and one of queries: beliefs after this answer."
    )


def run(parameters: CentralParameters, context: RunContext) -> StudyResult:
    """Find the ε of both bounds for each statistic of each universe."""
    if parameters.answer is not None and (parameters.epsilon is None or len(parameters.queries) != 1):
        raise UsageError("--answer needs --epsilon and one of --queries")
    risk = float(fraction(parameters.risk, "a risk"))
    universes = [(text, _choices(text, parameters, risk)) for text in parameters.records]
    if parameters.epsilon is not None:
        check_epsilon(parameters.epsilon)
    for _, (first, *_) in universes:
        if parameters.answer is not None and first.all is None:
            raise DisclosureError(f"no beliefs after an answer: {first.refused}")
    output: list[TextTable | str] = []
    json: list[Row] = []
    for name, choices in universes:
        rows = [_plain(name, choice, parameters) for choice in choices]
        output += [""] if output else []
        output += _tables(f"{name}: " if len(universes) > 1 else "", rows, parameters, risk)
        if parameters.answer is not None:
            output += ["", *_after(rows[0], parameters)]
        json += rows
    return StudyResult(json, output, (universes, risk))


def _choices(text: str, parameters: CentralParameters, risk: float) -> list[EpsilonChoice]:
    data = _records(text)
    universe = Universe(
        data, len(data) - 1 if parameters.size is None and len(data) > 1 else parameters.size or 0
    )
    missing = _prior(parameters.prior, universe)
    choices: list[EpsilonChoice] = []
    for query in (statistic(name) for name in parameters.queries):
        # A custom function's worlds are enumerated, and the first of them lacks the last record.
        worlds = missing[::-1] if missing is not None and query.own else missing
        choices.append(
            choose_epsilon(query, universe, risk, parameters.distance, parameters.neighbours, worlds)
        )
    return choices


def _prior(text: str, universe: Universe) -> Floats | None:
    """Return each record's probability of being the missing one, shape (records,), or None if uniform."""
    if text == "uniform":
        return None
    count = len(universe.records)
    if universe.size != count - 1:
        raise DisclosureError("a prior says which record is missing: leave --size out, or the prior uniform")
    probabilities = [float(fraction(x, "a prior's probability")) for x in text.split(",")]
    if len(probabilities) != count:
        raise DisclosureError(
            f"the prior needs a number for each of the {count} records, not {len(probabilities)}"
        )
    return normalize_prior(probabilities, len(probabilities))


def _records(text: str) -> Floats:
    file, column = split_source(text)
    if Path(file).is_file() or file.lower().endswith(".csv"):
        readings = population.read_csv(file, column).readings
        return np.array([x for x in readings if x is not None], dtype=np.float64)
    return np.array([float(fraction(x, "a record")) for x in text.split(",") if x.strip()])


def _plain(universe: str, choice: EpsilonChoice, parameters: CentralParameters) -> Row:
    names = ("query", "worlds", "sensitivity", "spread", "upper_epsilon", "tight_epsilon")
    plain: Row = {"universe": universe}
    plain |= {name: getattr(choice, name) for name in names}
    plain["tight_refused"] = choice.refused
    epsilon, answer, worlds = parameters.epsilon, parameters.answer, choice.all
    if epsilon is not None:
        plain["upper_posterior"] = choice.upper(epsilon)
        plain["tight_posterior"] = worlds.tight(epsilon) if worlds else None
        if answer is not None and worlds:
            plain["values"] = worlds.values.tolist()
            plain["priors"] = worlds.priors.tolist()
            plain["densities"] = worlds.densities(answer, epsilon).tolist()
            plain["posteriors"] = worlds.posterior(answer, epsilon).tolist()
            plain["confidence"] = worlds.confidence(answer, epsilon)
    return plain


def _tables(
    prefix: str, rows: Sequence[Row], parameters: CentralParameters, risk: float
) -> list[TextTable | str]:
    k, epsilon = parameters.distance, parameters.epsilon
    relation = f"{'1 record' if k == 1 else f'{k} records'} "
    relation += "less or more" if parameters.neighbours == "unbounded" else "changed"
    headings = "query | Δf | Δv | upper-bound ε | tight ε"
    cells = "{query} | {sensitivity:.6g} | {spread:.6g} | {upper} | {tight}"
    if epsilon is not None:
        headings += f" | upper at {epsilon:g} | tight at {epsilon:g}"
        cells += " | {upper_posterior:.6f} | {tight_at}"
    lines = [
        row
        | {"upper": _digits(row["upper_epsilon"], "any"), "tight_at": _digits(row.get("tight_posterior"), "")}
        | {"tight": "refused" if row["tight_refused"] else _digits(row["tight_epsilon"], "any")}
        for row in rows
    ]
    worlds = format_count(rows[0]["worlds"])
    return [
        _answer(rows, risk),
        "",
        f"# {prefix}the largest ε for a risk of {risk:.6g}, {worlds} worlds; Δf: {relation}",
        table("", headings, cells, lines),
        *(f"{row['query']}: no tight ε: {row['tight_refused']}" for row in rows if row["tight_refused"]),
    ]


def _digits(number: float | None, placeholder: str) -> str:
    return placeholder if number is None else f"{number:.6f}"


def _answer(rows: Sequence[Row], risk: float) -> str:
    """Recommend an ε for one answer per statistic, by the tight bound if it is known."""
    best = [(row["query"], row["upper_epsilon" if row["tight_refused"] else "tight_epsilon"]) for row in rows]
    finite = sorted((epsilon, query) for query, epsilon in best if epsilon is not None)
    if not finite:
        return f"Any ε will do: no answer takes a belief above {chance(risk)}."
    if len(best) > _FEW:
        least, query = finite[0]
        text = f"ε = {rounded_down(least)} is right for one answer of any of these, as {query} allows least"
    else:
        epsilons = (f"{query} at ε = {'any' if e is None else rounded_down(e)}" for query, e in best)
        text = (
            f"Answer one of {', '.join(epsilons)}" if len(best) > 1 else f"Answer the {next(iter(epsilons))}"
        )
    return f"{text}: no belief in a possible world then passes {chance(risk)}."


def _after(row: Row, parameters: CentralParameters) -> list[TextTable | str]:
    """Return a table of beliefs in the most likely worlds after an answer."""
    worlds = np.array([row[name] for name in ("values", "priors", "densities", "posteriors")]).T
    likeliest = worlds[(-worlds[:, 3]).argsort(kind="stable")[:12]].tolist()
    cells = [(f"{value:.6g}", *(f"{x:.6f}" for x in chances)) for value, *chances in likeliest]
    return [
        f"# after the {row['query']} {parameters.answer:g} at ε = {parameters.epsilon:g}: "
        "the most likely worlds",
        TextTable("", (row["query"], "before", "density of the answer", "after"), cells, ()),
        "after: before × density, divided by the sum of all of these",
        f"confidence, after less before: {row['confidence']:.6f}",
    ]


def draw(path: Path, figure_data: tuple[list[tuple[str, list[EpsilonChoice]]], float]) -> None:
    """Write both bounds on the posterior against ε, a panel for each statistic, with the risk's line.

    Args:
        path: The image file.
        figure_data: Universes, each with its name and the choices for the same statistics; and the risk.
    """
    from .drawing import COLOURS, add_heading, add_legend_below, panel, panels

    universes, risk = figure_data
    # Each universe's colours for the upper and the tight bound.
    pairs = [(COLOURS[i], COLOURS[j]) for i, j in ((1, 0), (5, 2), (3, 4), (6, 6))]
    with panels(path, len(universes[0][1])) as (drawing, all_axes):
        for place, axes in enumerate(all_axes):
            choices_here = [
                (f"{name}: " if len(universes) > 1 else "", choices[place]) for name, choices in universes
            ]
            ends = [e for _, c in choices_here for e in (c.upper_epsilon, c.tight_epsilon) if e is not None]
            max_epsilon = max(5.0, 1.2 * max(ends, default=0.0))
            grid = np.linspace(0, max_epsilon, 201)[1:]
            for (prefix, choice), (high, low) in zip(choices_here, cycle(pairs), strict=False):
                label = f"{prefix}upper bound"
                axes.plot(
                    grid, [choice.upper(e) for e in grid], color=high, lw=1.6, ls=(0, (4, 2)), label=label
                )
                if choice.all is not None:
                    tight = [choice.all.tight(e) for e in grid]
                    axes.plot(grid, tight, color=low, lw=2, label=f"{prefix}tight bound")
                for epsilon, colour, apart in (  # the offset keeps the two labels apart
                    (choice.upper_epsilon, high, True),
                    (choice.tight_epsilon, low, False),
                ):
                    if epsilon is not None:
                        axes.plot([epsilon], [risk], "o", color=colour, ms=6, zorder=5)
                        text = " " if prefix else f"ε = {epsilon:.4g}"
                        is_left = apart and epsilon > max_epsilon / 5  # otherwise the axis would cover it
                        at, end = ((-7, 8), "right") if is_left else ((7, -29 if apart else -15), "left")
                        font: dict[str, Any] = {"color": colour, "fontsize": 9.5, "ha": end}
                        axes.annotate(text, (epsilon, risk), at, textcoords="offset points", **font)
            axes.axhline(risk, color="#555555", lw=1.2, ls=(0, (5, 3)), label="risk")
            axes.set_xlim(0, max_epsilon)
            axes.set_ylim(0, 1.02 if axes.get_ylim()[1] > 0.8 else None)
            panel(axes, (choices_here[0][1].query, "", "ε, nats", "belief, at most"))
        add_heading(drawing, f"Belief in a possible world after one answer (risk {risk:.4g})")
        add_legend_below(drawing, all_axes[0], 2 if len(universes) > 1 else 4)
