"""What is left to do when a fleet's folder has been made, as commands that can be pasted."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from ...server.provisioning.fleet_folder import FleetFolder

_OTHERS = (
    "     and the others alike, each with its own number; those on other machines need",
    "     one PostgreSQL store for all",
)


def first_steps(made: FleetFolder, in_environment: bool) -> list[str]:
    """Return the lines; in_environment: whether the keys are in HUSHMOTE_MASTER_KEY.

    Every path is absolute, so that no command makes a second, empty store where it happens to be run.
    """
    folder, fleet = made.path.resolve(), made.fleet
    own = folder / "aggregator"
    shared = len(fleet.aggregators) > 1
    # Not in aggregator/, which is copied again after each rotation.
    store = "--store " + _quoted(f"sqlite:///{folder}/hushmote.sqlite")
    port = fleet.aggregator_port or fleet.port
    pem = _quoted(own / "aggregator_1.pem")
    serve = [
        "hushmote serve " + store,
        f"--broker mqtts://{fleet.hosts[0]}:{port} --ca {_quoted(own / 'ca.pem')}",
        f"--cert {pem}",
    ]
    if not in_environment:
        serve.append(f"--master-key {_quoted(own / 'master.key')}")
    if shared:
        serve.append(f"--share $(cat {_quoted(own / 'share')}) --client-id aggregator_1")
    return [
        "next, here if this is the machine; else copy broker/ and aggregator/ to theirs first:",
        "  1. the broker, in a terminal of its own:",
        *_commands(*_broker(folder, Path(fleet.broker_folder), fleet.broker_user)),
        "  2. what is asked:",
        *_commands(f"hushmote experiment add room_temp.toml --fleet {fleet.fleet} --keys \\\n  {store}"),
        "  3. the aggregator, in a terminal of its own:",
        *_commands(" \\\n  ".join(serve)),
        *(_OTHERS if shared else ()),
        "  4. a board:",
        *_commands(f"hushmote provision device --folder {_quoted(folder)} --wifi-ssid NAME"),
    ]


def _broker(folder: Path, there: Path, user: str) -> list[str]:
    commands = []
    if there != folder / "broker":
        commands.append(f"mkdir -p {_quoted(there)} && cp -r {_quoted(folder / 'broker')}/. {_quoted(there)}")
    # mosquitto that is not started by root stays who starts it: then all files are its own already.
    if os.name == "posix" and os.geteuid() == 0 and user != "root":
        # Its user must pass through all folders on the way.
        closed = [p for p in there.parents if p.exists() and not p.stat().st_mode & stat.S_IXOTH]
        if closed:
            commands.append("chmod o+x " + " ".join(map(_quoted, reversed(closed))))
        commands.append(f"chown -R {shlex.quote(user)}: {_quoted(there)}")
    return [*commands, f"mosquitto -c {_quoted(there / 'mosquitto.conf')}"]


def _commands(*commands: str) -> list[str]:
    return [f"     {line}" for command in commands for line in command.split("\n")]


def _quoted(what: Path | str) -> str:
    return shlex.quote(str(what))
