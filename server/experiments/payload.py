"""An experiment's JSON from its parts: what boards get, and experiments made up to compute with."""

import json
from collections.abc import Sequence
from typing import Any

from ...device.ldp_client import Experiment
from ..epsilon import nats
from ..errors import HushmoteError
from ..mechanisms import MECHANISMS, mechanism_of
from ..mechanisms.choose import Choice, best_hash, choose
from ..mechanisms.workload import Workload, WorkloadError

AUTO = "auto"
MECHANISM_NAMES = (AUTO, *MECHANISMS)

Fields = dict[str, Any]
"""Some of an experiment's fields, as its JSON has them."""


class NoMechanism(HushmoteError):
    """No mechanism fits a domain at an ε; the text says what to change."""


def payload(
    name: str,
    reading: Fields,
    mechanism: Fields,
    epsilon: int,
    *,
    every: int = 1,
    budget: Fields | None = None,
    window: str = "day",
) -> bytes:
    """Return an experiment's JSON: ASCII, the same bytes every time.

    reading: type, and labels or low, high (milli-units) and bins. epsilon: micro-nats. budget: rule and cap,
    default unlimited. Checks nothing: Experiment.parse does.
    """
    fields = {"v": 1, "name": name, **reading, **mechanism, "epsilon": epsilon, "every": every}
    fields |= {"budget": budget or {"rule": "unlimited"}, "window": window}
    return json.dumps(fields, separators=(",", ":")).encode()


def mechanism_fields(
    name: str,
    g: int | None = None,
    fanout: int | None = None,
    cells: Sequence[int] | None = None,
    weights: Sequence[int] | None = None,
) -> Fields:
    """A mechanism and those of its parameters that are given."""
    fields: Fields = {"mechanism": name}
    fields |= {} if g is None else {"g": g}
    fields |= {} if fanout is None else {"fanout": fanout, "cells": list(cells or ())}
    return fields | ({"weights": list(weights)} if weights else {})


def choice_fields(choice: Choice) -> Fields:
    """The mechanism of a choice, and its parameters."""
    fanout = choice.fanout or None
    return mechanism_fields(choice.mechanism, choice.g or None, fanout, choice.cells, choice.weights)


def chosen_fields(domain: int, epsilon: int, workload: Workload, name: str = AUTO) -> Fields:
    """The mechanism of least variance for a workload, the best olh, or one that has no parameters to choose.

    epsilon: micro-nats. Raises NoMechanism where none fits.
    """
    if name not in (AUTO, "olh", "hh"):
        return mechanism_fields(name)
    try:
        if name != "olh":
            return choice_fields(choose(domain, epsilon, workload))
        channel = best_hash(domain, epsilon)
    except (ValueError, WorkloadError) as e:
        raise NoMechanism(str(e)) from None
    if channel is None:
        raise NoMechanism(f"no olh fits {domain} values at ε = {nats(epsilon)}: take mechanism auto")
    return mechanism_fields("olh", channel.g)


def experiment_over(domain: int, epsilon: int, mechanism: Fields) -> Experiment:
    """An experiment over values without a meaning, with no cap. Raises ExperimentRefused where none fits."""
    number = {"type": "number", "low": 0, "high": 1000 * domain, "bins": domain}
    reading = {"type": "bool"} if domain == 2 else number
    return Experiment.parse(payload("values", reading, mechanism, epsilon))


def at_epsilon(experiment: Experiment, epsilon: int) -> Experiment:
    """The same question and cells at another ε in micro-nats, with no cap. Raises ExperimentRefused."""
    e = experiment
    return Experiment.parse(payload(e.name, reading_fields(e), mechanism_of(e).fields(), epsilon))


def reading_fields(reading: Any) -> Fields:
    """What an experiment's JSON has for what is read; of a pair's part too."""
    fields: Fields = {"type": reading.type}
    if reading.type == "choice":
        fields["labels"] = list(reading.labels)
    elif reading.type == "number":
        fields |= {"low": reading.low, "high": reading.high, "bins": reading.domain}
    elif reading.type == "pair":
        fields["of"] = [{"name": part.name, **reading_fields(part)} for part in reading.parts]
    return fields
