"""`hushmote epsilon`: the ε that keeps a disclosure risk, and what reports of an ε tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ...device.ldp_client import Experiment
from ...server.accounting.errors import probability, whole
from ...server.answers import tables as show
from ...server.answers.query import Facts, Selection
from ...server.epsilon import MICRO, check_epsilon, micro_nats
from ...server.errors import UsageError
from ...server.estimate.postprocess import METHODS
from ...server.experiments.asking import require
from ...server.experiments.definition import load
from ...server.experiments.payload import AUTO, MECHANISM_NAMES
from ...server.privacy import questions as epsilon_local
from ...server.privacy.beliefs import (
    ByEpsilon,
    DisclosureError,
    Floats,
    Risk,
    checked_prior,
    fixed,
    fraction,
    uniform,
)
from ...server.privacy.histogram import histogram_view
from ...server.privacy.questions import Chosen, Seen, Values, bare_values
from ...server.store.store import Store
from ...server.words.epsilon import belief
from ...simulator import population
from ..options import DEFAULT_STORE, AsJson, FleetName, StoreUrl, print_json, the_fleet
from ..output import PICTURES, Pictures, checked
from . import answers
from . import tables as epsilon_show


def epsilon_command(
    file: Annotated[Path | None, typer.Argument(help="TOML file of an experiment.")] = None,
    domain: Annotated[int | None, typer.Option(help="Instead of a file: the number of values.")] = None,
    mechanism: Annotated[
        str, typer.Option(help=f"With --domain; {', '.join(MECHANISM_NAMES)}; auto is best for frequencies.")
    ] = AUTO,
    prior: Annotated[
        str,
        typer.Option(help="uniform; probabilities a,b,c; zipf:1.2, weights:5:3:2, ...; FILE.csv:COLUMN."),
    ] = "uniform",
    prior_from: Annotated[
        str, typer.Option(help="Prior: what a store has of this experiment, if no file is given of this one.")
    ] = "",
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = None,
    risk: Annotated[str, typer.Option(help="The highest belief allowed: 0.25 or 1/4.")] = "",
    factor: Annotated[str, typer.Option(help="Or how often likelier it may become: 2 is doubled.")] = "",
    epsilon: Annotated[
        float | None,
        typer.Option(help="Or ε of a report, nats: gives the beliefs. A file's own is the default."),
    ] = None,
    about: Annotated[
        list[str] | None, typer.Option(help="A label or low:high instead of every value; may be repeated.")
    ] = None,
    reports: Annotated[int | None, typer.Option(help="Reports of a board in its life.")] = None,
    delta: Annotated[float, typer.Option(help="Chance that a belief may pass the risk; 0: none.")] = 1e-6,
    histogram: Annotated[
        int | None, typer.Option(help="Reports in a histogram: beliefs of who sees only that one.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="List the theorems that promise nothing here, too; JSON always does."),
    ] = False,
    output: Pictures = None,
    as_json: AsJson = False,
) -> None:
    """Choose ε from a disclosure risk: what an attacker may come to believe."""
    paths = checked(output, *PICTURES)
    values, at, beliefs = _asked(file, domain, mechanism, prior, prior_from, store, fleet)
    targets = [values.target(text) for text in about] if about else None
    probability("delta", delta)
    if reports is not None:
        whole("the number of reports", reports)
    if risk or factor:
        if epsilon is not None or (risk and factor):
            raise UsageError("give one of --risk, --factor and --epsilon: the others are the answer")
        wanted = Risk(
            fraction(risk, "a risk") if risk else None, fraction(factor, "a factor") if factor else None
        )
        choice = epsilon_local.from_risk(at, values, beliefs, targets, wanted, reports, delta)
        for path in paths:
            from .plot import local_curves  # matplotlib takes a second to load

            local_curves(path, at, beliefs, targets, choice)
        asked = choice.mechanism, choice.beliefs
        answer: Chosen | Seen = choice
    else:
        if epsilon is None and values.bare:
            raise UsageError("say --risk 1/4, --factor 2 or --epsilon 1: what is known of the three")
        own = values.experiment.epsilon if epsilon is None else micro_nats(epsilon, UsageError)
        check_epsilon(own, UsageError, "ε of a report")
        seen = epsilon_local.from_epsilon(at(own), values, beliefs, targets, reports, delta)
        for path in paths:
            from .plot import loss_curve  # matplotlib takes a second to load

            loss_curve(path, beliefs, targets, seen)
        asked = seen.experiment, seen.beliefs
        answer = seen
    experiment, shown = asked
    view = None
    if histogram is not None and experiment is not None:
        limit = answer.allowed.total if isinstance(answer, Chosen) else None
        kept = (fixed(experiment), limit / MICRO) if limit else None
        view = histogram_view(experiment, shown, histogram, reports or 1, delta, kept)
    if as_json:
        told = answers.chosen(answer) if isinstance(answer, Chosen) else answers.seen(answer)
        result = answer.to_dict() | {"answer": told.split("\n")}
        print_json(result | ({"histogram": view.to_dict()} if view else {}))
        return
    if isinstance(answer, Chosen):
        epsilon_show.chosen(answer, everything)
    else:
        epsilon_show.seen(answer)
    if view:
        epsilon_show.histogram(view)
    for path in paths:
        show.out.print(f"wrote {path}")


def _asked(
    file: Path | None,
    domain: int | None,
    mechanism: str,
    prior: str,
    prior_from: str,
    store: str,
    fleet: str | None,
) -> tuple[Values, ByEpsilon, Floats]:
    """The values, the mechanism at any ε, and the prior over the values."""
    if file is not None and domain is not None:
        raise UsageError("give an experiment's file or --domain, not both")
    if prior_from:
        if prior != "uniform" or domain is not None:
            raise UsageError("--prior-from names an experiment of a store: leave --prior and --domain out")
        with Store(store, create=False) as opened:
            newest, shares = _stored(opened, the_fleet(opened, fleet), prior_from)
        experiment = _listed(load(file).experiment()) if file else newest
        if experiment.domain != newest.domain:
            raise UsageError(
                f"{prior_from} has {newest.domain} values, {experiment.name} has {experiment.domain}: "
                "a prior is for the same values"
            )
        return Values(experiment), fixed(experiment), shares
    if file is not None:
        if mechanism != AUTO:
            raise UsageError("an experiment's file has its mechanism: --mechanism goes with --domain")
        experiment = _listed(load(file).experiment())
        return Values(experiment), fixed(experiment), _prior_from_text(prior, experiment)
    if domain is None:
        raise UsageError("say what a board may hold: an experiment's file, or --domain 16")
    values = bare_values(domain)
    at = epsilon_local.chosen(domain, mechanism)
    return values, at, _prior_from_text(prior, values.experiment, bare=True)


_BARE = "hushmote epsilon --domain 1000 --risk 0.5"


def _listed(experiment: Experiment) -> Experiment:
    """The experiment, whose values can be listed. Raises UsageError for a text."""
    if experiment.type == "text":
        raise UsageError(
            f"{experiment.name} is a text, and no list holds all texts: say with --domain how many an "
            f"attacker may think of. However many: {belief(experiment.epsilon / MICRO, 'text')} "
            f"Leave the text itself out: {_BARE}"
        )
    return experiment


# --- What an attacker knows beforehand ------------------------------------------------------------


def _prior_from_text(text: str, experiment: Experiment, bare: bool = False) -> Floats:
    """Return the prior that a text names, shape (domain,).

    "uniform"; probabilities with commas between them, which sum to 1; FILE.csv:COLUMN, the readings of a
    column; or a simulated population such as zipf:1.2, normal:21:3, weights:5:3:2. bare: the experiment
    stands for a number of values only, which have no readings. DisclosureError or PopulationError with one
    line.
    """
    if text == "uniform":
        return uniform(experiment.domain)
    if "," in text:
        given = [float(fraction(x, "a prior's probability")) for x in text.split(",")]
        return checked_prior(given, experiment.domain)
    file, colon, column = text.rpartition(":")
    if colon and file.lower().endswith(".csv"):
        if bare:
            raise DisclosureError("a column of readings needs an experiment's file: it says where they fall")
        return _shares(population.read_csv(file, column, experiment.type), experiment)
    source = population.parse(text)
    if bare and isinstance(source, population.Continuous):
        raise DisclosureError(f"{source.name} is in an experiment's units: give its file, not a domain")
    return _shares(source, experiment)


def _shares(source: population.Population, experiment: Experiment) -> Floats:
    """Shares of the indices among readings; those without a reading are reported as any index."""
    shares = source.probabilities(experiment)
    return checked_prior(shares[:-1] + shares[-1] / experiment.domain, experiment.domain)


def _stored(store: Store, fleet: str, name: str) -> tuple[Experiment, Floats]:
    """Return an experiment of a store and the prior that its reports give: shares, none negative, sum 1.

    All versions with the newest one's values are pooled. UsageError where fleet or name is not there,
    NotAnswered where it has no shares, EstimateError where there are fewer than 2 reports.
    """
    selected = Facts(store).selected(Selection(name, fleet))
    newest = _listed(selected.versions[-1].experiment)
    require([newest], {"frequencies", "pairs"}, "give a prior with --prior, and the experiment's file")
    alike = tuple(v for v in selected.versions if _values(v.experiment) == _values(newest))
    estimates = replace(selected, versions=alike).estimate()
    shares = np.maximum(METHODS["nonnegative"](estimates).frequencies, 0)
    return newest, checked_prior(shares / shares.sum(), newest.domain)


def _values(experiment: Experiment) -> tuple[object, ...]:
    """What an experiment's indices stand for; versions where that is the same go together."""
    return tuple(getattr(experiment, name) for name in ("type", "domain", "low", "high", "labels"))
