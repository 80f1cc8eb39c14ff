"""Erased data is gone from the files, nothing else changes, and no old report counts again."""

import contextlib
import datetime
import inspect
import itertools
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kills
import pytest
from boards import FLEET_KEYS, MASTER, SIGNING, ask_fleet, experiment, payload_of, reports
from filled_store import rows
from refusals import fails
from sqlalchemy import event, select
from sqlalchemy.pool import Pool

from hushmote.server.ingest import pipeline as ingest
from hushmote.server.ingest.commit import QueuedErasures, Retention
from hushmote.server.ingest.status import Status
from hushmote.server.store import (
    Description,
    Store,
    StoreError,
    VersionRefused,
    database,
    postgresql,
    schema,
)
from hushmote.server.store.check import check
from hushmote.server.store.database import StoreLocked
from hushmote.server.store.erase import (
    Erasure,
    erase,
    erase_queued,
    expire,
    finish_rewrite,
    is_rewrite_due,
    queue_erasure,
    queued_erasures,
)
from hushmote.server.store.merge import MergeRefused, merge
from hushmote.server.store.number_set import NumberSet
from hushmote.server.wire import keys, topics
from hushmote.server.wire.keys import FleetKeys, MasterKeyError

NOW = datetime.datetime(2026, 11, 21, 14, 53, tzinfo=datetime.UTC)
TEMP, DOOR = experiment(), experiment(name="door-of-the-cellar", window="hour")
ERASED, STAYS = "gone-0123456789abcdef", "stays-0123456789abcdef"
REVOKED = "revoked-0123456789abcdef"


def sent(device, exp=TEMP, count=3, fleet="home", master: bytes | None = MASTER):
    """Return a device's first reports; master is None in an open fleet."""
    key = None if master is None else keys.device_key(master, fleet, device)
    topic = topics.report_topic(fleet, device)
    return [(topic, payload) for payload in reports(device, exp, count, key=key, value=21.5)]


def count(store, messages, fleet_keys: FleetKeys | None = FLEET_KEYS, now=NOW):
    """Count reports; return the number accepted, and the rejects by reason."""
    tally = ingest.ingest(store, messages, ingest.fleets(store, fleet_keys), now)
    return tally.accepted, {reason: n for (_, reason), n in tally.rejected.items()}


OLD = sent(ERASED) + sent(ERASED, DOOR, 2) + sent(REVOKED)


def filled(url):
    store = Store(url)
    store.add_fleet("home", keyed=True)
    for exp in (TEMP, DOOR):
        store.add_experiment("home", payload_of(exp))
    assert count(store, OLD + sent(STAYS)) == (11, {})
    store.revoke_devices("home", [REVOKED])
    return store


@pytest.fixture
def store(store_url):
    """Create a store of a keyed fleet with three devices, one of which is revoked."""
    with filled(store_url) as store:
        yield store


in_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


def files(store, request):
    """Return all bytes of the database's own files, except PostgreSQL's log of transactions."""
    if store.engine.dialect.name == "sqlite":
        path = Path(store.where)
        return b"".join(p.read_bytes() for p in path.parent.glob(f"{path.name}*"))
    postgres = request.getfixturevalue("postgres")
    name = store.engine.url.database
    postgres.execute("CHECKPOINT")
    ((oid,),) = postgres.execute(f"SELECT oid FROM pg_database WHERE datname = '{name}'")
    found = b""
    for path in (postgres.folder / "base" / str(oid)).iterdir():
        with contextlib.suppress(FileNotFoundError):  # a cache of PostgreSQL's, which it may delete meanwhile
            found += path.read_bytes()
    return found


class TestFiles:
    def test_contain_nothing_of_an_erased_device(self, store, request):
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if connection.dialect.name == "postgresql":  # the device's id is in the statistics
                connection.exec_driver_sql("ANALYZE")
        assert files(store, request).count(ERASED.encode()) >= 2
        for device in (ERASED, REVOKED):
            erase(store, "home", device=device, fleet_keys=FLEET_KEYS)
        after = files(store, request)
        assert ERASED.encode() not in after
        assert REVOKED.encode() not in after
        assert STAYS.encode() in after
        assert store.roster("home") == {}

    def test_contain_nothing_of_an_erased_experiment(self, store, request):
        store.withdraw_experiment("home", DOOR.name, grace_days=0)
        assert DOOR.name.encode() in files(store, request)
        erasure = erase(store, "home", experiment=DOOR.name)
        assert erasure == Erasure(fleet="home", experiment=DOOR.name, devices=1, reports=2)
        after = files(store, request)
        for trace in (DOOR.name.encode(), DOOR.digest, DOOR.sha256, b"2026-11-21T14"):
            assert trace not in after
        assert check(store).violations == ()
        assert check(store).reports == 9

    def test_contain_nothing_of_an_erased_fleet(self, store, request):
        ask_fleet(store, "elsewhere", TEMP)
        count(store, [*sent("other", fleet="elsewhere", master=None), ("hushmote/v1/home/report/x", b"no")])
        for exp in (TEMP, DOOR):
            store.withdraw_experiment("home", exp.name)
        erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)
        assert erase(store, "home").reports == 6
        after = files(store, request)
        for trace in (STAYS, REVOKED, DOOR.name, "2026-11-21T14"):
            assert trace.encode() not in after
        assert store.fleets() == {"elsewhere": False}
        outcome = check(store)
        assert (outcome.reports, outcome.violations) == (3, ())
        for table in schema.metadata.sorted_tables:
            if "fleet" in table.columns:
                with store.reading() as connection:
                    assert "home" not in set(connection.scalars(select(table.c.fleet)))


class TestErasedDevice:
    def test_old_reports_do_not_count_again(self, store):
        counts = list(store.histogram("home", TEMP.digest))
        erasure = erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)
        assert erasure == Erasure(fleet="home", device=ERASED, devices=1, reports=5, sealed=True)
        assert list(store.histogram("home", TEMP.digest)) == counts
        assert count(store, sent(ERASED) + sent(ERASED, DOOR, 2)) == (0, {"duplicate": 5})
        assert ERASED not in repr(rows(store))
        assert (check(store).reports, check(store).violations) == (11, ())
        assert store.participation("home")["temp"].devices == 3

    @in_sqlite
    def test_new_reports_count_on_from_its_highest_number(self, store):
        erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)
        assert count(store, sent(ERASED, count=4)) == (1, {"duplicate": 3})
        assert {n for d, name, n in store.accepted_numbers("home") if d == ERASED} == {NumberSet(4, late=3)}
        assert check(store).violations == ()
        assert erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS).reports == 1
        assert count(store, sent(ERASED, count=4)) == (0, {"duplicate": 4})
        assert (check(store).reports, check(store).violations) == (12, ())

    @in_sqlite
    def test_stays_revoked(self, store):
        erase(store, "home", device=REVOKED, fleet_keys=FLEET_KEYS)
        assert count(store, sent(REVOKED, count=4) + sent(REVOKED, DOOR)) == (0, {"duplicate": 7})

    @in_sqlite
    def test_marks_are_unlinkable_without_the_master_key(self, store):
        erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)
        with store.reading() as connection:
            marks = connection.execute(select(schema.erased)).all()
        assert {(r.fleet, r.experiment, r.highest, r.reports) for r in marks} == {
            ("home", "temp", 3, 3),
            ("home", DOOR.name, 2, 2),
        }
        assert {r.mark for r in marks} == {
            keys.erased_mark(MASTER, "home", e.name, ERASED) for e in (TEMP, DOOR)
        }
        assert {r.mark for r in marks}.isdisjoint(
            keys.erased_mark(bytes(32), "home", e.name, ERASED) for e in (TEMP, DOOR)
        )

    @in_sqlite
    def test_seal_under_a_rotated_key_holds_while_it_counts(self, store):
        erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)
        rotated = FleetKeys((bytes(32), MASTER), SIGNING)
        assert count(store, sent(ERASED), rotated) == (0, {"duplicate": 3})
        assert count(store, sent(ERASED), FleetKeys((bytes(32),), SIGNING)) == (0, {"bad tag": 3})

    def test_in_an_open_fleet_is_sealed_with_the_given_key(self, store_url):
        with Store(store_url) as store:
            ask_fleet(store, "home", TEMP)
            old = sent(ERASED, master=None)
            assert count(store, old, None) == (3, {})
            assert not erase(store, "home", device=ERASED).sealed
            assert check(store).violations == ()
            assert count(store, old, None) == (3, {})  # as the command prints before it asks
            assert erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS).sealed
            assert count(store, old) == (0, {"duplicate": 3})
            assert (check(store).reports, check(store).violations) == (6, ())
            with pytest.raises(MasterKeyError, match="has erased devices, sealed with a master key"):
                ingest.fleets(store)
            with pytest.raises(MasterKeyError, match="is sealed with its master key"):
                erase(store, "home", device=STAYS)

    @in_sqlite
    def test_damaged_row_can_be_erased(self, store):
        with store.writing() as connection:
            connection.execute(
                schema.dedupe.update().where(schema.dedupe.c.device == ERASED).values(numbers="x")
            )
        assert erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS).reports == 5
        assert count(store, sent(ERASED, count=4)) == (0, {"duplicate": 4})
        assert check(store).violations == ()


# Refusals


class TestPostgresqlWhileAggregatorsCount:
    @pytest.fixture
    def store(self, postgres_url):
        with filled(postgres_url) as store:
            yield store

    def test_waits_for_no_batch_and_batches_wait_for_it(self, store, postgres_url, monkeypatch):
        monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 0.2)
        before = rows(store)
        with Store(postgres_url) as other:
            with other.ingest():
                with pytest.raises(StoreLocked, match="is in use, and nothing was erased: stop its aggreg"):
                    erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)
                assert rows(store) == before

            def batch_in_between(_):
                with pytest.raises(StoreLocked):
                    count(other, sent("new"))

            erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS, confirm=batch_in_between)
            assert count(other, OLD[:5] + sent("new")) == (3, {"duplicate": 5})
        assert (check(store).reports, check(store).violations) == (14, ())

    def test_blocks_batches_for_half_a_minute_at_most(self, store):
        statements: list[str] = []
        event.listen(store.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
        erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)
        rewrite = next(i for i, statement in enumerate(statements) if statement.startswith("VACUUM"))
        limits = [statement for statement in statements[:rewrite] if statement.startswith("SET lock_timeout")]
        assert limits == ["SET lock_timeout = '30s'"]
        for call in (erase, finish_rewrite):
            assert inspect.signature(call).parameters["readers_s"].default == 30

    def test_stays_unfinished_while_a_transaction_sees_it(self, store, postgres_url, request):
        with Store(postgres_url) as other, other.snapshot() as reader:
            reader.execute(select(schema.fleet)).all()  # its lock is on another table than the device's rows
            with fails("can still see erased data: 1; end them, or wait"):
                erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS, readers_s=0.2)
            with fails("can still see erased data"):
                finish_rewrite(store, 0.2)
            assert ERASED.encode() in files(store, request)
        assert finish_rewrite(store)
        assert ERASED.encode() not in files(store, request)

    def test_only_the_owner_finishes_it(self, store, postgres, request):
        name = store.engine.url.database
        postgres.execute(
            f"CREATE ROLE {name}_serve LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}_serve", name
        )
        try:
            with Store(postgres.url(name, f"{name}_serve")) as other:
                queue_erasure(other, "home", ERASED)
                assert erase_queued(other, "home", ERASED, FLEET_KEYS) is not None
                assert not finish_rewrite(other)
        finally:
            postgres.execute(f"DROP OWNED BY {name}_serve; DROP ROLE {name}_serve", name)
        assert "`hushmote store erase URL` rewrites them" in check(store).notes[0]
        assert finish_rewrite(store)
        assert check(store).notes == ()
        assert ERASED.encode() not in files(store, request)


def steps(url, action, moment):
    """Change a store in a child process that is killed at that step; return whether it was killed."""

    def act(count):
        def trace(connection, _):
            if isinstance(connection, sqlite3.Connection):
                connection.set_trace_callback(count)  # the hook also sees the statements of VACUUM itself

        event.listen(Pool, "connect", trace)
        with Store(url, create=False) as store:
            for name in kills.STATEMENTS:
                event.listen(store.engine, name, count)
            action(store)

    return kills.kill_at(moment, act)


class TestKilledErasure:
    """A process killed at any step changes nothing, or leaves work that the next process finishes."""

    @pytest.fixture
    def fresh(self, store_url, request, tmp_path):
        """Return a function that returns URLs of equal filled stores."""
        with filled(store_url):
            pass
        if store_url.startswith("sqlite"):
            path = tmp_path / "store.sqlite"
            content = path.read_bytes()

            def retry():
                for name in tmp_path.glob("store.sqlite*"):
                    name.unlink()
                path.write_bytes(content)
                return store_url

            yield retry
            return
        postgres, template = request.getfixturevalue("postgres"), store_url.rpartition("/")[2]
        databases: list[str] = []

        def copy():
            while databases:
                postgres.drop(databases.pop())
            databases.append(postgres.create(template))
            return postgres.url(databases[-1])

        yield copy
        postgres.drop(databases.pop())

    def by_hand(self, store):
        erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)

    def queued(self, store):
        QueuedErasures(store, Status(), FLEET_KEYS, None).turn()

    @pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.long), 6])
    @pytest.mark.parametrize("queue", [False, True])
    def test_is_finished_by_the_next_process(self, fresh, queue, stride, request):
        unfinished = moment = 0
        while True:
            url = fresh()
            if queue:
                with Store(url) as store:
                    queue_erasure(store, "home", ERASED)
            killed = steps(url, self.queued if queue else self.by_hand, moment)
            with Store(url, create=False) as store:
                remaining_devices = [d for d, _, _ in store.accepted_numbers("home") if d == ERASED]
                if remaining_devices:
                    assert len(remaining_devices) == 2  # rows of both experiments: nothing has changed
                    assert queued_erasures(store) == ([("home", ERASED)] if queue else [])
                    self.queued(store) if queue else self.by_hand(store)
                else:
                    with store.reading() as connection:
                        due = is_rewrite_due(connection)
                    unfinished += due
                    assert bool(check(store).notes) == due
                    assert finish_rewrite(store) == due
                    with pytest.raises(VersionRefused, match="there is no device"):
                        self.by_hand(store)
                assert ERASED.encode() not in files(store, request)
                assert (check(store).violations, check(store).notes) == ((), ())
                assert count(store, OLD[:5]) == (0, {"duplicate": 5})
            if not killed:
                break
            moment += stride
        assert moment > 20
        assert unfinished > 1


class TestQueuedErasure:
    def test_leaves_nothing_of_device_and_request(self, store, request):
        queue_erasure(store, "home", ERASED)
        queue_erasure(store, "home", ERASED)
        assert "1 device waits for an aggregator to erase it" in check(store).notes
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if connection.dialect.name == "postgresql":  # the request is in the statistics
                connection.exec_driver_sql("ANALYZE")
        assert files(store, request).count(ERASED.encode()) >= 3
        QueuedErasures(store, Status(), FLEET_KEYS, None).turn()
        assert ERASED.encode() not in files(store, request)
        assert ERASED not in repr(rows(store))
        assert count(store, OLD[:5]) == (0, {"duplicate": 5})
        assert (check(store).reports, check(store).violations, check(store).notes) == (11, (), ())

    def test_goes_where_the_device_was_erased_by_hand(self, store, request):
        queue_erasure(store, "home", ERASED)
        erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)
        assert queued_erasures(store) == []
        with store.writing() as connection:
            connection.execute(schema.erasure.insert(), {"fleet": "home", "device": "nobody"})
        QueuedErasures(store, Status(), FLEET_KEYS, None).turn()
        assert queued_erasures(store) == []

    def test_waits_for_the_right_key(self, store, caplog):
        store.set_master_check("home", keys.master_check(MASTER, "home"))
        queue_erasure(store, "home", ERASED)
        for bad_keys in (None, FleetKeys((bytes(32),), SIGNING)):
            QueuedErasures(store, Status(), bad_keys, None).turn()
            assert "an erasure is not finished yet" in caplog.messages[-1]
            assert ERASED not in caplog.text
        assert queued_erasures(store) == [("home", ERASED)]
        QueuedErasures(store, Status(), None, ["elsewhere"]).turn()
        assert len(caplog.messages) == 2

    @pytest.mark.parametrize(("fleet", "device"), [("home", "nobody"), ("away", ERASED)])
    def test_is_rejected_for_an_unknown_device(self, store, fleet, device):
        with pytest.raises(VersionRefused, match=r"there is no device nobody|there is no fleet away"):
            queue_erasure(store, fleet, device)
        assert queued_erasures(store) == []

    @in_sqlite
    def test_keeps_a_store_from_being_merged(self, store, tmp_path):
        queue_erasure(store, "home", ERASED)
        reason = "has devices waiting for an aggregator to erase them"
        with (
            Store(f"sqlite:///{tmp_path / 'other.sqlite'}") as other,
            pytest.raises(MergeRefused, match=reason),
        ):
            merge(other, [store])

    @in_sqlite
    @pytest.mark.parametrize(
        ("keyed", "check_value", "sealed"),
        [(True, None, True), (False, None, False), (False, "0123456789abcdef", True)],
        ids=["keyed", "open", "open with a key"],
    )
    def test_plan_says_whether_it_is_sealed(self, store_url, keyed, check_value, sealed):
        with Store(store_url) as store:
            ask_fleet(store, "home", TEMP, keyed=keyed)
            store.allow_devices("home", [ERASED])
            if check_value is not None:
                store.set_master_check("home", check_value)
            assert queue_erasure(store, "home", ERASED) == Erasure("home", None, ERASED, 1, 0, sealed)

    @in_sqlite
    def test_stays_unfinished_while_a_reader_sees_it(self, store_url, request, monkeypatch):
        monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0)
        with filled(store_url) as store:
            with Store(store_url) as other, other.snapshot() as reader:
                reader.execute(select(schema.fleet)).all()
                queue_erasure(store, "home", ERASED)
                assert erase_queued(store, "home", ERASED, FLEET_KEYS) is not None
                with pytest.raises(StoreLocked):
                    finish_rewrite(store)
                assert check(store).notes != ()
            assert finish_rewrite(store)
            assert check(store).notes == ()
            assert ERASED.encode() not in files(store, request)

    def test_two_aggregators_carry_it_out_once(self, store, store_url):
        queue_erasure(store, "home", ERASED)
        with Store(store_url) as other, ThreadPoolExecutor(2) as pool:
            erasures = list(pool.map(lambda s: erase_queued(s, "home", ERASED, FLEET_KEYS), (store, other)))
        assert sorted(erasure is None for erasure in erasures) == [False, True]
        assert check(store).violations == ()


class TestRefusal:
    @in_sqlite
    def test_unknown_or_published_target_changes_nothing(self, store):
        bad_keys = FleetKeys((bytes(32),), SIGNING)
        store.set_master_check("home", keys.master_check(MASTER, "home"))
        before = rows(store)
        cases: tuple[tuple[dict[str, Any], type[Exception], str], ...] = (
            (
                {"device": "nobody", "fleet_keys": FLEET_KEYS},
                VersionRefused,
                "there is no device nobody in fleet home",
            ),
            ({"device": ERASED}, MasterKeyError, "give the key as a file or in HUSHMOTE_MASTER_KEY"),
            (
                {"device": ERASED, "fleet_keys": bad_keys},
                MasterKeyError,
                "this is not the master key of fleet home",
            ),
            ({"experiment": "hall"}, VersionRefused, "there is no experiment hall in fleet home"),
            (
                {"experiment": "temp"},
                VersionRefused,
                "still answer temp: run `hushmote experiment withdraw temp`",
            ),
            ({}, VersionRefused, "still answer"),
        )
        for target, error, text in cases:
            with pytest.raises(error, match=text):
                erase(store, "home", **target)
        with pytest.raises(VersionRefused, match="there is no fleet away"):
            erase(store, "away")
        assert rows(store) == before

    def test_without_agreement_changes_nothing(self, store):
        before = rows(store)

        def no(erasure):
            assert erasure.reports == 5
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS, confirm=no)
        assert rows(store) == before
        if store.engine.dialect.name == "sqlite":
            assert Path(store.where).read_bytes()[18:20] == b"\2\2"  # in WAL mode, as every store

    @in_sqlite
    def test_waits_for_counting(self, store, tmp_path):
        store_url = f"sqlite:///{tmp_path / 'store.sqlite'}"
        with Store(store_url) as other:
            assert count(other, sent("new")) == (3, {})
            before = rows(store)
            with pytest.raises(StoreLocked, match="is in use, and nothing was erased: stop its aggregators"):
                erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)
            assert rows(store) == before
            assert count(other, sent("new", count=4)) == (1, {"duplicate": 3})
        erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)
        assert count(store, OLD[:3]) == (0, {"duplicate": 3})

    def test_read_only_store_is_one_line(self, tmp_path):
        path = tmp_path / "store.sqlite"
        filled(f"sqlite:///{path}").close()
        before = path.read_bytes()
        with Store(f"sqlite:///{path}", read_only=True) as store, fails("it is read-only"):
            erase(store, "home", device=ERASED, fleet_keys=FLEET_KEYS)
        assert path.read_bytes() == before


# Merging


# Windows whose retention time is over


def add_with_retention(store_url, keep, window="day"):
    """Create a store whose experiment has a report in each of three windows."""
    exp = experiment(window=window, budget={"rule": "unlimited"})
    store = Store(store_url)
    ask_fleet(store, "home", exp, description=Description(keep=keep))
    step = datetime.timedelta(**{f"{window}s": 1})
    for i, message in enumerate(sent(STAYS, exp, 3, master=None)):
        assert count(store, [message], None, NOW + i * step) == (1, {})
    return store, exp, step


class TestExpiry:
    @pytest.mark.parametrize(("window", "keep"), [("day", "2d"), ("hour", "2h")])
    def test_erases_a_window_once_its_time_is_over(self, store_url, window, keep):
        store, exp, step = add_with_retention(store_url, keep, window)
        with store:
            first, *later = store.windows("home", exp.digest)
            end = NOW.replace(minute=0, hour=0 if window == "day" else NOW.hour) + step
            assert expire(store, end + 2 * step - datetime.timedelta(seconds=1)) is None
            due = expire(store, end + 2 * step)
            assert due is not None
            version, expired_window, reports = due
            assert (version.experiment.digest, expired_window, reports) == (exp.digest, first, 1)
            assert expire(store, end + 2 * step) is None
            assert list(store.windows("home", exp.digest)) == later
            assert store.experiments()[0].erased == 1
            assert (check(store).reports, check(store).violations) == (2, ())
            assert count(store, sent(STAYS, exp, 1, master=None), None) == (0, {"duplicate": 1})

    @in_sqlite
    def test_newest_version_decides(self, store_url):
        store, exp, _ = add_with_retention(store_url, "")
        far = NOW + datetime.timedelta(days=40_000)
        with store:
            assert expire(store, far) is None
            new = experiment(window="day", budget={"rule": "unlimited"}, epsilon=500_000)
            store.add_experiment("home", payload_of(new), description=Description(keep="1d"))
            for window_count in (2, 1, 0):
                due = expire(store, far)
                assert due is not None
                assert due[0].experiment.digest == exp.digest
                assert len(store.windows("home", exp.digest)) == window_count
            assert expire(store, far) is None
            assert check(store).violations == ()

    @in_sqlite
    def test_republished_version_decides_again(self, store_url):
        store, exp, _ = add_with_retention(store_url, "")
        new = experiment(window="day", budget={"rule": "unlimited"}, epsilon=500_000)
        far = NOW + datetime.timedelta(days=40_000)
        with store:
            store.add_experiment("home", payload_of(new), description=Description(keep="1d"))
            store.add_experiment("home", payload_of(exp))
            assert expire(store, far) is None
            store.add_experiment("home", payload_of(new))
            assert expire(store, far) is not None

    @in_sqlite
    def test_erases_no_windows_of_other_experiments(self, store_url):
        store, exp, _ = add_with_retention(store_url, "1d")
        door = experiment(name="door", window="day")
        far = NOW + datetime.timedelta(days=40_000)
        with store:
            store.add_experiment("home", payload_of(door))
            ask_fleet(store, "away", exp)
            others = sent(STAYS, door, 1, master=None) + sent(STAYS, exp, 1, "away", master=None)
            assert count(store, others, None) == (2, {})
            while expire(store, far) is not None:
                pass
            assert store.windows("home", exp.digest) == ()
            assert store.histogram("home", door.digest, "2026-11-21").sum() == 1
            assert store.histogram("away", exp.digest, "2026-11-21").sum() == 1

    @in_sqlite
    def test_older_version_keeps_its_kind_of_window(self, store_url):
        store, exp, _ = add_with_retention(store_url, "", "hour")
        daily = experiment(window="day", budget={"rule": "unlimited"})
        with store:
            store.add_experiment("home", payload_of(daily), description=Description(keep="1d"))
            over = NOW.replace(minute=0) + datetime.timedelta(days=1, hours=1)
            assert expire(store, over - datetime.timedelta(seconds=1)) is None
            due = expire(store, over)
            assert due is not None
            assert (due[0].experiment.digest, due[1]) == (exp.digest, "2026-11-21T14")

    @in_sqlite
    def test_erases_one_window_a_turn_once_an_hour(self, store_url, caplog, monkeypatch):
        store, exp, _ = add_with_retention(store_url, "1d")
        clock = itertools.chain([NOW + datetime.timedelta(days=9)] * 5, [NOW + datetime.timedelta(days=9.1)])
        with store, caplog.at_level("INFO"):
            looks = []
            read = store.experiments
            monkeypatch.setattr(store, "experiments", lambda *a: looks.append(1) or read(*a))
            retention = Retention(store, Status(), lambda: next(clock))
            for window_count in (2, 1, 0, 0, 0):
                retention.turn()
                assert len(store.windows("home", exp.digest)) == window_count
            assert len(looks) == 4
            retention.turn()
            assert len(looks) == 5
        assert (
            "temp of fleet home: the window 2026-11-21 (1 report) reached its retention time" in caplog.text
        )

    @in_sqlite
    def test_failing_store_does_not_stop_the_aggregator(self, store_url, caplog, monkeypatch):
        store, _, _ = add_with_retention(store_url, "1d")
        with store:

            def fail():
                raise StoreError("the disk is full")

            monkeypatch.setattr(store, "experiments", fail)
            Retention(store, Status(), lambda: NOW).turn()
        assert "expired windows are not erased yet: the disk is full" in caplog.text


class TestMerge:
    @in_sqlite
    def test_rejects_stores_whose_erased_devices_may_overlap(self, store, tmp_path):
        with (
            Store(f"sqlite:///{tmp_path / 'site.sqlite'}") as site,
            filled(f"sqlite:///{tmp_path / 'same.sqlite'}") as same,
        ):
            ask_fleet(site, "home", TEMP, keyed=True)
            assert count(site, sent("elsewhere")) == (3, {})
            erase(site, "home", device="elsewhere", fleet_keys=FLEET_KEYS)
            merge(store, [site])
            assert (check(store).reports, check(store).violations) == (14, ())
            assert count(store, sent("elsewhere")) == (0, {"duplicate": 3})
            for opened in (store, same):
                erase(opened, "home", device=ERASED, fleet_keys=FLEET_KEYS)
                erase(opened, "home", device=STAYS, fleet_keys=FLEET_KEYS)
                erase(opened, "home", device=REVOKED, fleet_keys=FLEET_KEYS)
            with pytest.raises(MergeRefused, match="counted reports of 4 devices erased since"):
                merge(store, [same])

    @in_sqlite
    def test_adds_expired_windows(self, store_url, tmp_path):
        store, exp, _ = add_with_retention(store_url, "1d")
        with store, Store(f"sqlite:///{tmp_path / 'all.sqlite'}") as total:
            expire(store, NOW + datetime.timedelta(days=9))
            merge(total, [store])
            assert [(v.keep, v.erased) for v in total.experiments()] == [("1d", 1)]
            assert (check(total).reports, check(total).violations) == (2, ())
            expire(total, NOW + datetime.timedelta(days=9))
            with Store(f"sqlite:///{tmp_path / 'site.sqlite'}") as site:
                ask_fleet(site, "home", exp, description=Description(keep="1d"))
                assert count(site, sent("other", exp, 1, master=None), None) == (1, {})
                expire(site, NOW + datetime.timedelta(days=9))
                merge(total, [site])
            assert [v.erased for v in total.experiments()] == [3]
            assert check(total).violations == ()
