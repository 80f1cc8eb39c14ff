"""What an aggregator does to a SQLite store, for a recording of its writes, and what must be left of it.

    python -m store_workload WORKLOAD FOLDER [--pages N] [--synchronous LEVEL] [--early] [--no-sync]

count: makes a store and commits batches as an aggregator does, with checkpoints each N pages, a reader that
holds some of them up, and a restart. upgrade: brings a store of schema version 5 to this one, adds a fleet.
backup: counts a batch more and copies the store. Each notes in the file `acknowledged` what others were
told. The other options are mistakes, which a replay must find: a level of SQLite's that syncs less,
acknowledgements before their commits, no syncs of a backup.
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
_READ = range(4, 8)  # the batches that are committed while someone reads
_RESTART = 10  # the batch before which the aggregator starts again
_REPORTS = 24
_OLD_STORE = Path(__file__).parents[1] / "data" / "store_v5.sql"

Contents = tuple[tuple[int, ...], dict[str, NumberSet]]  # reports by code, device -> its report numbers


def batch(i: int) -> list[tuple[str, int, int]]:
    """Return the i-th batch's (device, number, code), i from 1; its last four repeat the batch before."""
    new = [(f"d{(7 * i + j) % 40:02}", i, (5 * i + j) % EXP.code_count) for j in range(_REPORTS)]
    return new + (batch(i - 1)[:4] if i > 1 else [])


def messages(i: int) -> list[tuple[str, bytes]]:
    """Return a batch as it comes from a broker."""
    return [(topics.report_topic(FLEET, d), report.encode(EXP, n, code)) for d, n, code in batch(i)]


def counted_after(batches: int) -> Contents:
    """Return the contents of a store that has counted the first batches, and each report once."""
    reports = {(device, n): code for i in range(1, batches + 1) for device, n, code in batch(i)}
    counts = [0] * EXP.code_count
    numbers: dict[str, NumberSet] = {}
    for (device, n), code in reports.items():
        counts[code] += 1
        numbers[device] = numbers.get(device, NumberSet()).add(n)
    return tuple(counts), numbers


def contents(store: Store) -> Contents:
    """Return what a store holds."""
    counts = tuple(map(int, store.histogram(FLEET, EXP.digest)))
    return counts, {device: numbers for device, _, numbers in store.accepted_numbers(FLEET)}


def _url(folder: Path, name: str = STORE) -> str:
    return f"sqlite:///{folder / name}"


def _commit(store: Store, batches: Iterable[int]) -> None:
    """Commit batches as an aggregator does; they may be acknowledged when this returns."""
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
    """Return the fault of a store that must hold one of these, None if there is none."""
    if violations := check(store).violations:
        return violations[0]
    held = contents(store)
    wanted = " or ".join(str(sum(counts)) for counts, _ in expected)
    return None if held in expected else f"{sum(held[0])} reports are counted, not {wanted}, or of others"


def _count(folder: Path, early: bool) -> None:
    note = _notes(folder)
    _make(_url(folder))
    note(0)
    for batches in (range(1, _RESTART), range(_RESTART, BATCHES + 1)):
        with Store(_url(folder)) as store, ExitStack() as reader:
            for i in batches:
                if i == _READ.start:
                    reader.enter_context(store.snapshot()).execute(select(schema.dedupe)).all()
                if i == _READ.stop:
                    reader.close()
                if early:
                    note(i)
                _commit(store, [i])
                note(i)


def _after_count(cut: PowerCut, folder: Path) -> str | None:
    if not cut.acknowledged:  # nobody was told that there is a store: it need only be one that can be used
        _make(_url(folder))
    acknowledged = int(cut.acknowledged or 0)
    with Store(_url(folder), create=False) as store:
        # The batch that was under way may be there: wholly.
        if wrong := _wrong(store, counted_after(acknowledged), counted_after(acknowledged + 1)):
            return wrong
        # What was not acknowledged comes again, and the last that was.
        again = range(max(1, acknowledged), min(BATCHES, acknowledged + 2) + 1)
        _commit(store, again)
        return _wrong(store, counted_after(again[-1]))


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
            if wrong := _wrong(store, *expected):
                return f"{name}: {wrong}"
    return None


@dataclass(frozen=True)
class Workload:
    """What stands in a folder before, what a process does there (early: a mistake), what must hold after."""

    before: Callable[[Path], None]
    run: Callable[[Path, bool], None]
    after: Callable[[PowerCut, Path], str | None]

    def failure(self, cut: PowerCut, folder: Path) -> str | None:
        """Return the fault after a power cut, None if there is none; the folder is made the cut's."""
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
    """Run a workload in a new folder and return what it did there."""
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
