"""What an attacker knows beforehand: a prior over an experiment's indices, from a text, a file or a store."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ...device.ldp_client import Experiment
from ...server.answers import query
from ...server.estimate.postprocess import METHODS
from ...server.privacy.beliefs import DisclosureError, Floats, checked_prior, uniform
from ...server.store.store import Store
from ...simulator import population


def fraction(text: str, what: str) -> Fraction:
    """Return the number in "0.25", "1/4" or "1e-6", exactly; DisclosureError otherwise."""
    try:
        return Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        raise DisclosureError(f"{what} is a number such as 0.25 or 1/4, not {text}") from None


def prior_from_text(text: str, experiment: Experiment, bare: bool = False) -> Floats:
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


def stored(store: Store, fleet: str, name: str) -> tuple[Experiment, Floats]:
    """Return an experiment of a store and the prior that its reports give: shares, none negative, sum 1.

    All versions with the newest one's values are pooled. UsageError where fleet or name is not there,
    EstimateError where there are fewer than 2 reports.
    """
    selection = query.Selection(name, fleet)
    versions = query.versions(store, selection)
    newest = versions[-1].experiment
    alike = [v for v in versions if _values(v.experiment) == _values(newest)]
    estimates = query.pooled(store, alike, selection)
    shares = np.maximum(METHODS["nonnegative"](estimates).frequencies, 0)
    return newest, checked_prior(shares / shares.sum(), newest.domain)


def _values(experiment: Experiment) -> tuple[object, ...]:
    """What an experiment's indices stand for; versions where that is the same go together."""
    return tuple(getattr(experiment, name) for name in ("type", "domain", "low", "high", "labels"))
