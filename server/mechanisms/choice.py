"""A chosen mechanism with its parameters."""

from dataclasses import dataclass
from typing import Any, cast

JOINT = ""
"""The mechanism of a Choice that reports all parts together, by the best mechanism for their number."""


@dataclass(frozen=True)
class Choice:
    """A mechanism and its parameters, as in an Experiment.

    mechanism   its name in an experiment
    parameters  names and values of its own fields; lists are tuples, so that a choice is hashable
    variance    times reports: mean variance over the workload, of a population without common values
    """

    mechanism: str
    parameters: tuple[tuple[str, Any], ...]
    variance: float

    def fields(self) -> dict[str, Any]:
        """Return the fields of an experiment's JSON."""
        return {"mechanism": self.mechanism} | {name: _as_lists(value) for name, value in self.parameters}


def _as_lists(value: Any) -> Any:
    return [*map(_as_lists, cast(tuple[Any, ...], value))] if isinstance(value, tuple) else value
