"""Check the invariants of a store row by row, for `hushmote store check`.

Most importantly, every report in a histogram must have its number in a dedupe set, and vice versa. A report
that was counted twice, or acknowledged but lost, violates this invariant.
"""

import datetime
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from ...device.ldp_client import ExperimentRefused
from ..wire import topics
from ..wire.experiments import CustomCodeRefused, parse_experiment
from . import schema
from .database import StoreDamaged
from .erase import unfinished_erasures
from .log import StoredLog
from .number_set import NumberSet
from .rows import Rows
from .store import Store
from .versions import Version, most_reports, version_of

_WINDOW = {
    "hour": re.compile(r"\d{4}-\d\d-\d\dT\d\d"),
    "day": re.compile(r"\d{4}-\d\d-\d\d"),
    "all": re.compile("all"),
}

_Name = tuple[str, str]  # a fleet's experiment: fleet, name


@dataclass(frozen=True)
class StoreCheck:
    """The size of a store and the violations found in it.

    Attributes:
        experiments: Number of experiment versions.
        devices: Number of devices with an accepted report.
        reports: Number of reports in the histograms.
        violations: One line for each violation, without device ids.
        notes: Unfinished work that is not a violation.
    """

    experiments: int
    devices: int
    reports: int
    violations: tuple[str, ...]
    notes: tuple[str, ...] = ()


def check(store: Store, advance: Callable[[float], object] = lambda _: None) -> StoreCheck:
    """Read every row of one snapshot of a store, and list the violations.

    Args:
        store: The store.
        advance: Called as work progresses, with the additional share that is done, 0 to 1.

    Raises:
        StoreError: If the database itself fails, for example because its file is damaged.
    """
    with store.snapshot() as connection:
        violations = [*_file(connection)]
        rows = Rows(connection, (schema.dedupe, schema.histogram), advance)
        versions, unknown = _experiments(connection, violations)
        dedupe_totals = _dedupe(rows, _highest_numbers(versions), unknown, violations)
        histogram_totals = _histograms(rows, {v.id: v for v in versions}, unknown, violations)
        totals = _add_erased(connection, versions, histogram_totals, dedupe_totals)
        violations += _totals(*totals, skip={*unknown.values()})
        violations += _devices(connection)
        violations += _interruptions(connection)
        violations += _rewrites(connection)
        violations += _log(store)
        notes = unfinished_erasures(connection)
        table = schema.dedupe
        devices = select(table.c.fleet, table.c.device).where(table.c.accepted > 0).distinct().subquery()
        device_count = connection.scalar(select(func.count()).select_from(devices)) or 0
    return StoreCheck(len(versions), device_count, histogram_totals.total(), tuple(violations), notes)


def _file(connection: Connection) -> Iterator[str]:
    if connection.dialect.name == "sqlite":
        for (text,) in connection.exec_driver_sql("PRAGMA integrity_check(10)"):
            if text != "ok":
                yield f"the file is damaged: {' '.join(text.split())}"
        for table, _row, parent, _key in connection.exec_driver_sql("PRAGMA foreign_key_check"):
            yield f"a row of {table} belongs to a missing {parent}"


def _experiments(connection: Connection, violations: list[str]) -> tuple[list[Version], dict[int, _Name]]:
    """Return the versions, and the names by id of those whose custom code is missing here."""
    unknown = dict[int, _Name]()
    table, fleets = schema.experiment, schema.fleet
    versions: list[Version] = []
    last = dict(connection.execute(select(fleets.c.name, fleets.c.serial)).all())
    for row in connection.execute(select(table).order_by(table.c.id)).mappings():
        where = f"version {row['id']} of {row['name']} in fleet {row['fleet']}"
        try:
            experiment = parse_experiment(bytes(row["payload"]))
        except CustomCodeRefused as e:  # only a machine with that code can check the counts
            violations.append(f"{where} cannot be read here: {e}")
            unknown[row["id"]] = row["fleet"], row["name"]
            continue
        except (ExperimentRefused, TypeError, ValueError) as e:  # SQLite stores any type in any column
            violations.append(f"{where} does not parse: {e}")
            continue
        stored_fields = row["name"], bytes(row["digest"]), bytes(row["sha256"])
        if stored_fields != (experiment.name, experiment.digest, experiment.sha256):
            violations.append(f"{where} does not match its digest")
        try:
            version = version_of(row)
            if not 0 <= version.first_serial <= version.serial <= last.get(version.fleet, version.serial):
                raise ValueError
        except (TypeError, ValueError):
            violations.append(f"{where} has invalid dates, serials or texts")
            continue
        versions.append(version)
    current = Counter((v.fleet, v.experiment.name) for v in versions if v.current)
    for (fleet, name), n in current.items():
        if n > 1:
            violations.append(f"{name} of fleet {fleet} has {n} current versions; only one can be published")
    return versions, unknown


def _highest_numbers(versions: list[Version]) -> dict[_Name, float]:
    """Map each name to the highest report number that its versions allow; infinity if there is no limit."""
    limits = most_reports(versions)
    highest: dict[_Name, float] = {}
    for v in versions:
        name, limit = (v.fleet, v.experiment.name), limits[v.id]
        highest[name] = max(highest.get(name, 0), math.inf if limit is None else limit)
    return highest


def _dedupe(
    rows: Rows, limits: dict[_Name, float], unknown: dict[int, _Name], violations: list[str]
) -> Counter[_Name]:
    """Map each name to the number of reports in its dedupe sets."""
    unlimited = {*unknown.values()}
    totals: Counter[_Name] = Counter()
    faults: Counter[tuple[_Name, str]] = Counter()
    for fleet, experiment, _device, text, stored_count, beyond in rows.iterate(select(schema.dedupe)):
        name = fleet, experiment
        try:
            numbers = NumberSet.decode(text, beyond)
        except (TypeError, ValueError):
            faults[name, "cannot be read"] += 1
            continue
        totals[name] += len(numbers)
        if len(numbers) != stored_count:
            faults[name, "do not match its count"] += 1
        if name in unlimited:
            continue
        if name not in limits:
            faults[name, "belong to no known experiment"] += 1
        elif numbers.highest > limits[name]:
            faults[name, "are outside its budget"] += 1
    violations += (
        f"{experiment} of fleet {fleet}: the report numbers of {n:,} device{'s' * (n > 1)} {what}"
        for ((fleet, experiment), what), n in sorted(faults.items())
    )
    return totals


def _histograms(
    rows: Rows, versions: dict[int, Version], unknown: dict[int, _Name], violations: list[str]
) -> Counter[_Name]:
    """Map each name to the number of reports in its histograms."""
    table = schema.histogram
    totals: Counter[_Name] = Counter()
    faults: Counter[tuple[int, str]] = Counter()
    query = select(table.c.experiment, table.c.window, table.c.group_index, table.c.code, table.c.count)
    for id_, window, group, code, count in rows.iterate(query):
        if id_ in unknown:
            continue
        if id_ not in versions:
            faults[id_, "belong to no readable version"] += 1
            continue
        experiment = versions[id_].experiment
        if not all(isinstance(number, int) for number in (group, code, count)):
            faults[id_, "are not numbers"] += 1
            continue
        totals[versions[id_].fleet, experiment.name] += count
        if not 0 <= code < experiment.code_count:
            faults[id_, f"have codes outside 0 to {experiment.code_count - 1}"] += 1
        if not 0 <= group <= len(experiment.groups):
            faults[id_, f"have groups outside 0 to {len(experiment.groups)}"] += 1
        if count < 0:
            faults[id_, "are negative"] += 1
        if not _WINDOW[experiment.window].fullmatch(window):
            faults[id_, f"have a window other than {experiment.window}"] += 1
    for (id_, what), n in sorted(faults.items()):
        v = versions.get(id_)
        suffix = "" if v is None else f" of {v.experiment.name} in fleet {v.fleet}"
        violations.append(f"version {id_}{suffix}: {n:,} count{'s' * (n > 1)} {what}")
    return totals


def _add_erased(
    connection: Connection,
    versions: list[Version],
    histogram_totals: Counter[_Name],
    dedupe_totals: Counter[_Name],
) -> tuple[Counter[_Name], Counter[_Name]]:
    """Add erased windows to the histograms' totals, and erased devices to the dedupe sets' totals."""
    windows, table = Counter(histogram_totals), schema.erased
    for v in versions:
        windows[v.fleet, v.experiment.name] += v.erased
    query = select(table.c.fleet, table.c.experiment, func.sum(table.c.reports))
    query = query.where(table.c.experiment != "").group_by(table.c.fleet, table.c.experiment)
    rows = connection.execute(query).all()
    return windows, dedupe_totals + Counter({(fleet, name): int(n) for fleet, name, n in rows})


def _totals(
    histogram_totals: Counter[_Name], dedupe_totals: Counter[_Name], skip: set[_Name]
) -> Iterator[str]:
    for fleet, name in sorted((histogram_totals.keys() | dedupe_totals.keys()) - skip):
        count, expected = histogram_totals[fleet, name], dedupe_totals[fleet, name]
        if count != expected:
            reports = "report is" if count == 1 else "reports are"
            were = "was" if expected == 1 else "were"
            yield f"{name} of fleet {fleet}: {count:,} {reports} counted, {expected:,} {were} accepted"


def _devices(connection: Connection) -> Iterator[str]:
    table = schema.device
    devices = Rows(connection, [table]).iterate(select(table.c.fleet, table.c.device))
    invalid_ids = Counter(fleet for fleet, device in devices if not topics.is_device(device))
    for fleet, n in sorted(invalid_ids.items()):
        yield f"fleet {fleet}: {n:,} named device{'s' * (n > 1)} cannot report under that id"
    rejects = schema.reject
    query = select(func.count()).select_from(rejects).where(rejects.c.count < 0)
    if n := connection.scalar(query):
        yield f"{n:,} counter{'s' * (n > 1)} of rejected reports {'are' if n > 1 else 'is'} negative"


def _interruptions(connection: Connection) -> Iterator[str]:
    table = schema.counting
    for column, what in (
        (table.c.alive, "at which counting last worked"),
        (table.c.clock, "against which clocks are checked"),
    ):
        times = connection.scalars(select(column)).all()
        if len(times) != 1 or not all(_is_time(time) for time in times):
            texts = ", ".join(map(str, times)) or "missing"
            yield f"the time {what} must be one unix time, not {texts}"
    days = connection.scalars(select(schema.interruption.c.day)).all()
    if n := sum(not _is_day(day) for day in days):
        yield f"interrupted days that are not dates such as 2026-11-21: {n:,}"


def _rewrites(connection: Connection) -> Iterator[str]:
    rows = connection.execute(select(schema.rewrite)).all()
    if not (len(rows) == 1 and all(isinstance(n, int) for n in rows[0]) and 0 <= rows[0][1] <= rows[0][0]):
        yield "the record of whether the files were rewritten after each erasure is damaged"


def _log(store: Store) -> Iterator[str]:
    try:
        StoredLog(store).refresh()
    except StoreDamaged as e:
        yield str(e)


def _is_time(time: object) -> bool:
    return time is None or (isinstance(time, int) and 0 <= time < 1 << 32)


def _is_day(day: object) -> bool:
    try:
        return isinstance(day, str) and datetime.date.fromisoformat(day).isoformat() == day
    except ValueError:
        return False
