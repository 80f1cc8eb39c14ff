"""Build an experiment's JSON for boards and for computations."""

import contextlib
import json
from typing import Any

from ...device.ldp_client import Experiment
from ..epsilon import nats
from ..errors import HushmoteError
from ..mechanisms import MECHANISMS, class_of, mechanism_of
from ..mechanisms.choice import Choice
from ..mechanisms.choose import choose, designs
from ..mechanisms.workload import ALL_RANGES, FREQUENCIES, MEAN, Workload, WorkloadError
from ..wire.experiments import parse_experiment, scale_of, value_count

AUTO = "auto"
MECHANISM_NAMES = (AUTO, *MECHANISMS)

Fields = dict[str, Any]
"""A subset of an experiment's JSON fields."""


class NoMechanism(HushmoteError):
    """Raised if no mechanism fits a domain at an ε; the message says what to change."""


def payload(
    name: str,
    reading: Fields,
    mechanism: Fields,
    epsilon: int,
    *,
    every: int | list[int] = 1,
    group: Fields | None = None,
    budget: Fields | None = None,
    window: str = "day",
) -> bytes:
    """Return an experiment's JSON in UTF-8 without escapes, always the same bytes.

    The arguments are checked by the parser rather than here.

    Args:
        name: The experiment's name.
        reading: The reading's type, and its labels or low, high (milli-units) and bins.
        mechanism: The mechanism's fields.
        epsilon: ε of a report, in micro-nats.
        every: The average number of calls per report; with a group, optionally a list with each value's.
        group: The fields group and groups, if the experiment has an open group.
        budget: The rule and cap; by default unlimited.
        window: "hour", "day" or "all".
    """
    fields = {"v": 1, "name": name, **reading, **mechanism, "epsilon": epsilon, "every": every}
    fields |= group or {}
    fields |= {"budget": budget or {"rule": "unlimited"}, "window": window}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def mechanism_fields(name: str, **parameters: Any) -> Fields:
    """Return the JSON fields of a mechanism and its parameters, omitting those that are None."""
    return Choice(name, tuple((k, v) for k, v in parameters.items() if v is not None), 0.0).fields()


def chosen_fields(
    domain: int, epsilon: int, workload: Workload, name: str = AUTO, missing: bool = False
) -> Fields:
    """Return the mechanism with the least variance for a workload, or a named mechanism's parameters.

    A named mechanism that does not suit the workload gets the parameters for a workload that it does suit.

    Args:
        domain: The number of indices.
        epsilon: ε of a report, in micro-nats.
        workload: The statistics to estimate.
        name: The mechanism, or AUTO.
        missing: Whether the last index represents a missing reading.

    Raises:
        NoMechanism: If no mechanism fits.
    """
    try:
        if name == AUTO:
            return choose(domain, epsilon, workload, missing).fields()
        if workload.kind == "list":  # only other kinds may use a workload that suits the mechanism
            suitable = {choice.mechanism for choice in designs(domain, epsilon, workload)}
            if name not in suitable:
                raise NoMechanism("the mechanism is chosen for the ranges: omit mechanism and its parameters")
        if not class_of(name).parameters:
            return mechanism_fields(name)
        others = () if workload.kind == "list" else (FREQUENCIES, ALL_RANGES, MEAN)
        for candidate in dict.fromkeys((workload, *others)):
            with contextlib.suppress(ValueError):
                return min(
                    designs(domain, epsilon, candidate, name), key=lambda choice: choice.variance
                ).fields()
    except (ValueError, WorkloadError) as e:
        raise NoMechanism(str(e)) from None
    raise NoMechanism(f"{name} does not fit {domain} values at ε = {nats(epsilon)}: use mechanism auto")


def experiment_over(domain: int, epsilon: int, mechanism: Fields) -> Experiment:
    """Return an experiment over arbitrary values, without a cap.

    Raises:
        ExperimentRefused: If the experiment is invalid.
    """
    number = {"type": "number", "low": 0, "high": 1000 * domain, "bins": domain}
    reading = {"type": "bool"} if domain == 2 else number
    return parse_experiment(payload("values", reading, mechanism, epsilon))


def at_epsilon(experiment: Experiment, epsilon: int) -> Experiment:
    """Return an experiment with the same question and cells at another ε in micro-nats, without a cap.

    Raises:
        ExperimentRefused: If the new experiment is invalid.
    """
    e = experiment
    return parse_experiment(payload(e.name, reading_fields(e), mechanism_of(e).fields(), epsilon))


def reading_fields(reading: Any) -> Fields:
    """Return the JSON fields of an experiment's reading, or of a pair's part."""
    fields: Fields = {"type": reading.type}
    if reading.type == "choice":
        fields["labels"] = list(reading.labels)
    elif reading.type == "number":
        fields |= {"low": reading.low, "high": reading.high, "bins": value_count(reading)}
        fields |= {"scale": scale} if (scale := scale_of(reading)) else {}
    elif reading.type == "text":
        attributes = vars(reading)  # set by device/ldp_text.py
        fields |= {"salt": attributes["salt"].decode(), "slots": attributes["slots"]}
        fields |= {"prefixes": list(attributes["prefixes"])} if attributes["prefixes"] else {}
    elif reading.type == "pair":
        fields["of"] = [{"name": part.name, **reading_fields(part)} for part in reading.parts]
    if value_count(reading) < reading.domain:
        fields["missing"] = 1
    return fields
