"""A fleet with two questions, and the facts of its statement, for the statement tests."""

import datetime
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from experiments import ROOM
from filled_store import write

from hushmote.fleet.provisioning import flash
from hushmote.fleet.statement import fleet_facts
from hushmote.fleet.statement.fleet_facts import FleetFacts
from hushmote.server.budgets import policy
from hushmote.server.experiments.definition import parse
from hushmote.server.store.store import Store

AT = datetime.datetime(2026, 11, 26, 12, tzinfo=datetime.UTC)
KEPT = ROOM.replace("9999-12-31", '2027-12-31\nkeep = "400d"')
POLICY = replace(policy.policy_for(8, 1e-6, ["room_temp"]), groups=("firmware",))


def firmware(folder: Path) -> Path:
    """Return a custom application with POLICY."""
    path = folder / "main.py"
    path.write_text(policy.replace_policy(flash.EXAMPLE.read_text(), policy.policy_statement(POLICY)))
    return path


def ask(
    store: Store, text: str = "", *, keyed: bool = False, windows: Mapping[str, int] | None = None
) -> None:
    """Add an experiment file to fleet home, with the given reports per window from 20 devices."""
    if "home" not in store.fleets():
        store.add_fleet("home", keyed=keyed)
    definition = parse(text or KEPT)
    experiment = store.add_experiment(
        "home", definition.payload(), definition.expires, description=definition.description()
    )
    counts = {(window, 3): n for window, n in (windows or {}).items()}
    write(store, "home", experiment, counts, [f"b{i}" for i in range(20)] if counts else ())


def facts_of(store: Store, folder: Path) -> FleetFacts:
    """Return the facts of fleet home at AT, for boards with firmware()."""
    return fleet_facts.read(store, "home", None, firmware(folder), AT)
