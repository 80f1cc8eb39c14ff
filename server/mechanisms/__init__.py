"""The server's side of every mechanism: a registry, and one module or package for each family."""

from collections.abc import Mapping
from types import MappingProxyType

from ...device.ldp_client import Experiment
from ..wire.experiments import is_own
from .custom import MechanismError, mechanism_class, own_code
from .direct import Direct
from .hashing.local_hashing import LocalHashing
from .mechanism import Mechanism, Stratum, TextSearch
from .points.pgr import ProjectiveGeometry
from .points.prefix import Prefix
from .sw import SquareWave
from .tree.hierarchy import Hierarchy
from .views.tables import Views

MECHANISMS: Mapping[str, type[Mechanism]] = MappingProxyType(
    {
        "rr": Direct,
        "grr": Direct,
        "olh": LocalHashing,
        "hh": Hierarchy,
        "pgr": ProjectiveGeometry,
        "sw": SquareWave,
        "prefix": Prefix,
        "views": Views,
    }
)
"""Mechanisms by their name in an experiment."""


def class_of(word: str) -> type[Mechanism]:
    """Return the mechanism of this name: from the registry, or your own by package.module:Class.

    Raises:
        MechanismError: If there is no such mechanism.
    """
    if word in MECHANISMS:
        return MECHANISMS[word]
    if is_own(word):
        return mechanism_class(word)
    names = ", ".join(MECHANISMS)
    raise MechanismError(
        f"there is no mechanism {word!r:.100}: take {names}, or your own as package.module:Class"
    )


def mechanism_of(experiment: Experiment) -> Mechanism:
    """Return the mechanism of an experiment.

    Raises:
        MechanismError: If your own cannot be loaded or made.
    """
    mechanism = class_of(experiment.mechanism)
    with own_code(experiment.mechanism, "constructor"):
        return mechanism(experiment)


__all__ = ["MECHANISMS", "Mechanism", "MechanismError", "Stratum", "TextSearch", "class_of", "mechanism_of"]
