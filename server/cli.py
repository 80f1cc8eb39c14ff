"""The command line: `hushmote experiment | serve | status | estimate | simulate | demo | provision |
flash`.

Every command that prints a result takes --json. A user's mistake is one line on standard error and exit
status 1.
"""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..device.ldp_client import Experiment, LDPError
from ..simulator import cli as simulator
from ..simulator.broker import BrokerError
from ..simulator.daily import DailyError
from ..simulator.demo import DemoError
from ..simulator.gateway import GatewayError
from ..simulator.laplace import NoiseError
from ..simulator.population import PopulationError
from ..simulator.structures import StructureError
from ..simulator.study_cli import study_app
from ..simulator.study_ranges import StudyError
from . import answer, board_cli, serving, show
from .aggregator import CLIENT_ID, BrokerRefused
from .board import FlashError
from .estimate import estimate
from .experiment import DefinitionError, load
from .keys import MasterKeyError, create_master_key, load_master_key
from .pooling import pool
from .provision import ProvisionError
from .report import NameRefused
from .statistic import EstimateError
from .store import Store, StoreError, Version
from .units import UnitsError, parse_range

app = typer.Typer(
    help="Private telemetry for fleets of microcontrollers.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
experiment_app = typer.Typer(
    help="What is asked of a fleet: check, add, list and withdraw.", no_args_is_help=True
)
app.add_typer(experiment_app, name="experiment")
app.add_typer(study_app, name="study")

StoreUrl = Annotated[
    str, typer.Option("--store", help="SQLAlchemy URL of the store.", envvar="HUSHMOTE_STORE")
]
FleetName = Annotated[str, typer.Option("--fleet", help="Name of the fleet.")]
Broker = Annotated[
    str, typer.Option("--broker", help="mqtt://[user:password@]host[:port]", envvar="HUSHMOTE_BROKER")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DEFAULT_STORE = "sqlite:///hushmote.sqlite"
DEFAULT_BROKER = "mqtt://localhost:1883"


class Protocol(enum.StrEnum):
    """MQTT versions to speak; auto tries 5 first."""

    auto = "auto"
    v5 = "5"
    v311 = "3.1.1"


class Weigh(enum.StrEnum):
    """How versions of an experiment are pooled."""

    reports = "reports"
    variance = "variance"


class UsageError(ValueError):
    """Options that do not go together; the text says what would be right."""


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2))


def describe(experiment: Experiment) -> dict[str, Any]:
    """What an experiment's version is, in plain values."""
    return {
        "name": experiment.name,
        "digest": experiment.digest.hex(),
        "type": experiment.type,
        "domain": experiment.domain,
        "mechanism": experiment.mechanism,
        "cells": [level.g for level in experiment.levels],
        "epsilon": experiment.epsilon / 1e6,
        "every": experiment.every,
        "rule": experiment.rule,
        "cap": experiment.cap,
        "window": experiment.window,
        "codes": experiment.code_count,
        "report_bytes": 9 + experiment.code_bytes,
        "authenticated_report_bytes": 17 + experiment.code_bytes,
    }


@experiment_app.command("show")
def experiment_show(
    file: Annotated[Path, typer.Argument(help="TOML file of the experiment.")], as_json: AsJson = False
) -> None:
    """Check an experiment file and print what boards will get."""
    definition = load(file)
    payload = definition.payload()
    experiment = Experiment.parse(payload)
    if as_json:
        print_json(describe(experiment) | {"payload": payload.decode()})
        return
    table = show.table(header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("name", f"{definition.name}: {definition.purpose}")
    table.add_row("owner", f"{definition.owner}, until {definition.expires}")
    table.add_row("values", f"{experiment.domain} ({experiment.type})")
    table.add_row("mechanism", show.mechanism(experiment))
    table.add_row("privacy", f"ε = {experiment.epsilon / 1e6:g} per report, {show.budget(experiment)}")
    table.add_row("report", f"{9 + experiment.code_bytes} bytes, {17 + experiment.code_bytes} authenticated")
    table.add_row("digest", experiment.digest.hex())
    show.out.print(table)
    show.out.print()
    # Not through rich: these are the exact bytes, without line breaks of ours.
    typer.echo(payload.decode())


@experiment_app.command("add")
def experiment_add(
    file: Annotated[Path, typer.Argument(help="TOML file of the experiment.")],
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = "home",
    keyed: Annotated[
        bool | None,
        typer.Option("--keys/--open", help="For a new fleet: reports carry tags, or anyone can forge them."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add an experiment, or a new version of it, to a fleet; `serve` publishes it."""
    definition = load(file)
    definition.check_not_expired()
    payload = definition.payload()
    with Store(store) as opened:
        if keyed is not None:
            opened.add_fleet(fleet, keyed=keyed)
        elif fleet not in opened.fleets():
            raise UsageError(f"fleet {fleet} is new: say --keys (reports carry tags) or --open (trials)")
        experiment = opened.add_experiment(fleet, payload, definition.expires)
    if as_json:
        print_json({"fleet": fleet} | describe(experiment))
    else:
        show.out.print(
            f"{experiment.name} {experiment.digest.hex()} added to fleet {fleet}; `serve` publishes it"
        )


@experiment_app.command("list")
def experiment_list(store: StoreUrl = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """List all experiments' versions, oldest first."""
    with Store(store, create=False) as opened:
        versions = opened.experiments()
    if as_json:
        print_json(
            [
                {"fleet": v.fleet, "current": v.current, "expires": v.expires and v.expires.isoformat()}
                | describe(v.experiment)
                for v in versions
            ]
        )
        return
    table = show.table()
    for heading in ("fleet", "name", "digest", "mechanism", "ε", "current", "until"):
        table.add_column(heading)
    for v in versions:
        e = v.experiment
        cells = (v.fleet, e.name, e.digest.hex(), show.mechanism(e), f"{e.epsilon / 1e6:g}")
        table.add_row(*cells, "yes" if v.current else "no", str(v.expires or "for good"))
    show.out.print(table)


@experiment_app.command("withdraw")
def experiment_withdraw(
    name: Annotated[str, typer.Argument(help="Name of the experiment.")],
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = "home",
) -> None:
    """Withdraw an experiment: boards stop reporting; what was counted stays."""
    with Store(store, create=False) as opened:
        opened.withdraw_experiment(fleet, name)
    show.out.print(f"{name} is withdrawn from fleet {fleet}")


@app.command("keygen")
def keygen(file: Annotated[Path, typer.Argument(help="File to write, mode 0600.")]) -> None:
    """Make the master key that all keys of a server's fleets are derived from."""
    create_master_key(file)
    show.out.print(f"{file} holds a new master key; it never leaves the server, and nobody can make it again")


@app.command("serve")
def serve(
    store: StoreUrl = DEFAULT_STORE,
    broker: Broker = DEFAULT_BROKER,
    master_key: Annotated[
        Path | None, typer.Option(help="Master key file; or set HUSHMOTE_MASTER_KEY.", show_default=False)
    ] = None,
    protocol: Annotated[Protocol, typer.Option(help="MQTT version.")] = Protocol.auto,
    client_id: Annotated[str, typer.Option(help="Name of the session that the broker keeps.")] = CLIENT_ID,
    batch: Annotated[int, typer.Option(help="Reports committed together at most.", min=1)] = 1000,
    batch_s: Annotated[float, typer.Option(help="Seconds between commits at most.", min=0.01)] = 1.0,
) -> None:
    """Run the aggregator: subscribe, authenticate, deduplicate, count, commit, acknowledge."""
    address = serving.parse_broker_url(broker)
    master = load_master_key(master_key)
    with Store(store) as opened:
        serving.serve(
            opened,
            address,
            master,
            protocol=protocol.value,
            batch_reports=batch,
            batch_s=batch_s,
            client_id=client_id,
        )


@app.command("status")
def status(store: StoreUrl = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Show what was counted and what was rejected, and why."""
    with Store(store, create=False) as opened:
        rejects = opened.rejects()
        fleets = opened.fleets()
        lines = []
        for v in opened.experiments():
            counts = opened.histogram(v.fleet, v.experiment.digest)
            lines.append(
                {
                    "fleet": v.fleet,
                    "experiment": v.experiment.name,
                    "digest": v.experiment.digest.hex(),
                    "current": v.current,
                    "reports": int(counts.sum()),
                    "windows": len(opened.windows(v.fleet, v.experiment.digest)),
                    "devices": participants(opened, v),
                }
            )
    if as_json:
        print_json({"fleets": fleets, "experiments": lines, "rejected": rejects})
        return
    for name, keyed in fleets.items():
        show.out.print(f"fleet {name}: " + ("with keys" if keyed else "open: anyone can forge reports"))
    table = show.table("accepted")
    for heading in ("fleet", "experiment", "digest", "current"):
        table.add_column(heading)
    for heading in ("reports", "windows", "devices of the name"):
        table.add_column(heading, justify="right")
    for line in lines:
        table.add_row(
            line["fleet"],
            line["experiment"],
            line["digest"],
            "yes" if line["current"] else "no",
            f"{line['reports']:,}",
            str(line["windows"]),
            f"{line['devices']:,}",
        )
    show.out.print(table)
    table = show.table("rejected")
    table.add_column("fleet")
    table.add_column("reason")
    table.add_column("reports", justify="right")
    for fleet, reasons in rejects.items():
        for reason, count in reasons.items():
            table.add_row(fleet or "(unknown)", reason, f"{count:,}")
    show.out.print(table if table.row_count else "nothing rejected")


def participants(store: Store, version: Version) -> int:
    """How many devices had a report accepted for the experiment's name."""
    found = store.participation(version.fleet).get(version.experiment.name)
    return found.devices if found else 0


@app.command("estimate")
def estimate_command(
    name: Annotated[str, typer.Argument(help="Name of the experiment.")],
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = "home",
    window: Annotated[str | None, typer.Option(help="One window only, for example 2026-11-21.")] = None,
    ranges: Annotated[
        list[str] | None, typer.Option("--range", help="low:high in the reading's unit, or a label.")
    ] = None,
    quantiles: Annotated[list[float] | None, typer.Option("--quantile", help="Between 0 and 1.")] = None,
    rows: Annotated[int, typer.Option(help="Rows of a number's histogram at most.", min=1)] = 16,
    weigh: Annotated[Weigh, typer.Option(help="What pools an experiment's versions.")] = Weigh.reports,
    plot: Annotated[Path | None, typer.Option(help="Write the histogram as a PNG.")] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate the fleet's frequencies, ranges and quantiles, with 95 % intervals."""
    with Store(store, create=False) as opened:
        versions = [v.experiment for v in opened.experiments(fleet) if v.experiment.name == name]
        if not versions:
            raise UsageError(f"there is no experiment {name} in fleet {fleet}")
        counts = [opened.histogram(fleet, e.digest, window) for e in versions]
    estimates = [estimate(e, c) for e, c in zip(versions, counts, strict=True) if c.sum() >= 2]
    if not estimates:
        raise EstimateError(f"{name} has no reports yet" + (f" in window {window}" if window else ""))
    found = estimates[0] if len(estimates) == 1 else pool(estimates, by=weigh.value)
    experiment = found.experiment
    histogram = answer.histogram_rows(experiment, found, rows)
    wanted = [answer.range_row(found, parse_range(experiment, text)) for text in ranges or []]
    points = [answer.quantile_row(experiment, found, q) for q in quantiles or []]
    if plot:
        show.plot(plot, experiment, found.reports, histogram)
    if as_json:
        print_json(
            {
                "experiment": name,
                "fleet": fleet,
                "window": window,
                "versions": [e.experiment.digest.hex() for e in estimates],
                "reports": found.reports,
                "confidence": answer.CONFIDENCE,
                "histogram": [row.to_dict() for row in histogram],
                "ranges": [row.to_dict() for row in wanted],
                "quantiles": [row.to_dict() for row in points],
            }
        )
        return
    show.out.print(f"{name}: {found.reports:,} reports" + (f" in {window}" if window else ""))
    show.answers(experiment, "", histogram, wanted, points)
    if plot:
        show.out.print(f"plot: {plot}")


app.command("simulate")(simulator.simulate)
app.command("demo")(simulator.demo)
app.command("provision")(board_cli.provision_command)
app.command("flash")(board_cli.flash_command)

USER_ERRORS = (
    UsageError,
    BrokerError,
    BrokerRefused,
    DailyError,
    DefinitionError,
    DemoError,
    EstimateError,
    FlashError,
    GatewayError,
    LDPError,
    MasterKeyError,
    NameRefused,
    NoiseError,
    PopulationError,
    ProvisionError,
    StoreError,
    StructureError,
    StudyError,
    UnitsError,
    serving.BrokerUrlError,
)


def main() -> None:
    """Entry point: a user's mistake is one line and exit status 1, never a traceback."""
    try:
        app()
    except USER_ERRORS as e:
        show.err.print(f"hushmote: {e}", soft_wrap=True, markup=False)
        sys.exit(1)
