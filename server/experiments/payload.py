"""An experiment's JSON from its parts: what boards get, and experiments made up to compute with."""

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
from ..wire.experiments import parse_experiment, value_count

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
    default unlimited. Checks nothing: who parses it does.
    """
    fields = {"v": 1, "name": name, **reading, **mechanism, "epsilon": epsilon, "every": every}
    fields |= {"budget": budget or {"rule": "unlimited"}, "window": window}
    return json.dumps(fields, separators=(",", ":")).encode()


def mechanism_fields(name: str, **parameters: Any) -> Fields:
    """A mechanism and its parameters as its JSON has them; what is None is left out."""
    return Choice(name, tuple((k, v) for k, v in parameters.items() if v is not None), 0.0).fields()


def chosen_fields(
    domain: int, epsilon: int, workload: Workload, name: str = AUTO, missing: bool = False
) -> Fields:
    """The mechanism of least variance for a workload, or the parameters of the one of this name.

    A name that is not for the workload is chosen for what it is for. epsilon: micro-nats. missing: whether
    the last index is that of no reading. Raises NoMechanism where none fits.
    """
    try:
        if name == AUTO:
            return choose(domain, epsilon, workload, missing).fields()
        if workload.kind == "list":  # others go on with what the mechanism is for
            suited = {choice.mechanism for choice in designs(domain, epsilon, workload)}
            if name not in suited:
                raise NoMechanism("ranges are what the mechanism is chosen for: leave the mechanism out")
        if not class_of(name).parameters:
            return mechanism_fields(name)
        others = () if workload.kind == "list" else (FREQUENCIES, ALL_RANGES, MEAN)
        for asked in dict.fromkeys((workload, *others)):
            with contextlib.suppress(ValueError):
                return min(designs(domain, epsilon, asked, name), key=lambda choice: choice.variance).fields()
    except (ValueError, WorkloadError) as e:
        raise NoMechanism(str(e)) from None
    raise NoMechanism(f"no {name} fits {domain} values at ε = {nats(epsilon)}: take mechanism auto")


def experiment_over(domain: int, epsilon: int, mechanism: Fields) -> Experiment:
    """An experiment over values without a meaning, with no cap. Raises ExperimentRefused where none fits."""
    number = {"type": "number", "low": 0, "high": 1000 * domain, "bins": domain}
    reading = {"type": "bool"} if domain == 2 else number
    return parse_experiment(payload("values", reading, mechanism, epsilon))


def at_epsilon(experiment: Experiment, epsilon: int) -> Experiment:
    """The same question and cells at another ε in micro-nats, with no cap. Raises ExperimentRefused."""
    e = experiment
    return parse_experiment(payload(e.name, reading_fields(e), mechanism_of(e).fields(), epsilon))


def reading_fields(reading: Any) -> Fields:
    """What an experiment's JSON has for what is read; of a pair's part too."""
    fields: Fields = {"type": reading.type}
    if reading.type == "choice":
        fields["labels"] = list(reading.labels)
    elif reading.type == "number":
        fields |= {"low": reading.low, "high": reading.high, "bins": value_count(reading)}
    elif reading.type == "text":
        own = vars(reading)  # which device/ldp_text.py has set
        fields |= {"salt": own["salt"].decode(), "slots": own["slots"]}
        fields |= {"prefixes": list(own["prefixes"])} if own["prefixes"] else {}
    elif reading.type == "pair":
        fields["of"] = [{"name": part.name, **reading_fields(part)} for part in reading.parts]
    if value_count(reading) < reading.domain:
        fields["missing"] = 1
    return fields
