"""The store: histograms per experiment version, fleet and window; dedupe sets; reject counters.

It uses SQLAlchemy Core, with statements that SQLite and PostgreSQL share. `database` opens it.
"""

from __future__ import annotations

import datetime
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import Connection, RowMapping, and_, func, select, union_all, update

from ...device.ldp_client import Experiment, ExperimentRefused
from ..errors import no_such_name
from ..log.entry import Entry
from ..plain_text import visible
from ..wire.experiments import CustomCodeRefused, parse_experiment
from ..wire.keys import Signatures
from ..wire.limits import GRACE_DAYS
from ..wire.topics import ROOT, check_device, check_fleet
from . import schema
from .counting import accept_clock, check_clock, last_time, record_clock, record_counting
from .database import (
    Database,
    StoreDamaged,
    StoreError,
    insert_devices,
    insert_release_plans,
    lock_out_batches,
)
from .number_set import NumberSet
from .rows import has_reports, window_counts
from .transaction import IngestTransaction
from .versions import (
    Addition,
    Description,
    UnreadableExperiment,
    Version,
    VersionRefused,
    check_expected,
    check_signed_serial,
    check_total,
    check_unit,
    day_text,
    last_counted,
    newest_versions,
    retired_until,
    row_of,
    version_of,
)

if TYPE_CHECKING:
    from ..arrays import Counts

__all__ = ["Description", "Participation", "Store", "StoreError", "Version", "VersionRefused", "check_total"]


@dataclass(frozen=True)
class Participation:
    """The devices and reports that were accepted for an experiment's name.

    Attributes:
        devices: Number of devices with at least one accepted report.
        reports: Number of accepted reports.
        most: The largest number of reports from one device.
    """

    devices: int
    reports: int
    most: int


class Store(Database):
    """An open store. It takes the same arguments as Database, first its URL (`sqlite:///path` for a file).

    Several threads and processes can use a store at the same time.

    Raises:
        StoreError: If the database fails, here or in any method; the message is one line.
    """

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Fleets and experiments

    def add_fleet(self, name: str, *, keyed: bool) -> None:
        """Add a fleet, keyed or open; adding it again changes nothing.

        Raises:
            VersionRefused: If it already exists as the other kind.
            NameRefused: If the name is invalid.
        """
        check_fleet(name)
        with self.writing() as connection:
            is_keyed = self._is_keyed(connection, name)
            if is_keyed is None:
                connection.execute(schema.fleet.insert().values(name=name, keyed=keyed))
            elif is_keyed != keyed:
                kind, other = ("keyed", "open") if is_keyed else ("open", "keyed")
                raise VersionRefused(
                    f"fleet {name} is {kind}, which cannot change: use another name for {other} fleets"
                )

    def fleets(self) -> dict[str, bool]:
        """Return whether each fleet is keyed, by name."""
        query = select(schema.fleet.c.name, schema.fleet.c.keyed).order_by(schema.fleet.c.name)
        return {name: bool(keyed) for name, keyed in self.read(query)}

    def master_checks(self) -> dict[str, str | None]:
        """Return the check value of each fleet's master key; None if no key has counted a report yet."""
        return dict(map(tuple, self.read(select(schema.fleet.c.name, schema.fleet.c.master_check))))

    def set_master_check(self, fleet: str, value: str) -> None:
        """Store the check value of the master key that the fleet uses now."""
        table = schema.fleet
        with self.writing() as connection:
            connection.execute(update(table).where(table.c.name == fleet).values(master_check=value))

    def listed_fleets(self) -> frozenset[str]:
        """Return the names of the fleets that have an allow-list, whose other devices do not count."""
        query = select(schema.fleet.c.name).where(schema.fleet.c.listed)
        return frozenset(name for (name,) in self.read(query))

    def set_listed(self, fleet: str, listed: bool) -> None:
        """Set whether a fleet counts only allowed devices, or all except revoked devices.

        Raises:
            VersionRefused: If there is no such fleet.
        """
        table = schema.fleet
        with self.writing() as connection:
            change = update(table).where(table.c.name == fleet).values(listed=listed)
            if not connection.execute(change).rowcount:
                raise VersionRefused(_no_fleet(fleet))

    # Devices

    def allow_devices(self, fleet: str, devices: Iterable[str], *, are_new: bool = False) -> None:
        """Allow all of the devices, or none of them on an error; repeating it changes nothing.

        Args:
            fleet: The fleet's name.
            devices: The ids.
            are_new: Whether to refuse devices that were named before.

        Raises:
            NameRefused: If an id is invalid.
            VersionRefused: If there is no such fleet, or a device is revoked, because anyone who has its key
                could report again.
        """
        devices = sorted(set(devices))
        with self.writing() as connection:
            table = schema.device.c
            named = select(func.min(table.device)).where(table.fleet == fleet, table.device.in_(devices))
            if are_new and (device := connection.scalar(named)):
                raise VersionRefused(f"device {device} of fleet {fleet} already exists: choose another id")
            self._set_state(connection, fleet, devices, "allowed")
            revoked = self._devices(connection, fleet, "revoked").intersection(devices)
            if revoked:
                raise VersionRefused(
                    f"device {min(revoked)} of fleet {fleet} is permanently revoked: "
                    "provision it again under a new id"
                )

    def revoke_devices(self, fleet: str, devices: Iterable[str]) -> None:
        """Revoke devices permanently, even those unknown to the store; repeating it changes nothing.

        Raises:
            NameRefused: If an id is invalid.
            VersionRefused: If there is no such fleet.
        """
        with self.writing() as connection:
            self._set_state(connection, fleet, sorted(set(devices)), "revoked")

    def revoked_devices(self, fleet: str) -> frozenset[str]:
        """Return the ids of a fleet's revoked devices."""
        with self.reading() as connection:
            return self._devices(connection, fleet, "revoked")

    def known_devices(self, fleet: str, devices: Iterable[str]) -> frozenset[str]:
        """Return the devices that an operator named in a fleet or that have a counted report."""
        ids, matches = sorted(set(devices)), set[str]()
        with self.reading() as connection:
            for table in (schema.device, schema.dedupe):
                for part in (ids[i:][:1000] for i in range(0, len(ids), 1000)):
                    query = select(table.c.device).where(table.c.fleet == fleet, table.c.device.in_(part))
                    matches.update(connection.scalars(query))
        return frozenset(matches)

    def roster(self, fleet: str) -> dict[str, str]:
        """Return "allowed" or "revoked" for each named device, sorted by id."""
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
        if self._is_keyed(connection, fleet) is None:
            raise VersionRefused(_no_fleet(fleet))
        rows = [{"fleet": fleet, "device": device, "state": state} for device in devices]
        if rows:
            connection.execute(insert_devices(connection), rows)

    def _is_keyed(self, connection: Connection, name: str) -> bool | None:
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
        """Add an experiment's version and return the experiment; see add_version()."""
        return self.add_version(
            fleet, payload, expires, grace_days=grace_days, description=description, signatures=signatures
        ).version.experiment

    def add_version(
        self,
        fleet: str,
        payload: bytes,
        expires: datetime.date | None = None,
        *,
        grace_days: int = GRACE_DAYS,
        description: Description | None = None,
        signatures: Signatures | None = None,
        expected: Iterable[Version] | None = None,
    ) -> Addition:
        """Add an experiment's version and make it the current one of its name.

        Adding an existing version makes it current again, until the expiry given now.

        Args:
            fleet: The fleet's name.
            payload: The published JSON, at most 1 KiB.
            expires: The last day on which it is published, UTC; None for no end.
            grace_days: For how many days late reports still count: for the previously current version from
                today, for this one from its expiry.
            description: The analyst's texts; None keeps those of an existing version.
            signatures: Signatures made on another machine; None leaves signing to an aggregator with the key.
            expected: The fleet's versions when the caller last read them; None if it does not matter which
                one is replaced.

        Raises:
            VersionRefused: If the fleet is unknown, the payload does not parse, another version has the same
                digest, someone else has changed the experiment in the meantime, it would raise the total that
                devices may spend on its name, or the name has reports in another unit.
            ClockWrong: If this machine's clock is wrong.
        """
        try:
            new = parse_experiment(payload)
        except ExperimentRefused as e:
            raise VersionRefused(f"not an experiment: {e}") from None
        with self.writing() as connection:
            # If two processes add versions at once, the second one sees the first one's version.
            now = self.checked_time(connection)
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
            same_name = [v for v in versions if v.experiment.name == new.name]
            if same_name:
                check_total(same_name[0].experiment, new)
            if description is not None:
                unit = description.unit
                check_unit(new.name, unit, _counted_in_other_units(connection, same_name, unit))
            table = schema.experiment
            for v in same_name:
                if v.current:
                    self._retire(connection, v, now.date(), grace_days)
            version = same or Version(0, fleet, bytes(payload), True, None, new, first_serial=serial)
            words = {} if description is None else asdict(description)
            until = None if expires is None else last_counted(expires, grace_days)
            last_day = None if expires == datetime.date.max else expires
            publication = {"current": True, "expires": last_day, "counted_until": until, "serial": serial}
            publication |= {"signatures": signatures}
            version = replace(version, **publication, **words)
            if same is None:
                insert = table.insert().values(**row_of(version)).returning(table.c.id)
                version = replace(version, id=connection.scalars(insert).one())
            else:
                connection.execute(update(table).where(table.c.id == same.id).values(**row_of(version)))
            previous = newest_versions(same_name).get((fleet, new.name))
            addition = Addition(version, previous, same is None)
            if expected is not None:
                check_expected(addition, expected)
            record_clock(connection, now)
        return addition

    def withdraw_experiment(self, fleet: str, name: str, *, grace_days: int = GRACE_DAYS) -> None:
        """Stop publishing a name, so that none of its versions is current.

        Args:
            fleet: The fleet's name.
            name: The experiment's name.
            grace_days: For how many days late reports count, including today; 0 rejects them from now on.

        Raises:
            VersionRefused: If there is no such experiment.
            ClockWrong: If this machine's clock is wrong.
        """
        with self.writing() as connection:
            all_versions = self.versions(connection, fleet)
            versions = [v for v in all_versions if v.experiment.name == name]
            if not versions:
                names = sorted({v.experiment.name for v in all_versions})
                raise VersionRefused(no_such_name("experiment", name, names, f"in fleet {fleet}"))
            now = self.checked_time(connection)
            for v in versions:
                self._retire(connection, v, now.date(), grace_days)
            record_clock(connection, now)

    def _retire(
        self, connection: Connection, version: Version, today: datetime.date, grace_days: int
    ) -> None:
        """Make a version no longer current, without extending the time in which its reports count."""
        until = day_text(retired_until(version, today, grace_days))
        table = schema.experiment
        change = update(table).where(table.c.id == version.id)
        connection.execute(change.values(current=False, counted_until=until))

    def renew_serial(self, version: Version) -> None:
        """Give a current version a higher serial, unless its serial has changed since it was read.

        If several aggregators see that an experiment was changed at the broker, only the first one raises the
        serial. Signatures made elsewhere become invalid.
        """
        table = schema.experiment
        with self.writing() as connection:
            serial = self._new_serial(connection, version.fleet, self.checked_time(connection))
            same = and_(table.c.id == version.id, table.c.current, table.c.serial == version.serial)
            if not connection.execute(update(table).where(same).values(serial=serial)).rowcount:
                connection.rollback()

    def checked_time(self, connection: Connection) -> datetime.datetime:
        """Return this machine's time, UTC; raise ClockWrong if it is wrong."""
        now = datetime.datetime.now(datetime.UTC)
        with self.decoding_errors():
            check_clock(now, last_time(connection))
        return now

    def _new_serial(self, connection: Connection, fleet: str, now: datetime.datetime) -> int:
        """Return a serial above all of the fleet's serials and those of withdrawals, which are one higher."""
        table = schema.fleet
        last = connection.scalar(select(table.c.serial).where(table.c.name == fleet).with_for_update())
        if last is None:
            raise VersionRefused(_no_fleet(fleet))
        serial = max(last + 2, self._logged_serial(connection, fleet) + 2, int(now.timestamp()))
        if serial + 1 >= 1 << 32:
            raise StoreError(
                f"no experiment can be published: a wrong clock used up the serials of fleet {fleet}; "
                "provision its devices for another fleet"
            )
        connection.execute(update(table).where(table.c.name == fleet).values(serial=serial))
        return serial

    def _logged_serial(self, connection: Connection, fleet: str) -> int:
        """Return the highest serial of a fleet in the log, which may have more than a store from a backup."""
        table, prefix = schema.log_entry, f"{ROOT}/{fleet}/experiment/"
        query = select(table.c.key, table.c.content).where(table.c.key.startswith(prefix, autoescape=True))
        rows = connection.execute(query)
        return max((Entry(key, bytes(content)).serial or 0 for key, content in rows), default=0)

    def _signed_serial(
        self,
        connection: Connection,
        fleet: str,
        name: str,
        signatures: Signatures,
        now: datetime.datetime,
    ) -> int:
        """Return the serial that a version was signed with, and raise the fleet's serial to it."""
        table = schema.fleet
        query = select(table.c.serial, table.c.keyed).where(table.c.name == fleet).with_for_update()
        row = connection.execute(query).one_or_none()
        if row is None:
            raise VersionRefused(_no_fleet(fleet))
        if not row.keyed:
            raise VersionRefused(
                f"fleet {fleet} is open, so nothing is signed in it: add the experiment's file"
            )
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
        """Return the same versions as experiments(), as seen by this connection's transaction."""
        versions = list[Version]()
        for row in _version_rows(connection, fleet):
            subject = f"experiment {visible(str(row['name']))} of fleet {visible(str(row['fleet']))}"
            try:
                versions.append(version_of(row))
            except CustomCodeRefused as e:
                raise StoreError(f"{subject} in {self.where} cannot be read here: {e}") from None
            except (ExperimentRefused, TypeError, ValueError) as e:  # SQLite stores any type in any column
                words = f"{subject} does not parse ({visible(str(e))})"
                raise StoreError(f"{self.where} is damaged: {words}") from None
        return versions

    def readable_experiments(
        self, fleet: str | None = None
    ) -> tuple[tuple[Version, ...], tuple[UnreadableExperiment, ...]]:
        """Return the same versions as experiments(), and the experiments that are left out of them.

        An experiment is left out with all its versions if one of them cannot be read, because its reports
        and its ε would be incomplete. Only readers may use this: whatever counts, merges, erases or publishes
        experiments needs all of them.
        """
        with self.reading() as connection:
            return self.readable_versions(connection, fleet)

    def readable_versions(
        self, connection: Connection, fleet: str | None
    ) -> tuple[tuple[Version, ...], tuple[UnreadableExperiment, ...]]:
        """Return the same as readable_experiments(), as seen by this connection's transaction."""
        versions, unreadable = list[Version](), dict[tuple[str, str], UnreadableExperiment]()
        for row in _version_rows(connection, fleet):
            key = str(row["fleet"]), str(row["name"])
            subject = f"experiment {visible(key[1])} of fleet {visible(key[0])}"
            try:
                versions.append(version_of(row))
            except CustomCodeRefused as e:
                unreadable[key] = UnreadableExperiment(*key, f"{subject} cannot be read here: {e}")
            except (ExperimentRefused, TypeError, ValueError) as e:  # SQLite stores any type in any column
                words = f"{subject} cannot be read here: {visible(str(e))}; {_UNREADABLE}"
                unreadable[key] = UnreadableExperiment(*key, words)
        readable = tuple(v for v in versions if (v.fleet, v.experiment.name) not in unreadable)
        return readable, tuple(unreadable.values())

    # Results

    def histogram(self, fleet: str, digest: bytes, *windows: str) -> Counts:
        """Return the counts of a version's codes, of shape (code_count,), summed over windows.

        Args:
            fleet: The fleet's name.
            digest: The version's digest.
            windows: The windows to sum; all if none are given. A window without reports adds nothing.

        Raises:
            VersionRefused: If the fleet has no such version.
        """
        with self.reading() as connection:
            version = self._version(connection, fleet, digest)
        return self.counts(version, *windows)

    def counts(self, version: Version, *windows: str) -> Counts:
        """Return the same counts as histogram(), for a version that was already read."""
        import numpy as np  # imported lazily because it is slow to load

        counts = np.zeros(version.experiment.code_count, np.int64)
        for _, codes, reports in self.window_counts(version, *windows):
            counts[codes] += reports
        return counts

    def window_counts(
        self, version: Version, *windows: str, group: int | None = None
    ) -> Iterator[tuple[str, Counts, Counts]]:
        """Yield windows with their codes and each code's number of reports.

        Args:
            version: The version.
            windows: The windows to read; all if none are given.
            group: The index of the open group's value; None for the sum over all groups.
        """
        highest = version.experiment.code_count - 1
        with self.reading() as connection, self.decoding_errors():
            for window, codes, reports in window_counts(connection, version.id, windows, group):
                for code in codes[(codes < 0) | (codes > highest)].tolist():
                    expected = f"{version.experiment.name} has codes 0 to {highest}"
                    raise StoreDamaged(f"{self.where} is damaged: it counts code {code}, but {expected}")
                yield window, codes, reports

    def windows(self, fleet: str, digest: bytes) -> tuple[str, ...]:
        """Return a version's windows with reports, oldest first, such as 2026-11-21, 2026-11-21T14 or all.

        Raises:
            VersionRefused: If the fleet has no such version.
        """
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
        """Return the rejected reports by fleet and reason; the fleet is "" if it is unknown."""
        rejects: dict[str, dict[str, int]] = {}
        table = schema.reject
        query = select(table.c.fleet, table.c.reason, table.c.count)
        for fleet, reason, count in self.read(query.order_by(table.c.fleet, table.c.reason)):
            rejects.setdefault(fleet, {})[reason] = count
        return rejects

    def participation(self, fleet: str) -> dict[str, Participation]:
        """Return the accepted reports and their devices for each experiment's name, including erased ones."""
        table, erased_table = schema.dedupe.c, schema.erased.c
        accepted_rows = select(table.experiment, table.accepted).where(
            table.fleet == fleet, table.accepted > 0
        )
        erased_rows = select(erased_table.experiment, erased_table.reports).where(
            erased_table.fleet == fleet, erased_table.reports > 0
        )
        both = union_all(accepted_rows, erased_rows).subquery().c
        query = select(both.experiment, func.count(), func.sum(both.accepted), func.max(both.accepted))
        query = query.group_by(both.experiment)
        return {name: Participation(*map(int, row)) for name, *row in self.read(query)}

    def devices_with(self, fleet: str, experiment: str, reports: int) -> int:
        """Return the number of devices with at least this many accepted reports to an experiment's name."""
        table = schema.dedupe.c
        named = (table.fleet == fleet) & (table.experiment == experiment)
        ((devices,),) = self.read(select(func.count()).where(named, table.accepted >= reports))
        return int(devices)

    def accepted_numbers(self, fleet: str) -> Iterator[tuple[str, str, NumberSet]]:
        """Yield device, experiment name and the numbers of its accepted reports, grouped by device."""
        table = schema.dedupe
        query = select(table.c.device, table.c.experiment, table.c.numbers, table.c.beyond)
        query = query.where(table.c.fleet == fleet, table.c.accepted > 0).order_by(table.c.device)
        with self.reading() as connection:
            for device, name, *numbers in connection.execution_options(yield_per=1000).execute(query):
                with self.decoding_errors():
                    number_set = NumberSet.decode(*numbers)
                yield device, name, number_set

    def window_reports(self, fleet: str) -> dict[int, dict[str, int]]:
        """Return the accepted reports by version id and window, for versions of a fleet that have any."""
        table, versions = schema.histogram, schema.experiment
        query = select(table.c.experiment, table.c.window, func.sum(table.c.count))
        # A join would make SQLite sort all rows.
        of_fleet = select(versions.c.id).where(versions.c.fleet == fleet)
        query = query.where(table.c.experiment.in_(of_fleet)).group_by(table.c.experiment, table.c.window)
        reports: dict[int, dict[str, int]] = {}
        for version, window, count in self.read(query):
            reports.setdefault(version, {})[window] = int(count)
        return reports

    def group_reports(self, fleet: str) -> dict[int, dict[str, dict[int, int]]]:
        """Return the accepted reports by version id, window and group index, for versions that have any.

        The index of the reports to a version without a group is 0.
        """
        table, versions = schema.histogram.c, schema.experiment.c
        key = table.experiment, table.window, table.group_index
        query = select(*key, func.sum(table.count)).group_by(*key).order_by(*key)
        query = query.where(table.experiment.in_(select(versions.id).where(versions.fleet == fleet)))
        reports: dict[int, dict[str, dict[int, int]]] = {}
        for version, window, group, count in self.read(query):
            reports.setdefault(version, {}).setdefault(window, {})[group] = int(count)
        return reports

    # Releases

    def release_plan(self, fleet: str, group: str, version: str) -> str | None:
        """Return the plan by which a release is judged, or None before the first look.

        Args:
            fleet: The fleet's name.
            group: The open group's name, such as firmware.
            version: The group's value, such as 2.4.0.
        """
        with self.reading() as connection:
            return self._release_plan(connection, fleet, group, version)

    def release_plans(self, fleet: str) -> dict[tuple[str, str], str]:
        """Return all of a fleet's release plans, by the group's name and value."""
        table = schema.release_plan.c
        query = select(table.group_name, table.version, table.plan).where(table.fleet == fleet)
        with self.reading() as connection:
            return {(group, version): plan for group, version, plan in connection.execute(query)}

    def add_release_plan(self, fleet: str, group: str, version: str, plan: str) -> str:
        """Store the plan by which a release is judged, unless there is one; return the plan that applies.

        Args:
            fleet: The fleet's name.
            group: The open group's name.
            version: The group's value.
            plan: The plan.

        Raises:
            VersionRefused: If there is no such fleet.
        """
        with self.writing() as connection:
            self.check_version(connection)
            if self._is_keyed(connection, fleet) is None:
                raise VersionRefused(_no_fleet(fleet))
            values = {"fleet": fleet, "group_name": group, "version": version, "plan": plan}
            connection.execute(insert_release_plans(connection), values)
            return self._release_plan(connection, fleet, group, version) or plan

    def _release_plan(self, connection: Connection, fleet: str, group: str, version: str) -> str | None:
        table = schema.release_plan.c
        query = select(table.plan).where(table.fleet == fleet, table.group_name == group)
        return connection.scalar(query.where(table.version == version))

    # Ingest

    @contextmanager
    def ingest(self) -> Generator[IngestTransaction, None, None]:
        """Yield a transaction for one batch; leaving the block commits it durably or raises StoreError."""
        with self.decoding_errors(), self.writing() as connection:
            # After an upgrade, an aggregator that is still running would apply the old rules.
            self.check_version(connection)
            self.hold_for_counting(connection)
            yield IngestTransaction(connection)

    # Interruptions

    def record_counting(self, now: datetime.datetime) -> None:
        """Record that counting works when there is no batch; see IngestTransaction.record_time."""
        with self.decoding_errors(), self.writing() as connection:
            self.check_version(connection)
            record_counting(connection, now)

    def counting_time(self) -> datetime.datetime | None:
        """Return the minute in which counting last worked, UTC, or None for a new store."""
        with self.decoding_errors():
            for (alive,) in self.read(select(schema.counting.c.alive)):
                if alive is not None:
                    return datetime.datetime.fromtimestamp(alive, datetime.UTC)
        return None

    def last_time(self) -> int | None:
        """Return the earliest time that a correct clock can show, unix seconds, or None for a new store."""
        with self.decoding_errors(), self.reading() as connection:
            return last_time(connection)

    def accept_clock(self, now: datetime.datetime) -> None:
        """Check clocks against this time, UTC, from now on, even if the store's last time is later.

        Raises:
            ClockWrong: If a clock that shows this time must be wrong.
        """
        check_clock(now, None)
        with self.decoding_errors(), self.writing() as connection:
            self.check_version(connection)
            accept_clock(connection, now)

    def interrupted_days(self) -> frozenset[datetime.date]:
        """Return the days, UTC, on which counting was down for over an hour, or a backlog arrived."""
        with self.decoding_errors():
            rows = self.read(select(schema.interruption.c.day))
            return frozenset(datetime.date.fromisoformat(day) for (day,) in rows)

    # Whole stores

    @contextmanager
    def snapshot(self) -> Generator[Connection, None, None]:
        """Yield a read connection that sees the store as of its first read."""
        with self.reading() as connection:
            if connection.dialect.name != "sqlite":  # in SQLite every transaction reads a snapshot
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection


_UNREADABLE = "upgrade Hushmote if a newer version wrote it, otherwise restore a backup"


def _version_rows(connection: Connection, fleet: str | None) -> Iterable[RowMapping]:
    """Return the rows of a fleet's versions, or of all fleets', oldest first."""
    table = schema.experiment
    query = select(table).order_by(table.c.id)
    if fleet is not None:
        query = query.where(table.c.fleet == fleet)
    return connection.execute(query).mappings()


def _counted_in_other_units(connection: Connection, versions: Iterable[Version], unit: str) -> list[Version]:
    """Return the versions with reports in another unit; none are counted until the transaction ends."""
    others = [v for v in versions if v.unit not in ("", unit)]  # one without a unit fits any
    if others:
        lock_out_batches(connection)
    return [v for v in others if has_reports(connection, v.id)]


def _no_fleet(name: str) -> str:
    return f"there is no fleet {name}: add it first, as keyed or open"
