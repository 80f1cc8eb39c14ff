"""An aggregator's workloads on a SQLite store, to record their writes and check the store after power cuts.

    python -m store_workload WORKLOAD FOLDER [--pages N] [--synchronous LEVEL] [--early] [--no-sync]

count: creates a store and commits batches as an aggregator does, with a checkpoint every N pages, a reader
that delays some checkpoints, and a restart. upgrade: migrates a store from schema version 5 and adds a fleet.
backup: counts another batch and copies the store. Each workload records its acknowledgements in the file
`acknowledged`. The other options are deliberate bugs that a replay must find: a SQLite level that syncs less,
acknowledgements before their commits, and a backup without syncs.
"""

import argparse
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from boards import ask_fleet, experiment
from sqlalchemy import Pool, event, select
from write_log import ACKNOWLEDGED, PowerCut, Recording, record

from hushmote.server import private_file
from hushmote.server.ingest.commit import Committer
from hushmote.server.ingest.pipeline import KnownFleets
from hushmote.server.ingest.status import Status
from hushmote.server.store import Store, StoreError, schema
from hushmote.server.store.backup import backup
from hushmote.server.store.check import check
from hushmote.server.store.number_set import NumberSet
from hushmote.server.wire import report, topics

EXP = experiment(window="all", budget={"rule": "sum", "cap": 100_000_000})
FLEET = "open"
STORE = "store.sqlite"
COPY = "copy.sqlite"
BATCHES = 14
_BATCHES_WHILE_READING = range(4, 8)  # the batches committed while a reader is open
_RESTART = 10  # the batch before which the aggregator restarts
_REPORTS = 24
_OLD_STORE = Path(__file__).parents[1] / "data" / "store_v5.sql"

Contents = tuple[tuple[int, ...], dict[str, NumberSet]]  # reports by code, device -> its report numbers


def batch(i: int) -> list[tuple[str, int, int]]:
    """Return batch i's (device, number, code), from i = 1; the last four repeat the previous batch."""
    new = [(f"d{(7 * i + j) % 40:02}", i, (5 * i + j) % EXP.code_count) for j in range(_REPORTS)]
    return new + (batch(i - 1)[:4] if i > 1 else [])


def messages(i: int) -> list[tuple[str, bytes]]:
    """Return a batch as a broker delivers it."""
    return [(topics.report_topic(FLEET, d), report.encode(EXP, n, code)) for d, n, code in batch(i)]


def counted_after(batches: int) -> Contents:
    """Return a store's contents after the first batches, with each report counted once."""
    reports = {(device, n): code for i in range(1, batches + 1) for device, n, code in batch(i)}
    counts = [0] * EXP.code_count
    numbers: dict[str, NumberSet] = {}
    for (device, n), code in reports.items():
        counts[code] += 1
        numbers[device] = numbers.get(device, NumberSet()).add(n)
    return tuple(counts), numbers


def contents(store: Store) -> Contents:
    """Return a store's contents."""
    counts = tuple(map(int, store.histogram(FLEET, EXP.digest)))
    return counts, {device: numbers for device, _, numbers in store.accepted_numbers(FLEET)}


def _url(folder: Path, name: str = STORE) -> str:
    return f"sqlite:///{folder / name}"


def _commit(store: Store, batches: Iterable[int]) -> None:
    """Commit batches as an aggregator does; the caller may then acknowledge them."""
    status = Status()
    committer = Committer(store, KnownFleets(store, status), status)
    for i in batches:
        assert committer.commit(messages(i)), status.text


def _notes(folder: Path) -> Callable[[object], int]:
    """Return a function that records acknowledgements in the folder."""
    file = os.open(folder / ACKNOWLEDGED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return lambda text: os.write(file, str(text).encode())


def _make(url: str) -> None:
    with Store(url) as store:
        ask_fleet(store, FLEET, EXP)


def _wrong(store: Store, *expected: Contents) -> str | None:
    """Return the fault in a store that must hold one of these contents, or None."""
    if violations := check(store).violations:
        return violations[0]
    actual = contents(store)
    wanted = " or ".join(str(sum(counts)) for counts, _ in expected)
    return None if actual in expected else f"{sum(actual[0])} reports are counted, not {wanted}, or of others"


def _count(folder: Path, early: bool) -> None:
    note = _notes(folder)
    _make(_url(folder))
    note(0)
    for batches in (range(1, _RESTART), range(_RESTART, BATCHES + 1)):
        with Store(_url(folder)) as store, ExitStack() as reader:
            for i in batches:
                if i == _BATCHES_WHILE_READING.start:
                    reader.enter_context(store.snapshot()).execute(select(schema.dedupe)).all()
                if i == _BATCHES_WHILE_READING.stop:
                    reader.close()
                if early:
                    note(i)
                _commit(store, [i])
                note(i)


def _after_count(cut: PowerCut, folder: Path) -> str | None:
    if not cut.acknowledged:  # the store's creation was not acknowledged, so it need only be usable
        _make(_url(folder))
    acknowledged = int(cut.acknowledged or 0)
    with Store(_url(folder), create=False) as store:
        # The interrupted batch may be present, but only as a whole.
        if fault := _wrong(store, counted_after(acknowledged), counted_after(acknowledged + 1)):
            return fault
        # Unacknowledged batches are delivered again, as is the last acknowledged one.
        unacknowledged = range(max(1, acknowledged), min(BATCHES, acknowledged + 2) + 1)
        _commit(store, unacknowledged)
        return _wrong(store, counted_after(unacknowledged[-1]))


def _old_store(folder: Path) -> None:
    with closing(sqlite3.connect(folder / STORE)) as connection:
        connection.executescript(_OLD_STORE.read_text())


def _upgrade(folder: Path, _early: bool) -> None:
    note = _notes(folder)
    with Store(_url(folder), create=False, upgrade=True) as store:
        note("upgraded")
        store.add_fleet("later", keyed=False)
        note("added")


def _after_upgrade(cut: PowerCut, folder: Path) -> str | None:
    with Store(_url(folder), create=False, upgrade=not cut.acknowledged) as store:
        result = check(store)
        if result.violations:
            return result.violations[0]
        if result.reports != _old_reports():
            return f"{result.reports} reports are counted"
        if cut.acknowledged == "added" and "later" not in store.fleets():
            return "the fleet that was added is not there"
    return None


def _old_reports() -> int:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_OLD_STORE.read_text())
        return connection.execute("SELECT sum(count) FROM histogram").fetchone()[0]


def _counted_store(folder: Path) -> None:
    _make(_url(folder))
    with Store(_url(folder)) as store:
        _commit(store, [1, 2])


def _back_up(folder: Path, _early: bool) -> None:
    note = _notes(folder)
    with Store(_url(folder)) as store:
        _commit(store, [3])
        note("counted")
        backup(_url(folder), folder / COPY)
        note("copied")


def _after_backup(cut: PowerCut, folder: Path) -> str | None:
    if COPY not in cut.files:
        if cut.acknowledged == "copied":
            return "the backup is gone"
        backup(_url(folder), folder / COPY)
    expected = [counted_after(3)] if cut.acknowledged else [counted_after(2), counted_after(3)]
    for name in (STORE, COPY):
        with Store(_url(folder, name), create=False) as store:
            if fault := _wrong(store, *expected):
                return f"{name}: {fault}"
    return None


@dataclass(frozen=True)
class Workload:
    """A folder's initial state, a process's work in it (early: acknowledging early), and a check."""

    before: Callable[[Path], None]
    run: Callable[[Path, bool], None]
    after: Callable[[PowerCut, Path], str | None]

    def failure(self, cut: PowerCut, folder: Path) -> str | None:
        """Restore the files after a power cut to the folder, and return their fault, or None."""
        cut.put(folder)
        try:
            return self.after(cut, folder)
        except StoreError as e:
            return str(e)


WORKLOADS: Mapping[str, Workload] = {
    "count": Workload(lambda _no_store: None, _count, _after_count),
    "upgrade": Workload(_old_store, _upgrade, _after_upgrade),
    "backup": Workload(_counted_store, _back_up, _after_backup),
}


def recorded(name: str, folder: Path, *options: str) -> Recording:
    """Run a workload in a new folder and return the recording."""
    folder.mkdir()
    WORKLOADS[name].before(folder)
    return record(folder, "-m", "store_workload", name, str(folder), *options)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pages", type=int, default=8)
    parser.add_argument("--synchronous", default="FULL")
    parser.add_argument("--early", action="store_true")
    parser.add_argument("--no-sync", action="store_true")
    options = parser.parse_args()

    @event.listens_for(Pool, "checkout")
    def _(connection: sqlite3.Connection, _record: object, _proxy: object) -> None:
        connection.execute(f"PRAGMA wal_autocheckpoint={options.pages}")
        if options.synchronous != "FULL":
            connection.execute(f"PRAGMA synchronous={options.synchronous}")

    if options.no_sync:
        private_file.sync = lambda _path: None
    WORKLOADS[options.workload].run(options.folder, options.early)


if __name__ == "__main__":
    main()
