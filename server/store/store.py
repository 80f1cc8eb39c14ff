"""The store: histograms per experiment version, fleet and window, dedupe sets, reject counters.

SQLAlchemy Core, in statements that SQLite and PostgreSQL share; see database for how it is opened.
"""

from __future__ import annotations

import datetime
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection, and_, func, select, union_all, update

from ...device.ldp_client import Experiment, ExperimentRefused
from ..errors import no_such_name
from ..wire.experiments import OwnCodeRefused, parse_experiment
from ..wire.keys import Signatures
from ..wire.limits import GRACE_DAYS
from ..wire.topics import check_device, check_fleet
from . import schema
from .counting import accept_clock, check_clock, last_time, record_clock, record_counting
from .database import Database, StoreError, insert_devices
from .number_set import NumberSet
from .rows import window_counts
from .transaction import IngestTransaction
from .versions import (
    Description,
    Version,
    VersionRefused,
    check_signed_serial,
    check_total,
    day_text,
    last_counted,
    retired_until,
    row_of,
    version_of,
)

if TYPE_CHECKING:
    from ..arrays import Counts

__all__ = ["Description", "Participation", "Store", "StoreError", "Version", "VersionRefused", "check_total"]


@dataclass(frozen=True)
class Participation:
    """How many devices had at least one report accepted for an experiment's name, and how many reports.

    most: the largest number of one device's reports.
    """

    devices: int
    reports: int
    most: int


class Store(Database):
    """A store by SQLAlchemy URL, `sqlite:///path` for a file.

    create: make the database if it does not exist; otherwise that is an error. Safe to use from several
    threads and processes at once. Raises StoreError, one line, here and in every method.
    """

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Fleets and experiments

    def add_fleet(self, name: str, *, keyed: bool) -> None:
        """Add a fleet, keyed or open; adding it again as it is changes nothing.

        Raises VersionRefused if it exists as the other kind, NameRefused for an invalid name.
        """
        check_fleet(name)
        with self.writing() as connection:
            is_keyed = self._keyed(connection, name)
            if is_keyed is None:
                connection.execute(schema.fleet.insert().values(name=name, keyed=keyed))
            elif is_keyed != keyed:
                is_, want = ("keyed", "open") if is_keyed else ("open", "keyed")
                raise VersionRefused(
                    f"fleet {name} is {is_}: a fleet keeps its kind; one that is {want} needs another name"
                )

    def fleets(self) -> dict[str, bool]:
        """Return name -> whether the fleet is keyed."""
        query = select(schema.fleet.c.name, schema.fleet.c.keyed).order_by(schema.fleet.c.name)
        return {name: bool(keyed) for name, keyed in self.read(query)}

    def master_checks(self) -> dict[str, str | None]:
        """Return fleet -> the check value of its master key, None if no key has counted a report yet."""
        return dict(map(tuple, self.read(select(schema.fleet.c.name, schema.fleet.c.master_check))))

    def set_master_check(self, fleet: str, value: str) -> None:
        """Keep the check value of the master key that the fleet uses now."""
        table = schema.fleet
        with self.writing() as connection:
            connection.execute(update(table).where(table.c.name == fleet).values(master_check=value))

    def listed_fleets(self) -> frozenset[str]:
        """Return the names of the fleets with an allow-list: only its devices count."""
        query = select(schema.fleet.c.name).where(schema.fleet.c.listed)
        return frozenset(name for (name,) in self.read(query))

    def set_listed(self, fleet: str, listed: bool) -> None:
        """Count only allowed devices' reports in a fleet, or those of all but revoked devices.

        Raises VersionRefused for an unknown fleet.
        """
        table = schema.fleet
        with self.writing() as connection:
            change = update(table).where(table.c.name == fleet).values(listed=listed)
            if not connection.execute(change).rowcount:
                raise VersionRefused(_no_fleet(fleet))

    # Devices

    def allow_devices(self, fleet: str, devices: Iterable[str]) -> None:
        """Allow devices, all of them or none; doing it again changes nothing.

        Raises NameRefused for an invalid id, VersionRefused for an unknown fleet and for a
        revoked device: anyone who holds its key would be let in again.
        """
        devices = sorted(set(devices))
        with self.writing() as connection:
            self._set_state(connection, fleet, devices, "allowed")
            gone = self._devices(connection, fleet, "revoked").intersection(devices)
            if gone:
                raise VersionRefused(
                    f"device {min(gone)} of fleet {fleet} is revoked, for good: "
                    "provision it again under a new id"
                )

    def revoke_devices(self, fleet: str, devices: Iterable[str]) -> None:
        """Revoke devices for good, known to the store or not; doing it again changes nothing.

        Raises NameRefused for an invalid id and VersionRefused for an unknown fleet.
        """
        with self.writing() as connection:
            self._set_state(connection, fleet, sorted(set(devices)), "revoked")

    def revoked(self, fleet: str) -> frozenset[str]:
        """Return the ids of a fleet's revoked devices."""
        with self.reading() as connection:
            return self._devices(connection, fleet, "revoked")

    def known_devices(self, fleet: str, devices: Iterable[str]) -> frozenset[str]:
        """Return the devices that were named, or had a report counted, in a fleet."""
        ids, known = sorted(set(devices)), set[str]()
        with self.reading() as connection:
            for table in (schema.device, schema.dedupe):
                for some in (ids[i:][:1000] for i in range(0, len(ids), 1000)):
                    query = select(table.c.device).where(table.c.fleet == fleet, table.c.device.in_(some))
                    known.update(connection.scalars(query))
        return frozenset(known)

    def roster(self, fleet: str) -> dict[str, str]:
        """Return device id -> "allowed" or "revoked" for all named devices; sorted."""
        table = schema.device
        query = select(table.c.device, table.c.state).where(table.c.fleet == fleet)
        return dict(sorted(map(tuple, self.read(query))))

    def _devices(self, connection: Connection, fleet: str, state: str) -> frozenset[str]:
        table = schema.device
        query = select(table.c.device).where(table.c.fleet == fleet, table.c.state == state)
        return frozenset(connection.scalars(query))

    def _set_state(self, connection: Connection, fleet: str, devices: Sequence[str], state: str) -> None:
        for device in devices:
            check_device(device)
        if self._keyed(connection, fleet) is None:
            raise VersionRefused(_no_fleet(fleet))
        rows = [{"fleet": fleet, "device": device, "state": state} for device in devices]
        if rows:
            connection.execute(insert_devices(connection), rows)

    def _keyed(self, connection: Connection, name: str) -> bool | None:
        return connection.scalar(select(schema.fleet.c.keyed).where(schema.fleet.c.name == name))

    def add_experiment(
        self,
        fleet: str,
        payload: bytes,
        expires: datetime.date | None = None,
        *,
        grace_days: int = GRACE_DAYS,
        description: Description | None = None,
        signatures: Signatures | None = None,
    ) -> Experiment:
        """Add an experiment's version and make it the current one of its name; returns the Experiment.

        payload: the JSON that is published, at most 1 KiB. expires: its last day, None for no end. Adding a
        version again makes it current again, until the expiry given now. grace_days: how many days late
        reports still count: from today for the version that was current, from its expiry for this one.
        description: the analyst's words for it, None to keep those of an existing version. signatures: made
        elsewhere, None to leave them to an aggregator that has the signing key.
        Raises VersionRefused if the fleet is unknown, the payload does not parse, another version has
        the digest, or the version would raise the total that devices may spend on its name; ClockWrong if
        this machine's clock cannot be right.
        """
        try:
            new = parse_experiment(payload)
        except ExperimentRefused as e:
            raise VersionRefused(f"not an experiment: {e}") from None
        with self.writing() as connection:
            # If two add at once, the second one judges by what the first one added.
            now = self._checked_time(connection)
            if signatures is None:
                serial = self._new_serial(connection, fleet, now)
            else:
                serial = self._signed_serial(connection, fleet, new.name, signatures, now)
            versions = self.versions(connection, fleet)
            same = next((v for v in versions if v.experiment.digest == new.digest), None)
            if same is not None and same.payload != payload:
                raise VersionRefused(
                    f"digest {new.digest.hex()} is taken by another version of {same.experiment.name}: "
                    "change any field"
                )
            first = next((v for v in versions if v.experiment.name == new.name), None)
            if first is not None:
                check_total(first.experiment, new)
            table = schema.experiment
            for v in versions:
                if v.current and v.experiment.name == new.name:
                    self._retire(connection, v, now.date(), grace_days)
            version = same or Version(0, fleet, bytes(payload), True, None, new, first_serial=serial)
            words = {} if description is None else asdict(description)
            until = None if expires is None else last_counted(expires, grace_days)
            published = {"current": True, "expires": expires, "counted_until": until, "serial": serial}
            published |= {"signatures": signatures}
            change = table.insert() if same is None else update(table).where(table.c.id == same.id)
            connection.execute(change.values(**row_of(replace(version, **published, **words))))
            record_clock(connection, now)
        return new

    def withdraw_experiment(self, fleet: str, name: str, *, grace_days: int = GRACE_DAYS) -> None:
        """Stop publishing a name: no version of it stays current.

        Raises VersionRefused if it is unknown, and ClockWrong if this machine's clock cannot be right.
        Late reports count for grace_days more days, today included; 0 means that none counts from now on.
        """
        with self.writing() as connection:
            every = self.versions(connection, fleet)
            versions = [v for v in every if v.experiment.name == name]
            if not versions:
                names = sorted({v.experiment.name for v in every})
                raise VersionRefused(no_such_name("experiment", name, names, f"in fleet {fleet}"))
            now = self._checked_time(connection)
            for v in versions:
                self._retire(connection, v, now.date(), grace_days)
            record_clock(connection, now)

    def _retire(
        self, connection: Connection, version: Version, today: datetime.date, grace_days: int
    ) -> None:
        """Make a version not current; its reports do not count for longer than they did."""
        until = day_text(retired_until(version, today, grace_days))
        table = schema.experiment
        change = update(table).where(table.c.id == version.id)
        connection.execute(change.values(current=False, counted_until=until))

    def renew_serial(self, version: Version) -> None:
        """Give a current version a higher serial, unless its serial has changed since it was read.

        If several aggregators see an experiment changed at the broker, only the first raises it. Signatures
        that were made elsewhere hold no longer.
        """
        table = schema.experiment
        with self.writing() as connection:
            serial = self._new_serial(connection, version.fleet, self._checked_time(connection))
            same = and_(table.c.id == version.id, table.c.current, table.c.serial == version.serial)
            if not connection.execute(update(table).where(same).values(serial=serial)).rowcount:
                connection.rollback()

    def _checked_time(self, connection: Connection) -> datetime.datetime:
        """Return this machine's time, UTC; raises ClockWrong if it cannot be right."""
        now = datetime.datetime.now(datetime.UTC)
        with self.legible():
            check_clock(now, last_time(connection))
        return now

    def _new_serial(self, connection: Connection, fleet: str, now: datetime.datetime) -> int:
        """Return a serial above all of the fleet's and their withdrawals' (each one higher); others wait."""
        table = schema.fleet
        last = connection.scalar(select(table.c.serial).where(table.c.name == fleet).with_for_update())
        if last is None:
            raise VersionRefused(_no_fleet(fleet))
        serial = max(last + 2, int(now.timestamp()))
        if serial + 1 >= 1 << 32:
            raise StoreError(
                f"no experiment can be published: a wrong clock used up the serials of fleet {fleet}; "
                "provision its devices for another fleet"
            )
        connection.execute(update(table).where(table.c.name == fleet).values(serial=serial))
        return serial

    def _signed_serial(
        self,
        connection: Connection,
        fleet: str,
        name: str,
        signatures: Signatures,
        now: datetime.datetime,
    ) -> int:
        """Return the serial that a version was signed with, as the fleet's if it is the highest."""
        table = schema.fleet
        of_fleet = select(table.c.serial, table.c.keyed).where(table.c.name == fleet).with_for_update()
        row = connection.execute(of_fleet).one_or_none()
        if row is None:
            raise VersionRefused(_no_fleet(fleet))
        if not row.keyed:
            raise VersionRefused(f"fleet {fleet} is open: nothing is signed in it; add the experiment's file")
        same_name = [v for v in self.versions(connection, fleet) if v.experiment.name == name]
        check_signed_serial(same_name, signatures, row.serial, now.timestamp())
        serial = max(row.serial, signatures.serial)
        connection.execute(update(table).where(table.c.name == fleet).values(serial=serial))
        return signatures.serial

    def experiments(self, fleet: str | None = None) -> tuple[Version, ...]:
        """Return all versions of a fleet's experiments, or of all fleets', oldest first."""
        with self.reading() as connection:
            return tuple(self.versions(connection, fleet))

    def versions(self, connection: Connection, fleet: str | None) -> list[Version]:
        """Return what experiments() returns, as this connection's transaction sees it."""
        table = schema.experiment
        query = select(table).order_by(table.c.id)
        if fleet is not None:
            query = query.where(table.c.fleet == fleet)
        try:
            return [version_of(row) for row in connection.execute(query).mappings()]
        except OwnCodeRefused as e:
            raise StoreError(f"{self.where} has an experiment that cannot be read here: {e}") from None
        except (ExperimentRefused, TypeError, ValueError) as e:  # SQLite keeps any type in any column
            raise StoreError(f"{self.where} is damaged: an experiment in it does not parse ({e})") from None

    # Results

    def histogram(self, fleet: str, digest: bytes, *windows: str) -> Counts:
        """Return the counts of a version's codes, shape (code_count,), summed over windows, or over all.

        Raises VersionRefused if the fleet has no such version. A window without reports is all zeros.
        """
        with self.reading() as connection:
            version = self._version(connection, fleet, digest)
        return self.counts(version, *windows)

    def counts(self, version: Version, *windows: str) -> Counts:
        """Return what histogram() does, for a version that was read before."""
        import numpy as np  # only here: who is refused does not wait for it

        counts = np.zeros(version.experiment.code_count, np.int64)
        for _, codes, reports in self.window_counts(version, *windows):
            counts[codes] += reports
        return counts

    def window_counts(self, version: Version, *windows: str) -> Iterator[tuple[str, Counts, Counts]]:
        """Yield (window, its codes, each once, their reports) for these windows, or for all with reports."""
        most = version.experiment.code_count - 1
        with self.reading() as connection, self.legible():
            for window, codes, reports in window_counts(connection, version.id, windows):
                for code in codes[(codes < 0) | (codes > most)].tolist():
                    known = f"{version.experiment.name} has codes 0 to {most}"
                    raise StoreError(f"{self.where} is damaged: it counts code {code}, but {known}")
                yield window, codes, reports

    def windows(self, fleet: str, digest: bytes) -> tuple[str, ...]:
        """Return a version's windows with reports, oldest first: 2026-11-21, 2026-11-21T14 or all."""
        table = schema.histogram
        with self.reading() as connection:
            version = self._version(connection, fleet, digest)
            query = select(table.c.window).where(table.c.experiment == version.id).distinct()
            return tuple(connection.scalars(query.order_by(table.c.window)))

    def _version(self, connection: Connection, fleet: str, digest: bytes) -> Version:
        for version in self.versions(connection, fleet):
            if version.experiment.digest == digest:
                return version
        raise VersionRefused(f"fleet {fleet} has no experiment with digest {digest.hex()}")

    def rejects(self) -> dict[str, dict[str, int]]:
        """Return fleet -> reason -> reports that were not counted; the fleet is "" where it is not known."""
        rejects: dict[str, dict[str, int]] = {}
        table = schema.reject
        query = select(table.c.fleet, table.c.reason, table.c.count)
        for fleet, reason, count in self.read(query.order_by(table.c.fleet, table.c.reason)):
            rejects.setdefault(fleet, {})[reason] = count
        return rejects

    def participation(self, fleet: str) -> dict[str, Participation]:
        """Return experiment name -> accepted reports and the devices they came from, erased ones too."""
        table, gone = schema.dedupe.c, schema.erased.c
        known = select(table.experiment, table.accepted).where(table.fleet == fleet, table.accepted > 0)
        erased = select(gone.experiment, gone.reports).where(gone.fleet == fleet, gone.reports > 0)
        both = union_all(known, erased).subquery().c
        query = select(both.experiment, func.count(), func.sum(both.accepted), func.max(both.accepted))
        query = query.group_by(both.experiment)
        return {name: Participation(*map(int, row)) for name, *row in self.read(query)}

    def seen(self, fleet: str) -> Iterator[tuple[str, str, NumberSet]]:
        """Yield (device, experiment name, numbers of its accepted reports), all of a device's together."""
        table = schema.dedupe
        query = select(table.c.device, table.c.experiment, table.c.numbers, table.c.beyond)
        query = query.where(table.c.fleet == fleet, table.c.accepted > 0).order_by(table.c.device)
        with self.reading() as connection:
            for device, name, *numbers in connection.execution_options(yield_per=1000).execute(query):
                with self.legible():
                    decoded = NumberSet.decode(*numbers)
                yield device, name, decoded

    def window_reports(self, fleet: str) -> dict[int, dict[str, int]]:
        """Return version id -> window -> accepted reports, for those of a fleet's versions that have any."""
        table, versions = schema.histogram, schema.experiment
        query = select(table.c.experiment, table.c.window, func.sum(table.c.count))
        # Not with a join, for which SQLite would sort all rows.
        of_fleet = select(versions.c.id).where(versions.c.fleet == fleet)
        query = query.where(table.c.experiment.in_(of_fleet)).group_by(table.c.experiment, table.c.window)
        reports: dict[int, dict[str, int]] = {}
        for version, window, count in self.read(query):
            reports.setdefault(version, {})[window] = int(count)
        return reports

    # Ingest

    @contextmanager
    def ingest(self) -> Generator[IngestTransaction, None, None]:
        """Yield one transaction for one batch; leaving the block commits it durably, or raises StoreError."""
        with self.legible(), self.writing() as connection:
            # After an upgrade, a running aggregator would count by old rules.
            self.check_version(connection)
            self.hold_for_counting(connection)
            yield IngestTransaction(connection)

    # Interruptions

    def record_counting(self, now: datetime.datetime) -> None:
        """Record that counting works, without a batch; see IngestTransaction.record_time."""
        with self.legible(), self.writing() as connection:
            self.check_version(connection)
            record_counting(connection, now)

    def counting_time(self) -> datetime.datetime | None:
        """Return the minute in which counting was last known to work, UTC, or None if it has not yet."""
        with self.legible():
            for (alive,) in self.read(select(schema.counting.c.alive)):
                if alive is not None:
                    return datetime.datetime.fromtimestamp(alive, datetime.UTC)
        return None

    def last_time(self) -> int | None:
        """Return the time that no right clock is behind, unix seconds, or None for a new store."""
        with self.legible(), self.reading() as connection:
            return last_time(connection)

    def accept_clock(self, now: datetime.datetime) -> None:
        """Judge clocks by this time, UTC, from now on, even if the store's last time is later.

        Raises ClockWrong if no clock can be right that says so.
        """
        check_clock(now, None)
        with self.legible(), self.writing() as connection:
            self.check_version(connection)
            accept_clock(connection, now)

    def interrupted_days(self) -> frozenset[datetime.date]:
        """Return the days, UTC, on which counting was down for over an hour, or a backlog arrived."""
        with self.legible():
            rows = self.read(select(schema.interruption.c.day))
            return frozenset(datetime.date.fromisoformat(day) for (day,) in rows)

    # Whole stores

    @contextmanager
    def snapshot(self) -> Generator[Connection, None, None]:
        """Yield a connection that only reads, and sees the store as it was at its first read."""
        with self.reading() as connection:
            if connection.dialect.name != "sqlite":  # there every transaction reads a snapshot
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection


def _no_fleet(name: str) -> str:
    return f"there is no fleet {name}: add it first, keyed or open"
