"""`hushmote epsilon`: choose ε for a disclosure risk, or show how much a given ε discloses."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ...device.ldp_client import Experiment
from ...planning.privacy.beliefs import (
    ByEpsilon,
    DisclosureError,
    Floats,
    Risk,
    fixed_mechanism,
    fraction,
    normalize_prior,
    uniform,
)
from ...planning.privacy.histogram import histogram_view
from ...planning.privacy.questions import (
    Attacker,
    EpsilonBeliefs,
    RiskEpsilons,
    Values,
    bare_values,
    choose_mechanism,
    from_epsilon,
    from_risk,
)
from ...planning.tables import split_source
from ...server.accounting.errors import probability, whole_number
from ...server.answers import tables as show
from ...server.answers.query import Facts, Selection
from ...server.epsilon import MICRO, check_epsilon, micro_nats
from ...server.errors import UsageError
from ...server.estimate.postprocess import METHODS
from ...server.experiments.answerable import require
from ...server.experiments.definition import load
from ...server.experiments.payload import AUTO, MECHANISM_NAMES
from ...server.store.store import Store
from ...server.typed_numbers import plain_whole_number
from ...server.wire.experiments import scale_of
from ...server.words.epsilon import belief
from ...server.words.experiment import unprotected
from ...simulator import population
from ..options import DEFAULT_STORE, AsJson, StoreUrl, choose_fleet, on_command_line, print_json
from ..output import PICTURES, Pictures, check_paths
from . import tables


def epsilon_command(  # noqa: PLR0913 - one for each option
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE|N|N:MECHANISM",
            help="A device's possible values: an experiment's TOML file, or a number of values, with the "
            f"best mechanism for frequencies or one of {', '.join(MECHANISM_NAMES[1:])}.",
        ),
    ] = "",
    risk: Annotated[
        str, typer.Option(help="Highest belief allowed: 0.25 or 1/4, or x2 for twice as likely as before.")
    ] = "",
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="ε of a report, in nats, instead of --risk, to see the beliefs; default: the file's ε."
        ),
    ] = None,
    prior: Annotated[
        str,
        typer.Option(
            help="uniform; probabilities a,b,c; zipf:1.2, weights:5:3:2, ...; FILE.csv:COLUMN; "
            "EXPERIMENT@FLEET, from a store."
        ),
    ] = "uniform",
    store: StoreUrl = DEFAULT_STORE,
    about: Annotated[
        list[str] | None,
        typer.Option(help="Label or low:high range to protect instead of every value; may be repeated."),
    ] = None,
    reports: Annotated[int | None, typer.Option(help="Number of reports in a device's lifetime.")] = None,
    delta: Annotated[float, typer.Option(help="Chance that a belief may exceed the risk.")] = 1e-6,
    histogram: Annotated[
        int | None,
        typer.Option(
            help="Number of reports in a histogram; shows the beliefs of someone who sees only the histogram."
        ),
    ] = None,
    output: Pictures = None,
    as_json: AsJson = False,
) -> None:
    """Choose ε from a disclosure risk: what an attacker may come to believe."""
    paths = check_paths(output, *PICTURES)
    if reports is None and histogram is None and on_command_line(context, "delta"):
        raise UsageError("--delta applies to several reports: add --reports or --histogram, or omit --delta")
    if "@" not in prior and on_command_line(context, "store"):
        raise UsageError("--store has the prior: add --prior EXPERIMENT@FLEET, or omit --store")
    values, mechanism_by_epsilon, known_prior = _load_values(what, prior, store)
    targets = tuple(values.target(text) for text in about) if about else None
    probability("delta", delta)
    if reports is not None:
        whole_number("the number of reports", reports)
    attacker = Attacker(values, mechanism_by_epsilon, known_prior, targets, reports, delta)
    answer = _answer(attacker, risk, epsilon)
    experiment = answer.mechanism if isinstance(answer, RiskEpsilons) else answer.experiment
    for path in paths:
        from . import plot  # matplotlib takes a second to load

        plot.plot(path, attacker, answer)
    view = None
    if histogram is not None and experiment is not None:
        limit = answer.allowed.total if isinstance(answer, RiskEpsilons) else None
        local_view = (fixed_mechanism(experiment), limit / MICRO) if limit else None
        reports_each = reports or 1
        view = histogram_view(experiment, answer.beliefs, histogram, reports_each, delta, local_view)
    sentences = [*tables.describe(answer).split("\n"), *filter(None, [unprotected(values.experiment)])]
    if as_json:
        print_json(answer.to_dict() | {"answer": sentences} | ({"histogram": view.to_dict()} if view else {}))
        return
    show.out.print("\n".join(sentences))
    if isinstance(answer, RiskEpsilons):
        tables.print_choice(answer)
    else:
        tables.print_view(answer)
    if view:
        tables.print_histogram(view)
    for path in paths:
        show.out.print(f"wrote {path}")


def _answer(attacker: Attacker, risk: str, epsilon: float | None) -> RiskEpsilons | EpsilonBeliefs:
    if risk:
        if epsilon is not None:
            raise UsageError("give either --risk or --epsilon: the command computes the other")
        factor = risk.startswith("x")
        limit = fraction(risk.removeprefix("x"), "a factor" if factor else "a risk")
        return from_risk(attacker, Risk(factor=limit) if factor else Risk(limit))
    if epsilon is None and attacker.values.bare:
        raise UsageError("give --risk 1/4, --risk x2 or --epsilon 1")
    report_epsilon = (
        attacker.values.experiment.epsilon if epsilon is None else micro_nats(epsilon, UsageError)
    )
    check_epsilon(report_epsilon, UsageError, "ε of a report")
    return from_epsilon(attacker, report_epsilon)


def _load_values(what: str, prior: str, store: str) -> tuple[Values, ByEpsilon, Floats]:
    name, stored, fleet = prior.rpartition("@")
    number, _, mechanism = what.partition(":")
    number = plain_whole_number(number)
    bare = number.isascii() and number.isdecimal()
    newest = shares = None
    if stored:
        if bare:
            raise UsageError(f"{prior} is an experiment in a store; omit the number of values")
        with Store(store, create=False) as opened:
            newest, shares = _read_stored(opened, choose_fleet(opened, fleet or None), name)
    if bare:
        values = bare_values(int(number))
        mechanism_by_epsilon = choose_mechanism(values.experiment.domain, mechanism or AUTO)
        return values, mechanism_by_epsilon, _prior_from_text(prior, values.experiment, bare=True)
    if not what and newest is None:
        raise UsageError("give an experiment's file, or a number of values such as 16")
    experiment = _require_listable(load(Path(what)).experiment()) if what else newest
    assert experiment is not None
    if newest is not None and experiment.domain != newest.domain:
        raise UsageError(
            f"{name} has {newest.domain} values, {experiment.name} has {experiment.domain}: "
            "a prior must have the same values"
        )
    shares = _prior_from_text(prior, experiment) if shares is None else shares
    return Values(experiment), fixed_mechanism(experiment), shares


def _require_listable(experiment: Experiment) -> Experiment:
    """Return the experiment, or raise UsageError if its values are texts, which cannot be listed."""
    if experiment.type == "text":
        raise UsageError(
            f"{experiment.name} has type text, and texts cannot all be listed; give the number of texts "
            "that an attacker may consider instead. For any number: "
            f"{belief(experiment.epsilon / MICRO, 'text')} Example: hushmote epsilon 1000 --risk 0.5"
        )
    return experiment


def _prior_from_text(text: str, experiment: Experiment, bare: bool = False) -> Floats:
    """Return the prior that a text describes, with shape (domain,).

    The text is "uniform"; probabilities separated by commas, which sum to 1; FILE.csv:COLUMN for the readings
    in a column; or a simulated population such as zipf:1.2, normal:21:3 or weights:5:3:2. With `bare`, the
    experiment represents only a number of values, without readings.
    """
    if text == "uniform":
        return uniform(experiment.domain)
    if "," in text:
        probabilities = [float(fraction(x, "a prior's probability")) for x in text.split(",")]
        return normalize_prior(probabilities, experiment.domain)
    file, column = split_source(text)
    if Path(file).is_file() or file.lower().endswith(".csv"):
        if bare:
            raise DisclosureError(
                "a column of readings requires an experiment file, which defines the values"
            )
        source = population.read_csv(file, column, experiment.type, experiment.labels)
    else:
        source = population.parse(text)
    if bare and isinstance(source, population.Continuous):
        raise DisclosureError(
            f"{source.name} is in an experiment's units; give the experiment's file, not a number"
        )
    shares = source.probabilities(experiment)  # missing readings are reported as a random index
    return normalize_prior(shares[:-1] + shares[-1] / experiment.domain, experiment.domain)


def _read_stored(store: Store, fleet: str, name: str) -> tuple[Experiment, Floats]:
    """Return a stored experiment and the prior from its reports: nonnegative shares that sum to 1.

    All versions with the same values as the newest one are pooled.

    Raises:
        UsageError: If the fleet or name is unknown.
        UnanswerableError: If the experiment does not estimate shares.
        EstimateError: If there are fewer than 2 reports.
    """
    selected = Facts(store).selected(Selection(name, fleet))
    newest = _require_listable(selected.newest.experiment)
    require([newest], {"frequencies", "pairs"}, "give another prior, and the experiment's file")
    poolable = tuple(v for v in selected.versions if _value_key(v.experiment) == _value_key(newest))
    estimates = replace(selected, versions=poolable).estimate()
    shares = np.maximum(METHODS["nonnegative"](estimates).frequencies, 0)
    return newest, normalize_prior(shares / shares.sum(), newest.domain)


def _value_key(experiment: Experiment) -> tuple[object, ...]:
    """Return the meaning of an experiment's indices; versions with equal keys are pooled."""
    values = (getattr(experiment, name) for name in ("type", "domain", "low", "high", "labels"))
    return (*values, scale_of(experiment))
