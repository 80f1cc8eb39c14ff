"""A chosen mechanism with its parameters."""

from dataclasses import dataclass
from typing import Any, cast

JOINT = ""
"""The mechanism of a Choice that asks for all parts together, in the best way for their number."""


@dataclass(frozen=True)
class Choice:
    """A mechanism and its parameters, as an Experiment takes them.

    mechanism   the word that an experiment has for it
    parameters  names and values of its own fields; lists are tuples, so that a choice can be a key
    variance    times reports: mean variance over the workload, of a population without common values
    """

    mechanism: str
    parameters: tuple[tuple[str, Any], ...]
    variance: float

    def fields(self) -> dict[str, Any]:
        """The same as in an experiment's JSON."""
        return {"mechanism": self.mechanism} | {name: _listed(value) for name, value in self.parameters}


def _listed(value: Any) -> Any:
    return [*map(_listed, cast(tuple[Any, ...], value))] if isinstance(value, tuple) else value
