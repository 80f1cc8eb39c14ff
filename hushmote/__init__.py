"""Hushmote: private telemetry for fleets of microcontrollers.

    home = hushmote.open("sqlite:///hushmote.sqlite").fleet("home")
    home.experiment("room_temp").estimate().quantile(0.5, 0.95)

See docs/python.md for the rest. Names are loaded on first use, so importing hushmote alone does not load
NumPy, SciPy, SQLAlchemy or matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ._version import VERSION as __version__

if TYPE_CHECKING:
    from hushmote.planning.fleet_plan import FleetPlan, plan
    from hushmote.server.answers.answer import Answer, Answers
    from hushmote.server.answers.fleet_estimate import FleetEstimate
    from hushmote.server.answers.store_reader import ExperimentReader, FleetReader, StoreReader
    from hushmote.server.answers.store_reader import StoreReader as open
    from hushmote.server.errors import HushmoteError
    from hushmote.simulator.faithful import Faults
    from hushmote.simulator.simulate import SimulatedEstimate, simulate

__all__ = [
    "Answer",
    "Answers",
    "ExperimentReader",
    "Faults",
    "FleetEstimate",
    "FleetPlan",
    "FleetReader",
    "HushmoteError",
    "SimulatedEstimate",
    "StoreReader",
    "__version__",
    "open",
    "plan",
    "simulate",
]

_MODULES = {
    "planning.fleet_plan": ("FleetPlan", "plan"),
    "server.answers.answer": ("Answer", "Answers"),
    "server.answers.fleet_estimate": ("FleetEstimate",),
    "server.answers.store_reader": ("ExperimentReader", "FleetReader", "StoreReader"),
    "server.errors": ("HushmoteError",),
    "simulator.faithful": ("Faults",),
    "simulator.simulate": ("SimulatedEstimate", "simulate"),
}


def __getattr__(name: str) -> object:
    attribute = "StoreReader" if name == "open" else name
    for module, names in _MODULES.items():
        if attribute in names:
            return getattr(import_module(f"hushmote.{module}"), attribute)
    raise AttributeError(f"module 'hushmote' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
