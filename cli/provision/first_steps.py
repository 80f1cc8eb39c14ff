"""The next steps after making a fleet's folder, as commands to paste."""

import os
import shlex
import stat
from pathlib import Path

from ...fleet.provisioning import fleet_spec
from ...fleet.provisioning.fleet_folder import FleetFolder
from ...fleet.provisioning.fleet_spec import NATS, FleetSpec

_OTHER_AGGREGATORS = (
    "     and the others alike, each with its own file; those on other machines need",
    "     one PostgreSQL store for all",
)

_BEFORE_BOARDS = ", before any board: it asks NATS to keep reports:"
_AFTER_BOARDS = ("  5. after every new board: copy broker/ again, and send each nats-server SIGHUP",)


def first_steps(fleet_folder: FleetFolder, in_environment: bool) -> list[str]:
    """Return the lines to print.

    The commands are meant for the current folder: paths below it are relative.

    Args:
        fleet_folder: The new folder.
        in_environment: Whether the keys are in HUSHMOTE_MASTER_KEY.
    """
    folder, fleet = fleet_folder.path.resolve(), fleet_folder.fleet
    own = folder / "aggregator"
    shared = len(fleet.aggregators) > 1
    clustered = fleet.broker == NATS
    # Not in aggregator/, which is copied anew after each rotation.
    store = "--store " + shlex.quote(f"sqlite:///{_from_here(folder / 'hushmote.sqlite')}")
    serve = ["hushmote serve " + store, f"--broker {_quote(own / 'aggregator_1.toml')}"]
    if not in_environment:
        serve.append(f"--master-key {_quote(own / 'master.key')}")
    if clustered:
        first = _nats_servers(folder, fleet)
    else:
        first = [
            "next, in this folder; to other machines copy broker/ and aggregator/ first:",
            "  1. the broker, in a terminal of its own:",
            *_commands(*_broker(folder, Path(fleet.broker_folder), fleet.broker_user)),
        ]
    return [
        *first,
        *_question(folder, fleet, store, in_environment),
        "  3. the aggregator, in a terminal of its own" + (_BEFORE_BOARDS if clustered else ":"),
        *_commands(" \\\n  ".join(serve)),
        *(_OTHER_AGGREGATORS if shared else ()),
        "  4. a board:",
        *_commands(f"hushmote provision device --folder {_quote(folder)} --wifi-ssid NAME"),
        *(_AFTER_BOARDS if clustered else ()),
    ]


def _question(folder: Path, fleet: FleetSpec, store: str, in_environment: bool) -> list[str]:
    """Return the lines that add an experiment; with the signing key in a file, it is signed first."""
    if in_environment:
        add = f"hushmote experiment add room_temp.toml --fleet {fleet.fleet} --keys \\\n  {store}"
        return ["  2. what is asked:", *_commands(add)]
    return [
        "  2. what is asked, signed on the machine that keeps authority/:",
        *_commands(
            f"hushmote experiment sign room_temp.toml --folder {_quote(folder)}",
            f"hushmote experiment add room_temp.signed.json --keys \\\n  {store}",
        ),
    ]


def _nats_servers(folder: Path, fleet: FleetSpec) -> list[str]:
    there = Path(fleet.broker_folder)
    lines = ["next, in this folder; leave out the copying where a server is on this machine:"]
    for number, host in enumerate(fleet.hosts, 1):
        here, own = folder / f"broker/{number}", there / str(number)
        lines.append(
            f"  1. a server on {host}, in a terminal of its own:" if number == 1 else f"    on {host}:"
        )
        if not fleet_spec.is_loopback(host):
            at, of_theirs = shlex.quote(host), shlex.quote(str(there))
            lines += _commands(f"ssh {at} mkdir -p {of_theirs}")
            lines += _commands(f"scp -rp {_quote(here)} {at}:{of_theirs}/")
        elif own != here:
            lines += _commands(f"mkdir -p {_quote(there)} && cp -r {_quote(here)} {_quote(there)}/")
        lines += _commands(f"nats-server -c {_quote(own / 'nats.conf')}")
    return lines


def _broker(folder: Path, there: Path, user: str) -> list[str]:
    commands = []
    if there != folder / "broker":
        commands.append(f"mkdir -p {_quote(there)} && cp -r {_quote(folder / 'broker')}/. {_quote(there)}")
    # Unless root starts mosquitto, it keeps running as the current user, who already owns the files.
    if os.name == "posix" and os.geteuid() == 0 and user != "root":
        # The user needs access to all parent folders.
        closed = [p for p in there.parents if p.exists() and not p.stat().st_mode & stat.S_IXOTH]
        if closed:
            commands.append("chmod o+x " + " ".join(map(_quote, reversed(closed))))
        commands.append(f"chown -R {shlex.quote(user)}: {_quote(there)}")
    return [*commands, f"mosquitto -c {_quote(there / 'mosquitto.conf')}"]


def _commands(*commands: str) -> list[str]:
    return [f"     {line}" for command in commands for line in command.split("\n")]


def _quote(path: Path) -> str:
    return shlex.quote(str(_from_here(path)))


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if here in path.parents else path
