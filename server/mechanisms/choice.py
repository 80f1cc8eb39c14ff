"""A chosen mechanism with its parameters."""

from dataclasses import dataclass
from typing import Any, cast

JOINT = ""
"""The mechanism of a Choice that reports all parts together, by the best mechanism for their number."""


@dataclass(frozen=True)
class Choice:
    """A mechanism and its parameters, as in an Experiment.

    Attributes:
        mechanism: Its name in an experiment.
        parameters: Names and values of its own fields, with lists as tuples, so that a choice is hashable.
        variance: The mean variance over the workload, times reports, in a population without common values.
    """

    mechanism: str
    parameters: tuple[tuple[str, Any], ...]
    variance: float

    def fields(self) -> dict[str, Any]:
        """Return the fields of an experiment's JSON."""
        return {"mechanism": self.mechanism} | {name: _as_lists(value) for name, value in self.parameters}


def _as_lists(value: Any) -> Any:
    return [*map(_as_lists, cast(tuple[Any, ...], value))] if isinstance(value, tuple) else value
