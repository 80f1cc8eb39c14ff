"""Merge the stores of unconnected sites: `merge` adds stores to another one completely, or not at all.

Histograms may be added only if the stores counted disjoint sets of reports. The dedupe sets record which
reports each store counted, so this can be checked exactly. If both counted the same report, its code in the
counts cannot be identified, and the merge is refused.
"""

import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Column, Connection, func, select, update

from ..errors import HushmoteError
from ..wire.limits import GRACE_DAYS
from . import schema
from .counting import add_interruptions
from .database import insert_devices, insert_erased, insert_new, insert_release_plans
from .number_set import NumberSet
from .rows import Rows, has_reports
from .store import Store, Version, VersionRefused, check_total
from .transaction import DedupeKey, IngestTransaction
from .versions import retired_until, row_of, signatures_text

_Name = tuple[str, str]  # a fleet's experiment: fleet, name
# For each fleet property: the words for False and True, and advice.
_KINDS = {
    "keyed": (("open", "keyed"), "these are two fleets with the same name"),
    "listed": (("for any device", "for devices on its allow-list"), "make it the same in both"),
}


class MergeRefused(HushmoteError):
    """Raised when a merge would count something twice or wrongly; the message says why."""


@dataclass(frozen=True)
class ExperimentAdditions:
    """The additions under one experiment's name.

    Attributes:
        fleet: The fleet's name.
        experiment: The experiment's name.
        versions: Number of versions that are new to the target.
        reports: Number of added reports.
        devices: Number of devices that are new to the target.
        kept: Whether a source differs in its current version or last day, or in a version's unit, purpose or
            owner, and the target's values were kept.
    """

    fleet: str
    experiment: str
    versions: int
    reports: int
    devices: int
    kept: bool


@dataclass(frozen=True)
class MergeResult:
    """All additions of a merge.

    Attributes:
        fleets: Names of new fleets.
        experiments: Additions for each experiment's name.
        rejects: Number of added rejects.
        named: Number of devices that the target had neither allowed nor revoked.
        revoked: Number of devices that the target had not revoked.
    """

    fleets: tuple[str, ...]
    experiments: tuple[ExperimentAdditions, ...]
    rejects: int
    named: int
    revoked: int


def merge(
    into: Store,
    sources: Sequence[Store],
    *,
    dry_run: bool = False,
    advance: Callable[[float], object] = lambda _: None,
) -> MergeResult:
    """Add the fleets, devices, versions, histograms, dedupe sets and rejects of stores to another store.

    Everything happens in one transaction. If the target already has an experiment's name, its current version
    and expiry are kept; otherwise they come from the first source. The same applies to a version's unit,
    purpose and owner: the target's text is kept, and an empty one is filled from the first source that has
    one. The plan by which a release is judged is also the target's, or else the first source's. A device that
    is revoked in any store is revoked. A day that is interrupted in any store is
    interrupted, because its counts are incomplete. Each source is read as one snapshot and is not changed.
    Rejects are added without a check, so a source that contains nothing else can be added twice.

    Args:
        into: The target.
        sources: The stores to add.
        dry_run: Whether to roll everything back and only report what would be added.
        advance: Called as work progresses, with the additional share that is done, 0 to 1.

    Raises:
        MergeRefused: If a fleet is open in one store and keyed in another, or has an allow-list in only one;
            a digest belongs to two versions; a version would raise a name's total; a name has reports and
            different units; both stores counted the same reports; a store's counts and dedupe sets do not
            match; or a source has queued erasures. Nothing is changed.
        ClockWrong: If a version stops being current while this machine's clock is wrong. Nothing is changed.
        StoreError: If a database fails. Nothing is changed.
    """
    for first, other in itertools.combinations((into, *sources), 2):
        if _is_same_database(first, other):
            raise MergeRefused(f"{first.where} is given twice: a store cannot be merged with itself")
    with into.writing() as target:
        total = _Merge(into, target)
        for source in sources:
            with source.snapshot() as connection:
                total.add(source, connection, lambda part: advance(part / len(sources)))
        if dry_run:
            target.rollback()
    return total.result()


def _is_same_database(first: Store, other: Store) -> bool:
    a, b = first.engine.url, other.engine.url
    if a.get_backend_name() != b.get_backend_name():
        return False
    if a.get_backend_name() != "sqlite":
        return (a.host, a.port, a.database) == (b.host, b.port, b.database)
    return (
        os.path.exists(first.where)
        and os.path.exists(other.where)
        and os.path.samefile(first.where, other.where)
    )


class _Merge:
    """A merge in progress: adds sources to one target in its transaction, and counts the additions."""

    def __init__(self, into: Store, target: Connection) -> None:
        self._into = into
        self._target = target
        self._write = IngestTransaction(target).write
        self._read_numbers = IngestTransaction(target).read_numbers
        self._fleets: list[str] = []
        self._additions: defaultdict[_Name, Counter[str]] = defaultdict(Counter)
        self._totals: Counter[str] = Counter(rejects=0, named=0, revoked=0)

    def result(self) -> MergeResult:
        """Return the additions so far."""
        lines = [
            ExperimentAdditions(*name, n["versions"], n["reports"], n["devices"], kept=bool(n["kept"]))
            for name, n in sorted(self._additions.items())
        ]
        return MergeResult(tuple(self._fleets), tuple(lines), **self._totals)

    def add(self, source: Store, connection: Connection, advance: Callable[[float], object]) -> None:
        """Add a source, as seen by its connection's transaction.

        Args:
            source: The store.
            connection: A connection to it with an open transaction.
            advance: Called as work progresses, with the additional share that is done, 0 to 1.
        """
        self._source = source
        self._connection = connection
        if connection.scalar(select(func.count()).select_from(schema.erasure)):
            raise MergeRefused(
                f"{source.where} has devices waiting for an aggregator to erase them: let it finish first"
            )
        rows = Rows(connection, (schema.dedupe, schema.histogram), advance)
        self._add_fleets()
        self._add_devices()
        versions = source.versions(connection, None)
        for store, reader in ((self._into, self._target), (source, connection)):
            _check_counts(store, reader, {(v.fleet, v.experiment.name) for v in versions})
        ids = self._add_versions(versions)
        self._add_dedupe(rows)
        self._add_erased()
        self._add_histograms(rows, ids)
        self._add_rejects()
        self._add_interruptions()
        self._add_release_plans()
        self._add_alerts()

    def _add_fleets(self) -> None:
        table = schema.fleet
        query = select(table).order_by(table.c.name)
        target_fleets = {row["name"]: row for row in self._target.execute(query).mappings()}
        for row in self._connection.execute(query).mappings():
            name = row["name"]
            if name not in target_fleets:
                self._target.execute(table.insert().values(**row))
                self._fleets.append(name)
                continue
            existing = target_fleets[name]
            for kind, (words, advice) in _KINDS.items():
                if existing[kind] != row[kind]:
                    raise MergeRefused(
                        f"fleet {name} is {words[existing[kind]]} in {self._into.where} and "
                        f"{words[row[kind]]} in {self._source.where}: {advice}"
                    )
            values = {"serial": max(existing["serial"], row["serial"])}
            values |= {"comparisons": max(existing["comparisons"], row["comparisons"])}
            values |= {"master_check": existing["master_check"] or row["master_check"]}
            self._target.execute(update(table).where(table.c.name == name).values(**values))

    def _add_devices(self) -> None:
        table = schema.device
        query = select(table.c.fleet, table.c.device, table.c.state)
        query = query.order_by(table.c.fleet, table.c.device)
        before = self._states()
        for part in Rows(self._connection, [table]).parts(query):
            self._target.execute(
                insert_devices(self._target),
                [dict(zip(("fleet", "device", "state"), row, strict=True)) for row in part],
            )
        after = self._states()
        self._totals["named"] += after.total() - before.total()
        self._totals["revoked"] += after["revoked"] - before["revoked"]

    def _states(self) -> Counter[str]:
        """Count the target's devices in each state."""
        state = schema.device.c.state
        rows = self._target.execute(select(state, func.count()).group_by(state))
        return Counter(dict(rows.all()))

    def _add_versions(self, versions: list[Version]) -> dict[int, int]:
        """Add the versions, and return a map from source ids to target ids."""
        target_versions = {(v.fleet, v.experiment.digest): v for v in self._into.versions(self._target, None)}
        self._check_units(versions, target_versions.values())
        first: dict[_Name, Version] = {}
        for v in target_versions.values():
            first.setdefault((v.fleet, v.experiment.name), v)
        target_names = set(first)
        ids: dict[int, int] = {}
        for v in versions:
            name = (v.fleet, v.experiment.name)
            same = target_versions.get((v.fleet, v.experiment.digest))
            if same is not None and same.experiment.sha256 != v.experiment.sha256:
                raise MergeRefused(
                    f"digest {v.experiment.digest.hex()} of fleet {v.fleet} is {same.experiment.name} in "
                    f"{self._into.where} and another version, of {v.experiment.name}, in {self._source.where}"
                )
            if name in target_names:
                is_current = same is not None and same.current
                if v.current != is_current or (is_current and same is not None and v.expires != same.expires):
                    self._additions[name]["kept"] = 1
            if same is not None:
                ids[v.id] = same.id
                self._unite(same, v)
                continue
            try:
                check_total(first.setdefault(name, v).experiment, v.experiment)
            except VersionRefused as e:
                raise MergeRefused(f"fleet {v.fleet} in {self._source.where}: {e}") from None
            ids[v.id] = self._insert(v, current=v.current and name not in target_names)
            self._additions[name]["versions"] += 1
        return ids

    def _check_units(self, versions: Iterable[Version], target_versions: Iterable[Version]) -> None:
        """Refuse a name whose readings have different units, unless nothing was counted in either."""
        target_names: defaultdict[_Name, list[Version]] = defaultdict(list)
        for other in target_versions:
            target_names[other.fleet, other.experiment.name].append(other)
        pairs = ((v, other) for v in versions for other in target_names[v.fleet, v.experiment.name])
        for v, other in pairs:
            if v.unit in ("", other.unit) or not other.unit:
                continue
            if has_reports(self._connection, v.id) or has_reports(self._target, other.id):
                raise MergeRefused(
                    f"{v.experiment.name} of fleet {v.fleet} has the unit {other.unit} in {self._into.where} "
                    f"and {v.unit} in {self._source.where}: their reports cannot be counted together"
                )

    def _insert(self, v: Version, *, current: bool) -> int:
        until = v.counted_until
        if v.current and not current:  # treat it as if the target's version had replaced it now
            until = retired_until(v, self._into.checked_time(self._target).date(), GRACE_DAYS)
        row = row_of(replace(v, current=current, counted_until=until))
        insert = schema.experiment.insert().values(**row).returning(schema.experiment.c.id)
        return self._target.execute(insert).scalar_one()

    def _unite(self, same: Version, other: Version) -> None:
        """Combine the publication times and texts of a version that both stores have."""
        ours, theirs = asdict(same.description), asdict(other.description)
        if any(ours[word] and theirs[word] and ours[word] != theirs[word] for word in ours):
            self._additions[same.fleet, same.experiment.name]["kept"] = 1
        table = schema.experiment
        both: dict[str, Any] = {"first_serial": min(same.first_serial, other.first_serial)}
        newest = max(same, other, key=lambda v: v.serial)
        both["serial"], both["signatures"] = newest.serial, signatures_text(newest.signatures)
        both["erased"] = same.erased + other.erased
        words = {word: ours[word] or theirs[word] for word in ours}
        self._target.execute(update(table).where(table.c.id == same.id).values(**both, **words))

    def _add_dedupe(self, rows: Rows) -> None:
        table = schema.dedupe
        columns = (table.c.fleet, table.c.experiment, table.c.device)
        query = select(*columns, table.c.numbers, table.c.beyond, table.c.accepted).order_by(*columns)
        overlaps: dict[_Name, tuple[int, int]] = {}
        for part in rows.parts(query.where(table.c.accepted > 0)):
            with self._source.decoding_errors():
                theirs = {(f, name, device): _decode(*row) for f, name, device, *row in part}
            with self._into.decoding_errors():
                ours = self._read_numbers(theirs)
            new_sets: dict[DedupeKey, NumberSet] = {}
            for key, numbers in theirs.items():
                name = key[0], key[1]
                union = ours[key].union(numbers)
                both = _span(ours[key]) + _span(numbers) - _span(union)
                if both:
                    devices, reports = overlaps.get(name, (0, 0))
                    overlaps[name] = devices + 1, reports + both
                self._additions[name].update(reports=len(numbers), devices=not ours[key])
                new_sets[key] = union
            if not overlaps:
                self._write(new_sets, {}, {})
        for (fleet, experiment), (devices, reports) in overlaps.items():
            raise MergeRefused(
                f"both {self._into.where} and {self._source.where} counted the same {reports:,} "
                f"report{'s' * (reports > 1)} of {devices:,} device{'s' * (devices > 1)} to {experiment} "
                f"in fleet {fleet}: their counts cannot be separated"
            )

    def _add_erased(self) -> None:
        table = schema.erased
        rows = [dict(row) for row in self._connection.execute(select(table)).mappings()]
        target_marks = set(self._target.scalars(select(table.c.mark)))
        if both := sum(row["mark"] in target_marks and row["reports"] > 0 for row in rows):
            raise MergeRefused(
                f"both {self._into.where} and {self._source.where} counted reports of {both:,} "
                f"device{'s' * (both > 1)} erased since: the reports may be the same ones"
            )
        if rows:
            self._target.execute(insert_erased(self._target), rows)

    def _add_histograms(self, rows: Rows, ids: dict[int, int]) -> None:
        table = schema.histogram
        key = table.c.experiment, table.c.window, table.c.group_index, table.c.code
        for part in rows.parts(select(*key, table.c.count)):
            self._write({}, {(ids[id_], *rest): count for id_, *rest, count in part}, {})

    def _add_rejects(self) -> None:
        table = schema.reject
        query = select(table.c.fleet, table.c.reason, table.c.count)
        rejects = {(fleet, reason): count for fleet, reason, count in self._connection.execute(query)}
        self._write({}, {}, rejects)
        self._totals["rejects"] += sum(rejects.values())

    def _add_interruptions(self) -> None:
        with self._source.decoding_errors():
            days = sorted(self._connection.scalars(select(schema.interruption.c.day)))
        add_interruptions(self._target, days)

    def _add_release_plans(self) -> None:
        rows = [dict(row) for row in self._connection.execute(select(schema.release_plan)).mappings()]
        if rows:
            self._target.execute(insert_release_plans(self._target), rows)

    def _add_alerts(self) -> None:
        """Add the events that the source knows; only its own aggregators know whom to send them to."""
        rows = [dict(row) for row in self._connection.execute(select(schema.alert)).mappings()]
        if rows:
            self._target.execute(insert_new(self._target, schema.alert), rows)


def _decode(text: str, beyond: bytes | None, accepted: int) -> NumberSet:
    numbers = NumberSet.decode(text, beyond)
    if len(numbers) != accepted:
        raise ValueError("a device's report numbers and their count do not match")
    return numbers


def _check_counts(store: Store, connection: Connection, names: set[_Name]) -> None:
    """Refuse counts without dedupe sets, because they may have been added before."""
    versions, dedupe, erased = schema.experiment, schema.dedupe, schema.erased

    def sums(count: Column[int], *name: Column[str]) -> Counter[_Name]:
        query = select(*name, func.sum(count)).group_by(*name)
        if count.table is schema.histogram:
            query = query.where(versions.c.id == schema.histogram.c.experiment)
        rows: Any = connection.execute(query)
        return Counter({(fleet, name): int(n) for fleet, name, n in rows})

    # Only sums remain of erased data: of windows in one table, of devices in the other.
    counts = sums(schema.histogram.c.count, versions.c.fleet, versions.c.name)
    counts += sums(versions.c.erased, versions.c.fleet, versions.c.name)
    dedupe_sums = sums(dedupe.c.accepted, dedupe.c.fleet, dedupe.c.experiment)
    dedupe_sums += sums(erased.c.reports, erased.c.fleet, erased.c.experiment)
    for fleet, name in sorted(names):
        count, expected = counts[fleet, name], dedupe_sums[fleet, name]
        if count != expected:
            raise MergeRefused(
                f"{store.where} counts {count:,} reports to {name} in fleet {fleet} but has the numbers of "
                f"{expected:,}: it is unclear what it counted, so it cannot be merged"
            )


def _span(numbers: NumberSet) -> int:
    """Return how many numbers are counted or too late; the other store may not distinguish the two."""
    return len(numbers) + numbers.late
