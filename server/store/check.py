"""What must hold in a store whatever happened to it, checked row by row: `hushmote store check`.

Above all: every report in a histogram is a number in a dedupe set and the other way round. Whatever counts a
report twice, or loses one that was acknowledged, breaks that.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select

from ...device.ldp_client import Experiment, ExperimentRefused
from ..wire import topics
from ..wire.experiments import OwnCodeRefused, parse_experiment
from . import schema
from .number_set import NumberSet
from .store import Store, StoreError
from .versions import Version, most_reports, version_of

_ROWS = 10_000  # read together
_WINDOW = {
    "hour": re.compile(r"\d{4}-\d\d-\d\dT\d\d"),
    "day": re.compile(r"\d{4}-\d\d-\d\d"),
    "all": re.compile("all"),
}

_Name = tuple[str, str]  # an experiment's, in a fleet: fleet, name


@dataclass(frozen=True)
class StoreCheck:
    """What a store holds, and what is wrong with it: one line each, without any device's id."""

    experiments: int
    devices: int
    reports: int
    violations: tuple[str, ...]


def check(store: Store, advance: Callable[[float], object] = lambda _: None) -> StoreCheck:
    """Read every row of a store as it is at one moment and say which contradict each other.

    advance: is told how much more is done, of 1. Raises StoreError where the database itself fails, as a
    damaged file does.
    """
    with store.snapshot() as connection:
        wrong = [*_file(connection)]
        rows = _Rows(connection, advance)
        versions, lines = _experiments(connection)
        wrong += lines
        accepted, lines = _dedupe(rows, _highest_numbers(versions))
        wrong += lines
        known = {v.id: ((v.fleet, v.experiment.name), v.experiment) for v in versions}
        counted, lines = _histograms(rows, known)
        wrong += lines
        wrong += _totals(counted, accepted)
        wrong += _devices(connection)
        table = schema.dedupe
        devices = select(table.c.fleet, table.c.device).where(table.c.accepted > 0).distinct().subquery()
        heard = connection.scalar(select(func.count()).select_from(devices)) or 0
    return StoreCheck(len(versions), heard, counted.total(), tuple(wrong))


class _Rows:
    """Rows of the two large tables, read some thousands at a time; who waits is told how far that is."""

    def __init__(self, connection: Connection, advance: Callable[[float], object]) -> None:
        tables = (schema.dedupe, schema.histogram)
        self._connection = connection
        self._advance = advance
        self._count = sum(connection.scalar(select(func.count()).select_from(t)) or 0 for t in tables)

    def of(self, query: Select[*tuple[Any, ...]]) -> Iterator[Any]:
        for part in self._connection.execute(query.execution_options(yield_per=_ROWS)).partitions():
            yield from part
            self._advance(len(part) / self._count)


def _file(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        for (text,) in connection.exec_driver_sql("PRAGMA integrity_check(10)"):
            if text != "ok":
                yield f"the file is damaged: {' '.join(text.split())}"
        for table, _row, parent, _key in connection.exec_driver_sql("PRAGMA foreign_key_check"):
            yield f"a row of {table} belongs to a {parent} that is not there"


def _experiments(connection: Connection) -> tuple[list[Version], list[str]]:
    table = schema.experiment
    versions: list[Version] = []
    current: Counter[_Name] = Counter()
    wrong: list[str] = []
    fleets = schema.fleet
    query = select(fleets.c.name, fleets.c.serial)
    last = dict(connection.execute(query).all())
    for row in connection.execute(select(table).order_by(table.c.id)).mappings():
        where = f"version {row['id']} of {row['name']} in fleet {row['fleet']}"
        try:
            experiment = parse_experiment(bytes(row["payload"]))
        except OwnCodeRefused as e:  # its counts can be judged where the code is
            raise StoreError(f"{where} cannot be read here: {e}") from None
        except (ExperimentRefused, TypeError, ValueError) as e:  # SQLite keeps any type in any column
            wrong.append(f"{where} does not parse: {e}")
            continue
        stored = row["name"], bytes(row["digest"]), bytes(row["sha256"])
        if stored != (experiment.name, experiment.digest, experiment.sha256):
            wrong.append(f"{where} is not what its digest says")
        try:
            version = version_of(row)
            if not 0 <= version.first_serial <= version.serial <= last.get(version.fleet, version.serial):
                raise ValueError
        except (TypeError, ValueError):
            wrong.append(f"{where} has days, serials or words that cannot be")
            continue
        versions.append(version)
        current[row["fleet"], row["name"]] += version.current
    for (fleet, name), n in current.items():
        if n > 1:
            wrong.append(f"{name} of fleet {fleet} has {n} current versions; one may be published")
    return versions, wrong


def _highest_numbers(versions: list[Version]) -> dict[_Name, int | None]:
    """Return name -> the highest report number that any of its versions allows, None for any number."""
    most = most_reports(versions)
    highest: dict[_Name, int | None] = {}
    for v in versions:
        name, this = (v.fleet, v.experiment.name), most[v.id]
        before = highest.get(name, 0)
        highest[name] = None if this is None or before is None else max(before, this)
    return highest


def _dedupe(rows: _Rows, most: dict[_Name, int | None]) -> tuple[Counter[_Name], list[str]]:
    """Return name -> reports by the numbers of its devices, and what is wrong."""
    table = schema.dedupe
    accepted: Counter[_Name] = Counter()
    wrong: Counter[tuple[_Name, str]] = Counter()
    for fleet, experiment, _device, text, stored, beyond in rows.of(select(table)):
        name = fleet, experiment
        try:
            numbers = NumberSet.decode(text, beyond)
        except (TypeError, ValueError):
            wrong[name, "cannot be read"] += 1
            continue
        accepted[name] += len(numbers)
        if len(numbers) != stored:
            wrong[name, "are not as many as it says"] += 1
        if name not in most:
            wrong[name, "are of no experiment that is known"] += 1
            continue
        limit = most[name]
        if limit is not None and numbers.highest > limit:
            wrong[name, "are outside its budget"] += 1
    lines = [
        f"{experiment} of fleet {fleet}: the report numbers of {n:,} device{'s' * (n > 1)} {what}"
        for ((fleet, experiment), what), n in sorted(wrong.items())
    ]
    return accepted, lines


def _histograms(
    rows: _Rows, versions: dict[int, tuple[_Name, Experiment]]
) -> tuple[Counter[_Name], list[str]]:
    table = schema.histogram
    counted: Counter[_Name] = Counter()
    wrong: Counter[tuple[int, str]] = Counter()
    query = select(table.c.experiment, table.c.window, table.c.code, table.c.count)
    for id_, window, code, count in rows.of(query):
        if id_ not in versions:
            wrong[id_, "belong to no version that can be read"] += 1
            continue
        name, experiment = versions[id_]
        if not (isinstance(count, int) and isinstance(code, int)):
            wrong[id_, "are no numbers"] += 1
            continue
        counted[name] += count
        if not 0 <= code < experiment.code_count:
            wrong[id_, f"are of codes outside 0 to {experiment.code_count - 1}"] += 1
        if count < 0:
            wrong[id_, "are negative"] += 1
        if not _WINDOW[experiment.window].fullmatch(window):
            wrong[id_, f"are of a window that is no {experiment.window}"] += 1
    lines: list[str] = []
    for (id_, what), n in sorted(wrong.items()):
        fleet, name = versions[id_][0] if id_ in versions else ("", "")
        of = f"version {id_} of {name} in fleet {fleet}" if name else f"version {id_}"
        lines.append(f"{of}: {n:,} count{'s' * (n > 1)} {what}")
    return counted, lines


def _totals(counted: Counter[_Name], accepted: Counter[_Name]) -> Iterator[str]:
    for fleet, name in sorted(counted.keys() | accepted.keys()):
        have, of = counted[fleet, name], accepted[fleet, name]
        if have != of:
            yield f"{name} of fleet {fleet}: {have:,} reports are counted, {of:,} were accepted"


def _devices(connection: Connection) -> Iterator[str]:
    table = schema.device
    query = select(table.c.fleet, table.c.device).execution_options(yield_per=_ROWS)
    strange = Counter(fleet for fleet, device in connection.execute(query) if not topics.is_device(device))
    for fleet, n in sorted(strange.items()):
        yield f"fleet {fleet}: {n:,} named device{'s' * (n > 1)} can send nothing by that id"
    rejects = schema.reject
    query = select(func.count()).select_from(rejects).where(rejects.c.count < 0)
    if n := connection.scalar(query):
        yield f"{n:,} counters of rejected reports are negative"
