"""`hushmote store`: maintenance of stores."""

import datetime
import sys
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..fleet.provisioning.master_key import load_keys
from ..server.answers import tables as show
from ..server.errors import UsageError
from ..server.service.audit_log import audit_log, system_user
from ..server.store import schema
from ..server.store.backup import backup
from ..server.store.check import check
from ..server.store.counting import clock_fault
from ..server.store.database import Database, StoreError
from ..server.store.erase import Erasure, erase, finish_rewrite, queue_erasure
from ..server.store.merge import MergeResult, merge
from ..server.store.seal import Sealing, seal
from ..server.store.store import Store
from ..server.words.numbers import counted
from .options import DEFAULT_STORE, AsJson, ExperimentName, FleetName, choose_fleet, print_json
from .progress import progress

store_app = typer.Typer()

_HELP = "URL of the store: sqlite:///file, or postgresql+psycopg://user@host/database."
Url = Annotated[str, typer.Argument(metavar="URL", help=_HELP, envvar="HUSHMOTE_STORE")]


@store_app.command("upgrade")
def store_upgrade(url: Url, as_json: AsJson = False) -> None:
    """Upgrade a store from an earlier version of Hushmote to the current schema, completely or not at all.

    Stop its aggregators and back it up first; only the backup can undo the upgrade.
    """
    database = Database(url, create=False, upgrade=True)
    database.close()
    if as_json:
        print_json({"store": database.where, "from": database.version_before, "to": schema.VERSION})
    elif database.version_before == schema.VERSION:
        _say(f"{database.where} already has schema version {schema.VERSION}; nothing was changed")
    else:
        _say(f"{database.where} now has schema version {schema.VERSION}, up from {database.version_before}")
        if database.engine.dialect.name == "postgresql":
            _say("Recreated tables have no grants; grant the roles their privileges again (docs/store.md).")


@store_app.command("backup")
def store_backup(
    url: Annotated[str, typer.Argument(metavar="URL", help=_HELP)],
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    as_json: AsJson = False,
) -> None:
    """Copy a consistent snapshot of an SQLite store while aggregators keep running.

    The copy is a store. To restore it, stop the aggregators, move the old store away with its -wal and -shm,
    and put the copy in its place.
    """
    with progress("copying", 1.0) as advance:
        size_bytes = backup(url, file, advance)
    if as_json:
        print_json({"file": str(file), "bytes": size_bytes})
    else:
        _say(f"{file} is a checked copy of {size_bytes:,} bytes")


@store_app.command("check")
def store_check(url: Url, as_json: AsJson = False) -> None:
    """Check that every counted report was accepted once and that every row can be read.

    Print a line for each violation, and exit with status 1 if there are any.
    """
    with Store(url, create=False) as store, progress("checking", 1.0) as advance:
        soundness = check(store, advance)
        where = store.where
    if as_json:
        print_json({"store": where} | asdict(soundness))
    else:
        for line in soundness.violations:
            _say(line)
        for line in soundness.notes:
            show.out.print(line)
        if not soundness.violations:
            reports = f"{counted(soundness.reports)} of {counted(soundness.devices, 'device')}"
            _say(f"{where} is sound: {reports}, each counted once")
    if soundness.violations:
        raise typer.Exit(1)


@store_app.command("seal")
def store_seal(
    url: Url,
    name: ExperimentName,
    fleet: FleetName = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Seal it; default: only show what would be done.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Reduce the report numbers of each device to the highest one and a count, permanently.

    Seal an experiment that has ended. Lost reports leave gaps in the numbers. Sealing closes the gaps, so a
    report that arrives for one of them later is rejected. Counts do not change.
    """
    with ExitStack() as stack:
        store = stack.enter_context(Store(url, create=False))
        if yes:
            _finish_rewrite(store)
        advance = stack.enter_context(progress("sealing", 1.0))
        sealing = seal(store, choose_fleet(store, fleet), name, dry_run=not yes, advance=advance)
    if as_json:
        print_json({"sealed": yes} | asdict(sealing))
    else:
        _print_sealing(sealing, yes)


def _print_sealing(sealing: Sealing, done: bool) -> None:
    subject = f"{sealing.experiment} of fleet {sealing.fleet}"
    _say(f"{subject}: {counted(sealing.devices, 'device')}")
    gaps = counted(sealing.gaps)
    _say(f"with gaps in their report numbers: {counted(sealing.folded, 'device')}, {gaps}")
    _say(f"all report numbers: {sealing.bytes_before:,} bytes, sealed {sealing.bytes_after:,}")
    if not sealing.folded:
        _say("There is nothing to seal.")
        return
    if sealing.over:
        _say("None of its versions is counted any more, so sealing does not lose any reports.")
    else:
        _say(f"It is still counted, so sealing can lose {gaps} in transit.")
    _say("After sealing, a report that arrives for a gap is rejected as a duplicate.")
    _say("Merge stores first, because a store with the same devices is refused afterwards.")
    _say("It is sealed." if done else "Nothing was changed; add --yes to seal it.")


@store_app.command("erase")
def store_erase(
    url: Url,
    device: Annotated[str | None, typer.Option(help="Erase this device's numbers.", metavar="ID")] = None,
    experiment: Annotated[str | None, typer.Option(help="Erase this experiment.", metavar="NAME")] = None,
    fleet: FleetName = None,
    master_key: Annotated[
        Path | None,
        typer.Option(
            help="Master key file, to seal a device's numbers; or set HUSHMOTE_MASTER_KEY.", metavar="FILE"
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Erase without asking.")] = False,
    queue: Annotated[
        bool, typer.Option("--queue", help="Let a running aggregator erase the device.")
    ] = False,
) -> None:
    """Erase a device, an experiment or a fleet permanently, and rewrite the database's files.

    --fleet alone erases the whole fleet; the URL alone finishes an interrupted erasure. With an SQLite store,
    stop the aggregators first, or add --queue. A device's contribution to the counts remains, because it
    cannot be separated; its old reports are not counted again. The command lists what remains elsewhere: in
    backups, in logs and on the broker.
    """
    if device is experiment is fleet is None:
        with Store(url, create=False) as store:
            if _finish_rewrite(store):
                return
    if (device is None) == (experiment is None) and (device or experiment or fleet is None):
        raise UsageError("give --device ID, --experiment NAME, or --fleet NAME alone")
    if queue and device is None:
        raise UsageError(
            "--queue requires a device; add --device ID, or omit --queue and stop the aggregators"
        )
    if not yes and not sys.stdin.isatty():
        raise UsageError("cannot ask without a terminal, so nothing was erased; add --yes to erase")

    def agree(erasure: Erasure) -> None:
        show.out.print(_describe_erasure(erasure), markup=False)
        if not yes:
            typer.confirm("Erase it permanently?", abort=True)

    with Store(url, create=False) as store:
        fleet_name, fleet_keys, log = choose_fleet(store, fleet), load_keys(master_key), audit_log(url)
        log.check()
        if queue:
            queue_erasure(store, fleet_name, str(device), agree)
            # The log never names the device.
            log.note(system_user(), "queue erasure", what="device", fleet=fleet_name)
            show.out.print(
                "It is queued, and a running aggregator will erase it soon. `hushmote status` lists "
                "pending erasures."
            )
            return
        _finish_rewrite(store)
        erasure = erase(
            store, fleet_name, experiment=experiment, device=device, fleet_keys=fleet_keys, confirm=agree
        )
        what = "device" if device else "experiment" if experiment else "fleet"  # never the device's id
        log.note(system_user(), "erase", what=what, fleet=fleet_name, experiment=experiment)
        sqlite = store.engine.dialect.name == "sqlite"
    _say("Erased.")
    for notice in erasure.notices:
        show.out.print(
            f"The server did not rewrite all files; the database's owner can do so: {notice}", markup=False
        )
    show.out.print(_remaining_copies(erasure, sqlite))


def _describe_erasure(erasure: Erasure) -> str:
    subject = f"of fleet {erasure.fleet}, {counted(erasure.reports)}"
    if erasure.device is not None:
        repeats = "They cannot be counted again because their numbers are sealed with the master key."
        if not erasure.sealed:
            repeats = "Without --master-key, an open fleet counts them again if someone sends them again."
        counts = "Their contribution to the counts remains, because it cannot be separated."
        return f"device {erasure.device} {subject}. {counts} {repeats}"
    what = "all" if erasure.experiment is None else f"experiment {erasure.experiment}"
    warning = "Do not add the same file again, or its old reports would be counted again."
    return f"{what} {subject} of {counted(erasure.devices, 'device')}, with all counts. {warning}"


def _remaining_copies(erasure: Erasure, sqlite: bool) -> str:
    broker = "the messages that the broker retains; documents and exports"
    if erasure.device is not None:
        broker = "its status on the broker and the fleet's folder, which `hushmote provision forget` clears"
    return f"It may remain in backups and copies of the store; {residual_files(sqlite)}; {broker}."


def residual_files(sqlite: bool) -> str:
    """Return the places outside a database's files where erased data may remain."""
    if sqlite:
        return "disk blocks that have not been overwritten yet"
    return "the write-ahead log (WAL) and its archive, standbys, and rows that VACUUM could not remove"


@store_app.command("clock")
def store_clock(
    url: Url = DEFAULT_STORE,
    accept: Annotated[
        bool, typer.Option("--accept", help="Check clocks against this machine's time from now on.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check this machine's clock against the store's last time, or accept the clock.

    Aggregators count nothing while their clock is behind the store's last time, or more than 31 days ahead of
    it. --accept corrects a time that a wrong clock left in the store; first set or stop that clock. Exit with
    status 1 if the clock is wrong.
    """
    with Store(url, create=False) as store:
        now, last_s = datetime.datetime.now(datetime.UTC), store.last_time()
        if accept:
            store.accept_clock(now)
            fault = None
        else:
            fault = clock_fault(now, last_s)
        where = store.where
    last = None if last_s is None else datetime.datetime.fromtimestamp(last_s, datetime.UTC)
    if as_json:
        times = {"clock": now.isoformat(timespec="seconds"), "last": last and last.isoformat()}
        print_json({"store": where} | times | {"accepted": accept, "fault": fault and str(fault)})
        if fault:
            raise typer.Exit(1)
        return
    if fault:
        raise fault
    minute = "%Y-%m-%d %H:%M UTC"
    last_words = f"{last:{minute}}" if last else "not set yet"
    _say(f"The last time in {where} {'was' if accept else 'is'} {last_words}.")
    if accept:
        _say(f"Clocks are checked against {now:{minute}} from now on. Aggregators resume automatically.")
    else:
        _say(f"This machine's clock, which shows {now:{minute}}, is plausible.")


@store_app.command("merge")
def store_merge(
    into: Annotated[str, typer.Argument(metavar="INTO", help="URL of the store to add to: sqlite:///file.")],
    sources: Annotated[list[str], typer.Argument(metavar="FROM", help="URLs of the stores to add.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be added.")] = False,
    as_json: AsJson = False,
) -> None:
    """Merge stores from sites without a network; refuse if a report was counted twice.

    Either all of them are added or none. Stop INTO's aggregators first; they cannot write during a merge.
    """
    with ExitStack() as stack:
        target = stack.enter_context(Store(into, create=False))
        if not dry_run:
            _finish_rewrite(target)
        opened = [stack.enter_context(Store(source, create=False)) for source in sources]
        advance = stack.enter_context(progress("merging", 1.0))
        merged = merge(target, opened, dry_run=dry_run, advance=advance)
        where = target.where
    if as_json:
        print_json({"into": where, "dry_run": dry_run} | asdict(merged))
    else:
        _print_merge(merged, where, dry_run)


def _print_merge(added: MergeResult, where: str, dry_run: bool) -> None:
    table = show.table("", ("fleet", "experiment", "versions", "reports", "new devices"), (0, 1))
    for line in added.experiments:
        numbers = (f"{n:,}" for n in (line.versions, line.reports, line.devices))
        table.add_row(line.fleet, line.experiment, *numbers)
    _say(f"would be added to {where}" if dry_run else f"added to {where}")
    if table.row_count:
        show.out.print(table)
    if added.fleets:
        show.out.print(f"new fleets: {', '.join(added.fleets)}")
    show.out.print(f"rejected reports: {added.rejects:,}")
    if added.named or added.revoked:
        show.out.print(f"devices listed: {added.named:,} new, {added.revoked:,} revoked")
    unchanged = [f"{line.experiment} of {line.fleet}" for line in added.experiments if line.kept]
    if unchanged:
        show.out.print(
            f"published or described differently in a source, and not changed here: {', '.join(unchanged)}"
        )


def _finish_rewrite(store: Store) -> bool:
    """Finish an interrupted erasure; return whether one was pending and is now finished.

    A failure does not stop the command, because the rewrite remains pending.
    """
    try:
        is_finished = finish_rewrite(store)
    except StoreError as e:
        show.err.print(f"An interrupted erasure is not finished yet: {e}", markup=False)
        return False
    if is_finished:
        show.err.print(
            "An erasure had been interrupted; the files have now been rewritten without the erased data."
        )
    return is_finished


def _say(text: str) -> None:
    show.out.print(text, soft_wrap=True)
