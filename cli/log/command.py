"""`hushmote log`: the public log of questions."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from ..options import DEFAULT_STORE, PUBLIC_KEY, AsJson, ExperimentName, FleetName, StoreUrl

log_app = typer.Typer()

Source = Annotated[
    str, typer.Argument(help="Address of the log's files, or their folder.", metavar="URL|FOLDER")
]
LogKey = Annotated[
    Path,
    typer.Option("--log-key", help="The log's secret key file, of `hushmote log key`.", metavar="FILE"),
]
_WITNESSES = typer.Option("--witnesses", help="File of witnesses, as for `hushmote serve`.", metavar="FILE")
Witnesses = Annotated[Path, _WITNESSES]


class Kind(Enum):
    """The kinds of files that `log add` takes."""

    POLICY = "policy"
    RELEASE = "release"


@log_app.command("key")
def log_key(
    file: Annotated[Path, typer.Argument(help="Key file.", metavar="FILE")],
    origin: Annotated[
        str | None,
        typer.Option(
            help="Create FILE for a log of this name, such as example.org/questions. Without --origin, the "
            "keys of an existing FILE are printed.",
            metavar="NAME",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a log's key, and print its public keys: for witnesses and auditors, and for boards."""
    from . import run  # imported lazily so that usage errors are fast

    run.print_key(file, origin, as_json)


@log_app.command("policy")
def log_policy(
    log_key: LogKey,
    witnesses: Witnesses,
    need: Annotated[
        int | None,
        typer.Option(help="Number of witnesses that must sign, more than half; default: all.", min=1, max=7),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the "log" for the POLICY of boards that require it; as JSON for other clients."""
    from . import run  # imported lazily so that usage errors are fast

    run.print_policy(log_key, witnesses, need, as_json)


@log_app.command("list")
def log_list(
    store: StoreUrl = DEFAULT_STORE,
    newest: Annotated[int, typer.Option(help="Number of entries to list.", min=1, metavar="N")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the newest entries of a store's log, and who signed its newest checkpoint."""
    from . import run  # imported lazily so that usage errors are fast

    run.list_entries(store, newest, as_json)


@log_app.command("add")
def log_add(
    kind: Annotated[
        Kind, typer.Argument(help="Whether FILE is a firmware's policy or a release's list of files.")
    ],
    file: Annotated[
        Path,
        typer.Argument(
            help="Firmware file with a POLICY, or a .json of it; or a release's list of files: on each line "
            "a SHA-256, two spaces and a path.",
            metavar="FILE",
        ),
    ],
    log_key: LogKey,
    witnesses: Annotated[Path | None, _WITNESSES] = None,
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = None,
    version: Annotated[
        str | None, typer.Option(help="The release's version, such as 1.2.0.", metavar="VERSION")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a policy's hash or a release's list of files to the log.

    `hushmote serve` adds experiments itself.
    """
    from . import run  # imported lazily so that usage errors are fast

    run.add(kind.value, file, run.Target(store, log_key, witnesses), fleet, version, as_json)


@log_app.command("export")
def log_export(
    folder: Annotated[Path, typer.Argument(help="Folder to write, which any web server can serve.")],
    store: StoreUrl = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Write the log as static files: those that the folder lacks, and the checkpoint last."""
    from . import run  # imported lazily so that usage errors are fast

    run.write_files(folder, store, as_json)


@log_app.command("proof")
def log_proof(
    name: ExperimentName,
    log_key: LogKey,
    witnesses: Witnesses,
    store: StoreUrl = DEFAULT_STORE,
    fleet: FleetName = None,
    as_json: AsJson = False,
) -> None:
    """Print the proof that boards check: its entry, the tree's size, who signed, and its bytes in hex."""
    from . import run  # imported lazily so that usage errors are fast

    run.print_proof(name, run.Target(store, log_key, witnesses), fleet, as_json)


@log_app.command("check")
def log_check(
    source: Source,
    key: Annotated[str, typer.Option(help=PUBLIC_KEY, metavar="KEY|FILE")],
    witness: Annotated[
        list[str] | None,
        typer.Option(
            help="A witness's public key, or a file with it; it must have signed. May be repeated.",
            metavar="KEY|FILE",
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            help="Firmware file with a POLICY, or a .json of it: the log must have its hash.", metavar="FILE"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute a log from its files, and list what it has. Needs no store.

    Exit with status 1 if anything is inconsistent, if a witness has not signed, or if witnesses should have
    refused an entry: JSON that boards may read otherwise, an old serial, more than one change a day.
    """
    from . import run  # imported lazily so that usage errors are fast

    run.check(source, key, witness or (), policy, as_json)


@log_app.command("watch")
def log_watch(
    source: Source,
    state: Annotated[
        Path,
        typer.Option(help="File that remembers what was seen; created by the first run.", metavar="FILE"),
    ],
    key: Annotated[
        str | None, typer.Option(help=f"{PUBLIC_KEY} Only for the first run.", metavar="KEY|FILE")
    ] = None,
    feed: Annotated[
        Path | None, typer.Option(help="Also write the newest entries as an Atom feed.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a log has added since the last run, and what that means for devices.

    Run it regularly. If the log does not continue what it showed before, the command says so and exits with
    status 1.
    """
    from . import watch  # imported lazily so that usage errors are fast

    watch.run(source, state, key, feed, as_json)


@log_app.command("restore")
def log_restore(
    source: Source,
    log_key: LogKey,
    store: StoreUrl = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Add the entries that a store restored from a backup lacks, from an export of its log."""
    from . import run  # imported lazily so that usage errors are fast

    run.restore(source, log_key, store, as_json)
