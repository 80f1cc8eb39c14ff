"""`hushmote study scale` and `study arrival`: what a fleet needs, and all its boards back at once."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Literal

import typer

from ..server.answers import tables as show
from ..server.planning.lifetime import parse_duration
from ..studies import scale
from ..studies.arrival import Arrival, Boards, simulate, spread_for
from . import tables
from .options import AsJson, print_json
from .output import PICTURES, Force, Pictures, checked
from .progress import progress

_BROKERS = {"mosquitto": scale.MOSQUITTO, "nats": scale.NATS}


def scale_command(
    boards: Annotated[int, typer.Option(metavar="N", help="How many boards there will be.", min=1)],
    every: Annotated[
        str, typer.Option(metavar="TIME", help="From one report of a board to its next: 1d, 1w, 6 months.")
    ] = "1w",
    stays: Annotated[
        bool, typer.Option("--stay/--sleep", help="Boards stay connected, or wake, report and sleep.")
    ] = False,
    refresh: Annotated[
        str, typer.Option(metavar="TIME", help="How often a board that sleeps connects without a report.")
    ] = "1d",
    region: Annotated[
        float, typer.Option(help="Share of the boards that one power cut brings back at once.", min=0, max=1)
    ] = 0.1,
    spread: Annotated[int, typer.Option(metavar="SECONDS", help="spread_s of the boards.", min=1)] = 600,
    cores: Annotated[int, typer.Option(help="Cores of one machine.", min=1)] = 16,
    memory: Annotated[float, typer.Option(help="GiB of one machine.", min=1)] = 64,
    disk: Annotated[float, typer.Option(help="TB of one machine's disk.", min=0.01)] = 4,
    as_json: AsJson = False,
) -> None:
    """What a fleet of so many boards needs: set-up, machines, and what breaks first."""
    fleet = scale.Fleet(
        boards,
        parse_duration(every),
        stays=stays,
        refresh_s=parse_duration(refresh),
        region=region,
        spread_s=float(spread),
    )
    machine = scale.Machine(cores=cores, memory_gib=memory, disk_tb=disk)
    found = [scale.needs(fleet, setup, machine) for setup in scale.SETUPS]
    chosen = scale.smallest(fleet, machine)
    if as_json:
        print_json({"chosen": chosen.setup.name, "setups": [one.to_dict() for one in found]})
        return
    headings = ("", "mosquitto, SQLite", "mosquitto, PostgreSQL", "NATS, PostgreSQL")
    who = "1 board that stays connected" if stays else "1 board that sleeps"
    if boards > 1:
        who = f"{boards:,} boards that {'stay connected' if stays else 'sleep'}"
    table = tables.table(f"{who}, a report every {every}", headings, 1)
    for words, number in (
        ("reports a second, busiest", lambda n: n.reports_per_s),
        ("connected at once", lambda n: n.standing),
        ("connecting, a second", lambda n: n.arriving),
        ("broker, cores", lambda n: n.broker_cores),
        ("broker, GiB", lambda n: n.broker_gib),
        ("aggregators, cores", lambda n: n.aggregator_cores),
        ("database, cores", lambda n: n.database_cores),
        ("store, GB", lambda n: 1000 * n.store_tb),
        ("network, Mbit/s", lambda n: n.network_mbit),
    ):
        table.add_row(words, *(_digits(number(one)) for one in found))
    table.add_row("asked of what breaks first", *(_percent(one.first.asked) for one in found))
    show.out.print(table)
    show.out.print(f"\ntake, by size alone: {_take(chosen)}", soft_wrap=True)
    at = scale.breaks_at(fleet, chosen.setup, machine)
    if at is None:
        show.out.print(f"breaks first: nothing, up to {scale.MOST_BOARDS:,} boards")
    else:
        of = "one region's " if chosen.regions > 1 else ""
        show.out.print(
            f"breaks first: {of}{at[1].what}, at some {_round(at[0]):,} boards; then {at[1].then}",
            soft_wrap=True,
        )
    if chosen.setup is scale.CLUSTER:
        show.out.print("its one log of reports is written to disks, whose speed the model does not know")
    show.out.print(f"one machine has {cores} cores and {memory:g} GiB, used to a half in the busiest second")
    show.out.print("docs/scale.md has the model's constants, docs/set-ups.md what each set-up survives")


def _take(chosen: scale.Needs) -> str:
    if chosen.setup is scale.ONE:
        return f"{chosen.setup.name}: one machine"
    machines = f"{chosen.machines:,} machines, {chosen.brokers:,} of them with a broker"
    where = f"in {chosen.regions:,} regions, a store each; " if chosen.regions > 1 else ""
    return f"{chosen.setup.name}: {where}{machines}; {chosen.aggregators:,} aggregators"


def _digits(x: float) -> str:
    if x >= 99.95:
        return f"{x:,.0f}"
    if 0 < x < 0.01:
        return "< 0.01"
    return f"{x:.2f}" if x else "0"


def _percent(asked: float) -> str:
    return f"{100 * asked:,.0f} %" if asked >= 0.01 else "< 1 %"


def _round(boards: int) -> int:
    """To two digits, down: a model knows no more."""
    unit = 10 ** max(len(str(boards)) - 2, 0)
    return boards // unit * unit


def arrival_command(
    boards: Annotated[int, typer.Option(metavar="N", help="Boards that come back at once.", min=1)] = 20_000,
    broker: Annotated[
        Literal["mosquitto", "nats"], typer.Option(help="One mosquitto, or three NATS servers.")
    ] = "mosquitto",
    cores: Annotated[int, typer.Option(help="Cores of all servers together; mosquitto uses one.", min=1)] = 1,
    spread: Annotated[
        int | None,
        typer.Option(metavar="SECONDS", help="spread_s of the boards.", show_default="enough", min=1),
    ] = None,
    backoff: Annotated[int, typer.Option(metavar="SECONDS", help="backoff_s of the boards.", min=1)] = 2,
    seed: Annotated[int | None, typer.Option(help="Repeat a run exactly.", min=0)] = None,
    output: Pictures = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """A power cut ends and all boards come back: how long it takes, with a random delay and without."""
    paths = checked(output, force, *PICTURES)
    server = scale.server(_BROKERS[broker], cores)
    wait_s = spread_for(boards, server) if spread is None else spread
    shipped = Boards(boards, backoff_s=backoff)
    ways = {
        f"at once, within {backoff} s": shipped,
        f"spread_s = {wait_s}": replace(shipped, spread_s=wait_s),
    }
    runs: list[tuple[str, Arrival]] = []
    for label, way in ways.items():
        with progress(label, 1.0) as advance:
            runs.append((label, simulate(way, server, seed, advance=advance)))
    for path in paths:
        from ..studies.arrival_plot import plot

        plot(path, runs)
    if as_json:
        rows = [{"way": label, **run.to_dict()} for label, run in runs]
        print_json({"per_s": server.per_s, "enough_s": spread_for(boards, server), "ways": rows})
        return
    headings = ("boards try", "half are back, s", "all, s", "attempts", "most a second", "work for nothing")
    table = tables.table(f"{boards:,} boards, a broker that takes {server.per_s:,.0f} a second", headings, 1)
    for label, run in runs:
        back = (f"{s:,.0f}" if math.isfinite(s) else "never" for s in (run.share_s(0.5), run.all_s))
        numbers = (*back, f"{run.attempts.mean():.2f}", f"{run.tried.max():,}")
        table.add_row(label, *numbers, f"{100 * run.wasted:.0f} %")
    show.out.print(table)
    enough = spread_for(boards, server)
    show.out.print(f"\nspread_s = {enough} keeps the broker at 80 % of what it can take", soft_wrap=True)
    for path in paths:
        show.out.print(f"written: {path}", soft_wrap=True)
