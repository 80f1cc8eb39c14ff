"""`hushmote experiment`: a fleet's experiments."""

from pathlib import Path
from typing import Annotated

import typer

from ...server.errors import UsageError
from ...server.wire.limits import GRACE_DAYS
from ..broker import DEFAULT_BROKER, BrokerUrl
from ..options import (
    DEFAULT_STORE,
    AsJson,
    ExperimentFile,
    ExperimentName,
    FleetName,
    Folder,
    FolderFleet,
    LabelsOption,
    PolicyFile,
    Rename,
    SigningKey,
    StoreUrl,
    check_exists,
    is_library,
    on_command_line,
)

Grace = Annotated[
    int,
    typer.Option(
        "--grace",
        help="Number of days, including today, for which late reports of the old version count.",
        min=0,
        max=3650,
    ),
]

experiment_app = typer.Typer()


@experiment_app.command("sign")
def experiment_sign(
    file: ExperimentFile,
    fleet: FolderFleet = None,
    folder: Folder = None,
    signing_key: SigningKey = None,
    after: Annotated[
        int, typer.Option(help="Highest serial that devices have, if `add` asks for a higher one.", min=0)
    ] = 0,
    output: Annotated[
        Path | None,
        typer.Option(help="File to write; default: FILE.signed.json in this folder.", metavar="FILE"),
    ] = None,
) -> None:
    """Sign an experiment and its later withdrawal on the machine with the signing key, without a store.

    `hushmote experiment add` accepts the resulting file. Anyone who has the file can publish and end this
    experiment, but nothing else.
    """
    check_exists(file)
    from . import run  # imported lazily so that usage errors are fast

    run.sign_file(file, fleet, folder, signing_key, after, output)


@experiment_app.command("show")
def experiment_show(file: ExperimentFile, as_json: AsJson = False) -> None:
    """Check an experiment file and print what boards will receive."""
    check_exists(file)
    from . import run  # imported lazily so that usage errors are fast

    run.show_file(file, as_json)


@experiment_app.command("diff")
def experiment_diff(
    old: Annotated[Path, typer.Argument(help="The file as it was, or an empty file such as /dev/null.")],
    new: Annotated[Path, typer.Argument(help="The file as it is now, or an empty file.")],
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown for a comment on a pull request.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a change of an experiment's file means: fields, ε, and new consent.

    Files that end in .py or .json contain a POLICY. An empty file stands for one that does not exist.
    """
    for file in (old, new):
        check_exists(file)
    if as_markdown and as_json:
        raise UsageError("--markdown and --json exclude each other")
    from . import review  # imported lazily so that usage errors are fast

    review.diff(old, new, as_json=as_json, as_markdown=as_markdown)


@experiment_app.command("add")
def experiment_add(  # noqa: PLR0913 (one for each option)
    file: Annotated[
        Path,
        typer.Argument(
            help="TOML file of the experiment, a file from `hushmote experiment sign`, or std:NAME or "
            "pack:NAME of `hushmote questions`."
        ),
    ],
    store: StoreUrl = DEFAULT_STORE,
    fleet: Annotated[
        str | None,
        typer.Option(
            help="Fleet name; default: the only fleet that is not simulated, or home in a new store."
        ),
    ] = None,
    keyed: Annotated[
        bool | None,
        typer.Option(
            "--keys/--open", help="For a new fleet: require tags on reports, or let anyone send them."
        ),
    ] = None,
    grace: Grace = GRACE_DAYS,
    policy: PolicyFile = None,
    owner: Annotated[
        str | None, typer.Option(help="For a standard question: the person or team responsible.")
    ] = None,
    labels: LabelsOption = None,
    rename: Rename = None,
    devices: Annotated[
        int | None,
        typer.Option(
            help="For a standard question: number of devices for which to state errors.",
            show_default="those that have reported, or 20000",
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        typer.Option(
            help="For a standard question: how long it will be asked, such as 2y.", show_default="5y"
        ),
    ] = None,
    call: Annotated[
        str | None,
        typer.Option(
            help="For a standard question: time between a device's calls to report().", show_default="1h"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add an experiment, or a new version of it, to a fleet; `serve` publishes it.

    Prints what differs from the current version, and whether that makes a new version, changes only the words
    that boards never see, or nothing. If someone else changes the experiment at the same time, it is refused.

    Standard questions share the budget of the devices' policy: that of --policy, or ε = 8. The command states
    what each question can still show, lowers the rate of those that the fleet already has, and refuses what
    the policy cannot pay for.
    """
    check_exists(file)
    from . import run, standard  # imported lazily so that usage errors are fast

    target = run.Target(store, fleet, keyed, grace)
    if is_library(file):
        options = standard.Options(owner, tuple(labels or ()), rename, devices, horizon, call, policy)
        standard.add(str(file), target, options, as_json)
        return
    values = {"owner": owner, "label": labels, "name": rename}
    values |= {"devices": devices, "horizon": horizon, "call": call}
    if name := next((name for name, value in values.items() if value is not None), None):
        raise UsageError(f"--{name} needs std:NAME or pack:NAME; in {file}, write it into the file")
    run.add(file, target, policy, as_json)


@experiment_app.command("list")
def experiment_list(
    search: Annotated[
        str, typer.Argument(help="Words in the name, purpose or owner; default: all experiments.")
    ] = "",
    store: StoreUrl = DEFAULT_STORE,
    fleet: Annotated[str | None, typer.Option(help="Name of the fleet; default: all fleets.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of experiments, oldest first."""
    from . import run  # imported lazily so that usage errors are fast

    run.list_versions(store, fleet, search, as_json)


@experiment_app.command("withdraw")
def experiment_withdraw(
    name: ExperimentName,
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = None,
    grace: Grace = GRACE_DAYS,
) -> None:
    """Withdraw an experiment so that boards stop reporting; its counts are kept.

    Late reports of its versions still count for up to --grace days, or not at all with --grace 0.
    """
    from . import run  # imported lazily so that usage errors are fast

    run.withdraw(name, store, fleet, grace)


@experiment_app.command("clear")
def experiment_clear(
    context: typer.Context,
    name: ExperimentName,
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = None,
    broker: BrokerUrl = DEFAULT_BROKER,
    signing_key: SigningKey = None,
) -> None:
    """Clear an experiment that the broker retains but the store does not have, so that boards stop reporting.

    `serve` logs such experiments: their reports cost the boards' budget, but are not counted. This command
    needs an aggregator's login, and the signing key if the experiment is signed. Use `withdraw` for an
    experiment that the store has.
    """
    from . import run  # imported lazily so that usage errors are fast

    run.clear(name, store, fleet, broker, signing_key, typed=on_command_line(context, "broker"))
