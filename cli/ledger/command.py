"""`hushmote ledger`: the remaining budgets of a fleet or a board, and when they will run out."""

import datetime
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ...server.answers import tables as show
from ...server.budgets import board_status, policy, words
from ...server.budgets import remaining as fleet_ledger
from ...server.budgets.board_status import BoardStatus
from ...server.budgets.policy import Policy
from ...server.budgets.remaining import FleetLedger, Remaining
from ...server.epsilon import MICRO
from ...server.errors import UsageError
from ...server.plain import plain
from ...server.store.store import Store
from ...server.store.versions import check_readable
from ...server.words.numbers import counted
from ..options import DEFAULT_STORE, AsJson, FleetName, PolicyFile, StoreUrl, choose_fleet, print_json
from ..output import PICTURES, Pictures, check_paths

# Split each heading into two lines so that eight columns fit into 80 characters.
_HEADINGS = ("experiment", "ε", "per new\ndevice", *(text.replace(" ", "\n", 1) for text in words.HEADINGS))


def ledger_command(  # noqa: PLR0913 - one for each option
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = None,
    policy_file: PolicyFile = None,
    devices: Annotated[
        int | None,
        typer.Option(help="Number of devices in the field, whether or not they have reported.", min=1),
    ] = None,
    days: Annotated[int, typer.Option(help="Number of full days to average the rate over.", min=1)] = 7,
    device: Annotated[list[str] | None, typer.Option(help="Also show this device; may be repeated.")] = None,
    status: Annotated[
        Path | None,
        typer.Option(
            help="Show one device instead, from a file with its client.status(), or - for standard input."
        ),
    ] = None,
    per_day: Annotated[
        float | None, typer.Option(help="With --status: number of reports that the device makes per day.")
    ] = None,
    output: Pictures = None,
    as_json: AsJson = False,
) -> None:
    """Show devices' remaining budgets, and when they run out at the current rate."""
    paths = check_paths(output, *PICTURES)
    board_policy = None if policy_file is None else policy.read(policy_file)
    if status is not None:
        if paths or device or devices is not None:
            raise UsageError("--output, --device and --devices apply to a fleet; omit them, or omit --status")
        text = sys.stdin.read() if str(status) == "-" else policy.read_text(status)
        _board(board_status.parse(text), board_policy, per_day, as_json)
        return
    if per_day is not None:
        raise UsageError("--per-day requires --status; a fleet's rate comes from its store")
    today = datetime.datetime.now(datetime.UTC).date()
    with Store(store, create=False) as opened:
        ledger = fleet_ledger.read(
            opened, choose_fleet(opened, fleet), today, board_policy, devices, device or ()
        )
    lines = ledger.lines(today, days)
    for path in paths:
        from . import plot as ledger_plot  # matplotlib takes a second to load

        ledger_plot.plot(path, f"Remaining budget of fleet {ledger.fleet}", lines, today)
    if as_json:
        print_json(_json(ledger, lines, today))
    else:
        _show(ledger, lines)
        for path in paths:
            show.out.print(f"wrote {path}")
    check_readable(ledger.unreadable)


def _json(ledger: FleetLedger, lines: list[Remaining], today: datetime.date) -> dict[str, Any]:
    names = [line.budget.experiment.name for line in lines]
    return {
        "fleet": ledger.fleet,
        "day": today.isoformat(),
        "policy": plain(ledger.policy),
        "experiments": [line.to_dict() for line in lines],
        "devices": {
            device: {
                name: {"made": reports, "left": remaining}
                for name, reports, remaining in zip(
                    names, profile, ledger.remaining_reports(profile), strict=True
                )
            }
            for device, profile in ledger.devices.items()
        },
        "unreadable": [{"experiment": e.name, "problem": e.words} for e in ledger.unreadable],
    }


def _show(ledger: FleetLedger, lines: list[Remaining]) -> None:
    boards = sum(ledger.profiles.values())
    table = show.table(f"fleet {ledger.fleet}: {counted(boards, 'device')}", _HEADINGS)
    for line in lines:
        e = line.budget.experiment
        table.add_row(e.name, f"{e.epsilon / 1e6:g}", words.count(line.holds), *words.cells(line))
    show.out.print(table)
    if ledger.devices:
        table = show.table("devices", ("device", "experiment", "made", "left"), (0, 1))
        for device, profile in ledger.devices.items():
            for line, reports, remaining in zip(
                lines, profile, ledger.remaining_reports(profile), strict=True
            ):
                table.add_row(device, line.budget.experiment.name, f"{reports:,}", words.count(remaining))
        show.out.print(table)
    for note in _notes(ledger, lines):
        show.out.print(note)


def _notes(ledger: FleetLedger, lines: list[Remaining]) -> Iterator[str]:
    yield from words.notes(ledger.policy, len(lines))
    if ledger.policy is not None:
        yield from policy.notes(ledger.policy)
    silent_devices = [device for device, profile in ledger.devices.items() if not any(profile)]
    if silent_devices:
        yield f"devices that have never reported: {', '.join(silent_devices)}"
    mixed = [x.budget.experiment.name for x in lines if x.budget.cheapest != x.budget.costliest]
    if mixed:
        yield f"{', '.join(mixed)}: versions differ in ε; each report is counted at the largest ε."


def _board(status: BoardStatus, board_policy: Policy | None, per_day: float | None, as_json: bool) -> None:
    if per_day is not None and not per_day > 0:
        raise UsageError(f"--per-day must be above 0, not {per_day:g}")
    lifetime_use = None if board_policy is None else status.lifetime_use(board_policy)
    days = [line.days(per_day) if per_day else None for line in status.experiments]
    if as_json:
        document = status.model_dump()
        for line, days_left in zip(document["experiments"], days, strict=True):
            line |= {"epsilon": line["epsilon"] and line["epsilon"] / MICRO, "days_left": days_left}
        print_json(
            document | {"sum": status.sum / MICRO, "squares": status.squares / MICRO**2, "life": lifetime_use}
        )
        return
    headings = ("experiment", "state", "ε", "made", "left", *(("silent in",) if per_day else ()))
    table = show.table("this board", headings, (0, 1))
    for line, days_left in zip(status.experiments, days, strict=True):
        table.add_row(
            line.name,
            f"{line.state}: {line.reason}" if line.reason else line.state,
            "" if line.epsilon is None else f"{line.epsilon / MICRO:g}",
            f"{line.made:,}",
            "" if line.left is None else f"{line.left:,}",
            *(("" if days_left is None else counted(round(days_left), "day"),) if per_day else ()),
        )
    show.out.print(table)
    for sentence in _describe_spending(status, lifetime_use):
        show.out.print(sentence)


def _describe_spending(status: BoardStatus, lifetime: dict[str, Any] | None) -> Iterator[str]:
    """Yield sentences on a board's lifetime spending and on the reason if it cannot report."""
    if lifetime is None:
        yield f"spent in its lifetime: Σε = {status.sum / 1e6:g}, Σε² = {status.squares / 1e12:g}"
    else:
        squares = (
            f", or Σε² = {lifetime['squares']:g} of {lifetime['squares_cap']:.6g} (one of the two suffices)"
        )
        yield f"spent in its lifetime: Σε = {lifetime['sum']:g} of {lifetime['sum_cap']:g}" + squares * bool(
            lifetime["squares_cap"]
        )
    if status.pending:
        yield f"{status.pending} made but not yet sent"
    if status.locked:
        yield f"no reports: {status.locked}"
    elif not status.consent:
        yield "no reports: " + (
            "no one at this board has agreed yet"
            if status.consent is None
            else "someone at this board refused"
        )
