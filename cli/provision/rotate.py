"""`hushmote provision rotate` and `aggregator`: new keys for a fleet that is running."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import Annotated

import typer

from ...server.answers import tables as show
from ...server.provisioning import fleet_folder, rotation
from ...server.provisioning.fleet_folder import FleetFolder, now_utc
from ..options import AsJson, print_json
from .first_steps import put_connections
from .options import Folder, open_folder

rotate_app = typer.Typer(
    help="New keys and certificates, with an overlap that --finish ends.", no_args_is_help=True
)

Finish = Annotated[
    bool, typer.Option("--finish", help="End the overlap: only the new ones hold from now on.")
]


def say(done: rotation.Rotated, as_json: bool) -> None:
    """Print what was done and what is left to do."""
    if as_json:
        print_json(dataclasses.asdict(done))
        return
    for line in done.done:
        show.out.print(line)
    say_next(done.left)


def say_next(lines: Sequence[str]) -> None:
    """Print what a person has to do now, one item under the other."""
    show.out.print("next:")
    for line in lines:
        text = textwrap.fill(
            line,
            show.out.width,
            initial_indent="  - ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        show.out.print(text, soft_wrap=True)


@rotate_app.command("broker")
def rotate_broker(
    folder: Folder = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name or address of the broker from now on; else those it has.", show_default=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """A new key and certificate for the broker; boards need not know."""
    opened = open_folder(folder, signs=True)
    _say_connected(opened, rotation.rotate_broker(opened, host or (), now_utc()), as_json)


@rotate_app.command("aggregator")
def rotate_aggregator(folder: Folder = None, finish: Finish = False, as_json: AsJson = False) -> None:
    """New keys and certificates for the aggregators; --finish revokes the old ones."""
    opened = open_folder(folder, signs=True)
    step = rotation.finish_aggregator if finish else rotation.rotate_aggregator
    say(step(opened, now_utc()), as_json)


@rotate_app.command("ca")
def rotate_ca(
    folder: Folder = None,
    finish: Finish = False,
    cut_off: Annotated[
        bool, typer.Option("--cut-off", help="Finish although boards know only the old one.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """A new authority, trusted beside the old one until --finish."""
    opened = open_folder(folder, signs=True)
    done = (
        rotation.finish_ca(opened, now_utc(), cut_off=cut_off)
        if finish
        else rotation.rotate_ca(opened, now_utc())
    )
    say(done, as_json)


@rotate_app.command("master")
def rotate_master(folder: Folder = None, finish: Finish = False, as_json: AsJson = False) -> None:
    """A new master key; boards go on, and tags under the old one count until --finish."""
    opened = open_folder(folder)
    say(rotation.finish_master(opened) if finish else rotation.rotate_master(opened), as_json)


@rotate_app.command("signing")
def rotate_signing(folder: Folder = None, as_json: AsJson = False) -> None:
    """A new key that signs experiments; boards refuse them until they are flashed."""
    say(rotation.rotate_signing(open_folder(folder)), as_json)


def door_command(folder: Folder = None, as_json: AsJson = False) -> None:
    """A certificate for the HTTP door; one that it had is revoked."""
    opened = open_folder(folder, signs=True)
    _say_connected(opened, rotation.put_door(opened, now_utc()), as_json)


def aggregator_command(folder: Folder = None, as_json: AsJson = False) -> None:
    """A certificate and rights for one more aggregator, to share the reports with the others."""
    opened = open_folder(folder, signs=True)
    _say_connected(opened, rotation.add_aggregator(opened, now_utc()), as_json)


def _say_connected(folder: FleetFolder, done: rotation.Rotated, as_json: bool) -> None:
    """Write anew how aggregators and the door connect, and say what was done."""
    put_connections(fleet_folder.find(folder.path))
    say(done, as_json)
