"""`hushmote epsilon central`: ε for a curator's answers, after Lee and Clifton."""

from __future__ import annotations

import enum
from typing import Annotated

import numpy as np
import typer

from ...server.answers import tables as show
from ...server.errors import UsageError
from ...server.privacy.beliefs import DisclosureError, Floats, checked_prior
from ...simulator import population
from ...studies.lee_clifton import EpsilonChoice, check_epsilon, choose_epsilon
from ...studies.sensitivity import Universe, statistic
from ..options import AsJson, print_json
from ..output import PICTURES, Force, Pictures, checked
from . import tables as epsilon_show
from .numbers import fraction

_QUERIES = ["mean", "median", "sum", "min", "max", "p90", "count"]


class NeighbourKind(enum.StrEnum):
    """Which releases are neighbours: a record more or less, or one changed."""

    unbounded = "unbounded"
    bounded = "bounded"


def central(
    records: Annotated[
        list[str], typer.Argument(help="The universe, or several: numbers 1,2,3,10, or FILE.csv:COLUMN.")
    ],
    risk: Annotated[str, typer.Option(help="The highest belief in a world that is allowed: 1/3.")],
    queries: Annotated[
        list[str] | None,
        typer.Option("--query", help="mean, median, variance, sum, count, min, max, p90, module:function."),
    ] = None,
    size: Annotated[int | None, typer.Option(help="Records in the release; all but one by default.")] = None,
    prior: Annotated[
        str,
        typer.Option(help="uniform, or how likely each record is the missing one, smallest first: a,b,c."),
    ] = "uniform",
    distance: Annotated[int, typer.Option(help="Records that neighbours differ by.")] = 1,
    neighbours: Annotated[
        NeighbourKind, typer.Option(help="Records fewer or more, or other ones.")
    ] = NeighbourKind.unbounded,
    epsilon: Annotated[float | None, typer.Option(help="Show both bounds at this ε, too.")] = None,
    answer: Annotated[
        float | None, typer.Option(help="With --epsilon and one --query: beliefs after this answer.")
    ] = None,
    output: Pictures = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """ε for a curator's answers with Laplace noise: Lee and Clifton 2011, upper bound and tight bound."""
    paths = checked(output, force, *PICTURES)
    if answer is not None and (epsilon is None or len(queries or ()) != 1):
        raise UsageError("--answer needs --epsilon and one --query")
    allowed = float(fraction(risk, "a risk"))
    universes = [
        (text, _choices(text, size, prior, allowed, queries or _QUERIES, distance, neighbours))
        for text in records
    ]
    if epsilon is not None:
        check_epsilon(epsilon)
    for path in paths:
        from .plot import central_curves  # matplotlib takes a second to load

        central_curves(path, universes, allowed)
    if answer is not None:
        for _, (first, *_) in universes:
            if first.all is None:
                raise DisclosureError(f"no beliefs after an answer: {first.refused}")
    if as_json:
        print_json([_plain(name, c, epsilon, answer) for name, choices in universes for c in choices])
        return
    for place, (name, choices) in enumerate(universes):
        if place:
            show.out.print()
        named = name if len(universes) > 1 else ""
        epsilon_show.central(named, choices, allowed, epsilon, neighbours.value, distance)
        if answer is not None and epsilon is not None:
            show.out.print()
            epsilon_show.answer(choices[0], answer, epsilon)
    for path in paths:
        show.out.print(f"wrote {path}")


def _choices(
    text: str,
    size: int | None,
    prior: str,
    risk: float,
    queries: list[str],
    distance: int,
    neighbours: NeighbourKind,
) -> list[EpsilonChoice]:
    """What is found for each statistic of one universe."""
    data = _records(text)
    universe = Universe(data, len(data) - 1 if size is None and len(data) > 1 else size or 0)
    missing = _prior(prior, universe)
    choices: list[EpsilonChoice] = []
    for query in (statistic(name) for name in queries):
        # worlds of a function of one's own are enumerated: the first lacks the last record
        worlds = missing[::-1] if missing is not None and query.own else missing
        choices.append(choose_epsilon(query, universe, risk, distance, neighbours.value, worlds))
    return choices


def _prior(text: str, universe: Universe) -> Floats | None:
    """How likely each record is the missing one, shape (records,); None: all alike."""
    if text == "uniform":
        return None
    if universe.size != len(universe.records) - 1:
        raise DisclosureError("a prior says which record is missing: leave --size out, or the prior uniform")
    given = [float(fraction(x, "a prior's probability")) for x in text.split(",")]
    if len(given) != len(universe.records):
        raise DisclosureError(
            f"the prior has {len(given)} numbers, there are {len(universe.records)} records"
        )
    return checked_prior(given, len(given))


def _records(text: str) -> Floats:
    file, colon, column = text.rpartition(":")
    if colon and file.lower().endswith(".csv"):
        readings = population.read_csv(file, column).readings
        return np.array([x for x in readings if x is not None], dtype=np.float64)
    return np.array([float(fraction(x, "a record")) for x in text.split(",") if x.strip()])


def _plain(
    universe: str, choice: EpsilonChoice, epsilon: float | None, answer: float | None
) -> dict[str, object]:
    plain: dict[str, object] = {
        "universe": universe,
        "query": choice.query,
        "worlds": choice.worlds,
        "sensitivity": choice.sensitivity,
        "spread": choice.spread,
        "upper_epsilon": choice.upper_epsilon,
        "tight_epsilon": choice.tight_epsilon,
        "tight_refused": choice.refused,
    }
    if epsilon is not None:
        plain["upper_posterior"] = choice.upper(epsilon)
        plain["tight_posterior"] = choice.all.tight(epsilon) if choice.all else None
        if answer is not None and choice.all:
            plain["values"] = choice.all.values.tolist()
            plain["priors"] = choice.all.priors.tolist()
            plain["densities"] = choice.all.densities(answer, epsilon).tolist()
            plain["posteriors"] = choice.all.posterior(answer, epsilon).tolist()
            plain["confidence"] = choice.all.confidence(answer, epsilon)
    return plain
