"""The server side of all mechanisms: a registry, and one module or package per family."""

from collections.abc import Mapping
from types import MappingProxyType

from ...device.ldp_client import Experiment
from ..wire.experiments import is_own
from .common_values import CommonValues, VersionView
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
"""The mechanism classes, by their names in experiments."""


def class_of(word: str) -> type[Mechanism]:
    """Return the mechanism class with this name: a registered one or a custom package.module:Class.

    Raises:
        MechanismError: If the name is unknown.
    """
    if word in MECHANISMS:
        return MECHANISMS[word]
    if is_own(word):
        return mechanism_class(word)
    names = ", ".join(MECHANISMS)
    raise MechanismError(
        f"unknown mechanism {word!r:.100}; choose from {names}, or give package.module:Class"
    )


def mechanism_of(experiment: Experiment) -> Mechanism:
    """Return an experiment's mechanism.

    Raises:
        MechanismError: If a custom mechanism cannot be loaded or constructed.
    """
    if isinstance(experiment, VersionView):
        return CommonValues(experiment, mechanism_of(experiment.original))
    mechanism = class_of(experiment.mechanism)
    with own_code(experiment.mechanism, "constructor"):
        return mechanism(experiment)


__all__ = ["MECHANISMS", "Mechanism", "MechanismError", "Stratum", "TextSearch", "class_of", "mechanism_of"]
