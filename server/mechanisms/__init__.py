"""What the server knows of each mechanism: a line for each here, a file for each family beside."""

from collections.abc import Mapping
from types import MappingProxyType

from ...device.ldp_client import Experiment
from .direct import Direct
from .hierarchy import Hierarchy
from .local_hashing import LocalHashing
from .mechanism import Mechanism, Stratum
from .views import Views

MECHANISMS: Mapping[str, type[Mechanism]] = MappingProxyType(
    {
        "rr": Direct,
        "grr": Direct,
        "olh": LocalHashing,
        "hh": Hierarchy,
        "views": Views,
    }
)
"""Mechanisms by the word that an experiment has for each."""


def mechanism_of(experiment: Experiment) -> Mechanism:
    """The mechanism of an experiment."""
    return MECHANISMS[experiment.mechanism](experiment)


__all__ = ["MECHANISMS", "Mechanism", "Stratum", "mechanism_of"]
