"""The command line; most commands have a module of their own, named after it.

Every command that prints a result takes --json. A user's mistake is one line on standard error and exit
status 1.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..device.ldp_client import Experiment, LDPError
from ..server.accounting.compare import plain_guarantee
from ..server.answers import tables as show
from ..server.errors import HushmoteError, UsageError
from ..server.estimate import plausibility
from ..server.experiments.definition import load
from ..server.provisioning.master_key import create_master_key
from ..server.store.store import Store, Version
from . import audit as audit_cli
from . import estimate as estimate_cli
from . import flash as board_cli
from . import serve as serve_cli
from . import simulate as simulator
from .budget.command import budget_app
from .epsilon.command import epsilon_app
from .ledger import command as ledger_cli
from .merge import merge_command
from .options import DEFAULT_STORE, AsJson, FleetName, StoreUrl, print_json
from .plan import command as plan_cli
from .provision.command import provision_app
from .store import store_app
from .study.command import study_app

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
        guarantee = plain_guarantee(definition.guarantee())
        print_json(describe(experiment) | {"guarantee": guarantee, "payload": payload.decode()})
        return
    table = show.table(header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("name", f"{definition.name}: {definition.purpose}")
    table.add_row("owner", f"{definition.owner}, until {definition.expires}")
    table.add_row("values", f"{experiment.domain} ({experiment.type})")
    table.add_row("mechanism", show.mechanism(experiment))
    table.add_row("privacy", f"ε = {experiment.epsilon / 1e6:g} per report, {show.budget(experiment)}")
    table.add_row("together", show.guarantee(definition))
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
                    "plausibility": plausibility.check(v.experiment, counts).to_dict(),
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
    for line in lines:
        if line["plausibility"]["implausible"]:
            text = f"implausible: {line['experiment']} {line['digest']} of fleet {line['fleet']}: "
            show.out.print(text + line["plausibility"]["words"], markup=False, style="red")
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


app.command("serve")(serve_cli.serve_command)
app.command("estimate")(estimate_cli.estimate_command)
app.command("simulate")(simulator.simulate)
app.command("demo")(simulator.demo)
app.command("plan")(plan_cli.plan_command)
app.add_typer(budget_app, name="budget")
app.add_typer(epsilon_app, name="epsilon")
app.add_typer(store_app, name="store")
app.command("ledger")(ledger_cli.ledger_command)
app.command("audit")(audit_cli.audit_command)
app.command("merge")(merge_command)
app.add_typer(provision_app, name="provision")
app.command("flash")(board_cli.flash_command)


def main() -> None:
    """Entry point: a user's mistake is one line and exit status 1, never a traceback."""
    try:
        app()
    except (HushmoteError, LDPError) as e:
        show.err.print(f"hushmote: {e}", soft_wrap=True, markup=False)
        sys.exit(1)
