"""The next steps after creating a fleet's folder, as commands to paste."""

import os
import shlex
import stat
from pathlib import Path

from ...fleet.provisioning import fleet_spec
from ...fleet.provisioning.fleet_folder import FleetFolder
from ...fleet.provisioning.fleet_spec import NATS, FleetSpec

_OTHER_AGGREGATORS = (
    "     and the others likewise, each with its own file; across several machines they",
    "     must share one PostgreSQL store",
)

_BEFORE_BOARDS = " before any board, because it makes NATS store reports:"
_AFTER_BOARDS = ("  5. after adding a board: copy broker/ again, and send each nats-server SIGHUP",)


def first_steps(fleet_folder: FleetFolder, in_environment: bool) -> list[str]:
    """Return the lines to print.

    The commands run in the current folder, so paths below it are relative.

    Args:
        fleet_folder: The new folder.
        in_environment: Whether the keys are in HUSHMOTE_MASTER_KEY.
    """
    folder, fleet = fleet_folder.path.resolve(), fleet_folder.fleet
    aggregator_folder = folder / "aggregator"
    shared = len(fleet.aggregators) > 1
    clustered = fleet.broker == NATS
    # The store is not in aggregator/, which is copied again after each rotation.
    store = "--store " + shlex.quote(f"sqlite:///{_from_here(folder / 'hushmote.sqlite')}")
    serve = ["hushmote serve " + store, f"--broker {_quote(aggregator_folder / 'aggregator_1.toml')}"]
    if not in_environment:
        serve.append(f"--master-key {_quote(aggregator_folder / 'master.key')}")
    if clustered:
        broker_steps = _nats_servers(folder, fleet)
    else:
        broker_steps = [
            "next, in this folder (first copy broker/ and aggregator/ to other machines):",
            "  1. the broker, in a separate terminal:",
            *_commands(*_broker(folder, Path(fleet.broker_folder), fleet.broker_user)),
        ]
    return [
        *broker_steps,
        *_question(folder, fleet, store, in_environment),
        "  3. the aggregator, in a separate terminal" + (_BEFORE_BOARDS if clustered else ":"),
        *_commands(" \\\n  ".join(serve)),
        *(_OTHER_AGGREGATORS if shared else ()),
        "  4. a board:",
        *_commands(f"hushmote provision device --folder {_quote(folder)} --wifi-ssid NAME"),
        *(_AFTER_BOARDS if clustered else ()),
    ]


def _question(folder: Path, fleet: FleetSpec, store: str, in_environment: bool) -> list[str]:
    """Return the lines that add an experiment, which is signed first if the signing key is in a file."""
    if in_environment:
        add = f"hushmote experiment add room_temp.toml --fleet {fleet.fleet} --keys \\\n  {store}"
        return ["  2. the experiment:", *_commands(add)]
    return [
        "  2. the experiment, signed on the machine that has authority/:",
        *_commands(
            f"hushmote experiment sign room_temp.toml --folder {_quote(folder)}",
            f"hushmote experiment add room_temp.signed.json --keys \\\n  {store}",
        ),
    ]


def _nats_servers(folder: Path, fleet: FleetSpec) -> list[str]:
    remote_folder = Path(fleet.broker_folder)
    lines = ["next, in this folder (skip the copying for a server on this machine):"]
    for number, host in enumerate(fleet.hosts, 1):
        source, destination = folder / f"broker/{number}", remote_folder / str(number)
        lines.append(
            f"  1. a server on {host}, in a separate terminal:" if number == 1 else f"    on {host}:"
        )
        if not fleet_spec.is_loopback(host):
            quoted_host, quoted_folder = shlex.quote(host), shlex.quote(str(remote_folder))
            lines += _commands(f"ssh {quoted_host} mkdir -p {quoted_folder}")
            lines += _commands(f"scp -rp {_quote(source)} {quoted_host}:{quoted_folder}/")
        elif destination != source:
            lines += _commands(
                f"mkdir -p {_quote(remote_folder)} && cp -r {_quote(source)} {_quote(remote_folder)}/"
            )
        lines += _commands(f"nats-server -c {_quote(destination / 'nats.conf')}")
    return lines


def _broker(folder: Path, destination: Path, user: str) -> list[str]:
    commands = []
    if destination != folder / "broker":
        commands.append(
            f"mkdir -p {_quote(destination)} && cp -r {_quote(folder / 'broker')}/. {_quote(destination)}"
        )
    # Unless root starts mosquitto, it keeps running as the current user, who already owns the files.
    if os.name == "posix" and os.geteuid() == 0 and user != "root":
        # mosquitto's user needs access to all parent folders.
        inaccessible = [p for p in destination.parents if p.exists() and not p.stat().st_mode & stat.S_IXOTH]
        if inaccessible:
            commands.append("chmod o+x " + " ".join(map(_quote, reversed(inaccessible))))
        commands.append(f"chown -R {shlex.quote(user)}: {_quote(destination)}")
    return [*commands, f"mosquitto -c {_quote(destination / 'mosquitto.conf')}"]


def _commands(*commands: str) -> list[str]:
    return [f"     {line}" for command in commands for line in command.split("\n")]


def _quote(path: Path) -> str:
    return shlex.quote(str(_from_here(path)))


def _from_here(path: Path) -> Path:
    folder = Path.cwd()
    return path.relative_to(folder) if folder in path.parents else path
