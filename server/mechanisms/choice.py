"""A mechanism chosen for an experiment, with its parameters."""

from dataclasses import dataclass
from typing import Any, cast

JOINT = ""
"""The mechanism name in a Choice that reports all parts jointly with the table's best mechanism."""


@dataclass(frozen=True)
class Choice:
    """A mechanism and its parameters, as in an Experiment.

    Attributes:
        mechanism: The mechanism's name in experiments.
        parameters: The names and values of the mechanism's fields, with tuples for lists to keep a Choice
            hashable.
        variance: The workload's mean variance multiplied by the number of reports, for a population without
            common values.
    """

    mechanism: str
    parameters: tuple[tuple[str, Any], ...]
    variance: float

    def fields(self) -> dict[str, Any]:
        """Return the mechanism's fields in an experiment's JSON."""
        return {"mechanism": self.mechanism} | {name: _as_lists(value) for name, value in self.parameters}


def _as_lists(value: Any) -> Any:
    return [*map(_as_lists, cast(tuple[Any, ...], value))] if isinstance(value, tuple) else value
