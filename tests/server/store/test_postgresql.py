"""PostgreSQL as a store shared by several aggregators: exactly once, durable, never blocked forever."""

import contextlib
import datetime
import os
import re
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from boards import FLEET_KEYS, ask_fleet, experiment, payload_of
from refusals import fails
from running_aggregator import WAIT_S, until
from sqlalchemy import event

from hushmote.server.ingest import pipeline as ingest
from hushmote.server.store import Store, StoreError, VersionRefused, postgresql
from hushmote.server.store.check import check
from hushmote.server.wire import report, topics

NOW = datetime.datetime(2026, 11, 21, 14, tzinfo=datetime.UTC)
EXP = experiment(budget={"rule": "unlimited"})


@pytest.fixture
def store(postgres_url):
    with Store(postgres_url) as store:
        ask_fleet(store, "home", EXP)
        yield store


def message(device, number):
    return topics.report_topic("home", device), report.encode(EXP, number, number % EXP.code_count)


def setting(store, name):
    with store.engine.connect() as connection:
        return connection.exec_driver_sql(f"SHOW {name}").scalar()


# Several aggregators


# Durability and error reporting


class TestConcurrency:
    def test_same_reports_in_any_order_count_once(self, store, postgres_url):
        # At most 12,000 reports, half of them shared, by devices in random subsets and orders: four processes
        # want existing and missing rows at once. A deadlock would surface as StoreError.
        rng = np.random.default_rng(5)
        devices = sorted({"".join(rng.choice([*"ab-z09"], rng.integers(2, 7))) for _ in range(1000)})
        subsets = [
            [(str(d), int(rng.integers(1, 7))) for d in rng.permutation(devices)[:600]] for _ in range(20)
        ]
        accepted = []

        def work(batches):
            with Store(postgres_url, create=False) as reopened:
                fleets = ingest.fleets(reopened)
                for batch in batches:
                    tally = ingest.ingest(reopened, [message(*b) for b in batch], fleets, NOW)
                    accepted.append(tally.accepted)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, [subsets[i::4] for i in range(4)]))
        distinct = {b for batch in subsets for b in batch}
        assert len(accepted) == len(subsets)
        assert sum(accepted) == len(distinct)
        outcome = check(store)
        assert outcome.violations == ()
        assert outcome.reports == len(distinct)

    def test_deadlock_fails_the_batch_which_counts_on_retry(self, store, postgres):
        """PostgreSQL checks for a deadlock once, a second after a wait begins; the others must be waiting.

        The aggregator therefore locks a and waits for the third session, which has b; the other session,
        which has c, then waits for a. Only then does the third release b, and the wait for c closes the
        cycle.
        """
        fleets = ingest.fleets(store)
        first, more = ([message(d, n) for d in ("a", "b", "c")] for n in (1, 2))
        ingest.ingest(store, first, fleets, NOW)
        failed, name = [], store.engine.url.database

        def work():
            try:
                ingest.ingest(store, more, fleets, NOW)
            except StoreError as e:
                failed.append(str(e))

        def wait(number):
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            until(lambda: len(postgres.execute(waiting)) == number, f"{number} that wait")

        lock = "SELECT 1 FROM dedupe WHERE device = '{}' FOR UPDATE"
        thread = threading.Thread(target=work)
        with psycopg.connect(postgres.dsn(name)) as other, psycopg.connect(postgres.dsn(name)) as third:
            other.execute("SET deadlock_timeout = '1h'")  # the aggregator's transaction is the one that fails
            other.execute(lock.format("c").encode())
            third.execute(lock.format("b").encode())
            thread.start()
            wait(1)
            other.pgconn.send_query(lock.format("a").encode())
            wait(2)
            third.rollback()
            thread.join(WAIT_S)
            other.close()
        assert len(failed) == 1
        assert "deadlock detected" in failed[0]
        assert "\n" not in failed[0]
        assert store.histogram("home", EXP.digest).sum() == 3
        assert ingest.ingest(store, more, fleets, NOW).accepted == 3
        assert check(store).violations == ()

    def test_concurrent_versions_leave_a_single_current_one(self, store, postgres_url):
        failed = []
        caps = [4_000_000 - n for n in range(8)]

        def work(cap):
            with Store(postgres_url, create=False) as reopened:
                payload = payload_of(experiment(name="door", budget={"rule": "sum", "cap": cap}))
                try:
                    reopened.add_experiment("home", payload)
                except VersionRefused as e:
                    failed.append(str(e))

        with ThreadPoolExecutor(len(caps)) as pool:
            list(pool.map(work, caps))
        versions = [v for v in store.experiments("home") if v.experiment.name == "door"]
        assert len(versions) + len(failed) == len(caps)
        assert sum(v.current for v in versions) == 1
        assert all(v.experiment.cap <= versions[0].experiment.cap for v in versions)
        assert check(store).violations == ()

    def test_concurrent_openings_make_the_schema_once(self, postgres_url):
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda _: Store(postgres_url).close(), range(6)))
        with Store(postgres_url, create=False) as store:
            assert check(store).violations == ()

    def test_lock_held_by_another_fails_the_batch_in_time(self, store, postgres, monkeypatch):
        monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 0.2)
        store.engine.dispose()
        fleets = ingest.fleets(store)
        ingest.ingest(store, [message("a", 1)], fleets, NOW)
        with psycopg.connect(postgres.dsn(store.engine.url.database)) as other:
            other.execute("LOCK TABLE dedupe")
            with fails("another program holds its write lock"):
                ingest.ingest(store, [message("a", 2)], fleets, NOW)
        assert ingest.ingest(store, [message("a", 2)], fleets, NOW).accepted == 1


def stopped(pid):
    """Stop a process, which continues after at most a minute so that no test waits forever."""
    os.kill(pid, signal.SIGSTOP)
    rescue = threading.Timer(WAIT_S, go_on, (pid,))
    rescue.daemon = True
    rescue.start()


def go_on(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


class TestConnection:
    def test_commits_wait_for_the_disk(self, postgres, postgres_url):
        name = postgres_url.rpartition("/")[2]
        for default, ours in (("off", "on"), ("local", "on"), ("on", "on"), ("remote_apply", "remote_apply")):
            postgres.execute(f"ALTER DATABASE {name} SET synchronous_commit = {default}")
            with psycopg.connect(postgres.dsn(name)) as plain:
                assert plain.execute("SHOW synchronous_commit").fetchone() == (default,)
            with Store(postgres_url) as store:
                assert setting(store, "synchronous_commit") == ours
                store.engine.dispose()  # later connections have the same settings
                assert setting(store, "synchronous_commit") == ours
                with store.writing() as connection:
                    assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == ours

    def test_sets_timeouts_unless_the_url_does(self, postgres_url):
        with Store(postgres_url + "?connect_timeout=7") as store:
            assert setting(store, "lock_timeout") == "30s"
            assert setting(store, "statement_timeout") == "2min"
            assert setting(store, "idle_in_transaction_session_timeout") == "5min"
            with store.engine.connect() as connection:
                raw: Any = connection.connection.dbapi_connection
                options = raw.info.get_parameters()
        assert options["connect_timeout"] == "7"
        assert options["tcp_user_timeout"] == "30000"

    def test_hanging_server_fails_the_batch_which_counts_on_retry(self, store, postgres, monkeypatch):
        pids = []

        def stop(*_):
            monkeypatch.setattr(postgresql.AnsweringConnection, "answer_s", 1.0)
            query = "SELECT pid FROM pg_stat_activity WHERE state = 'idle in transaction'"
            pids.extend(pid for (pid,) in postgres.execute(query))
            for pid in pids:
                stopped(pid)

        event.listen(store.engine, "commit", stop)
        fleets = ingest.fleets(store)
        try:
            with fails("no answer for 1 seconds"):
                ingest.ingest(store, [message("a", 1)], fleets, NOW)
        finally:
            monkeypatch.undo()
            for pid in pids:
                go_on(pid)
        assert len(pids) == 1
        event.remove(store.engine, "commit", stop)
        # Commands from before the stop, such as the commit, may still be executed; either way, only once.
        until(
            lambda: not postgres.execute(f"SELECT 1 FROM pg_stat_activity WHERE pid = {pids[0]}"),
            "the process ends",
        )
        before = store.histogram("home", EXP.digest).sum()
        assert ingest.ingest(store, [message("a", 1)], ingest.fleets(store), NOW).accepted == 1 - before
        assert store.histogram("home", EXP.digest).sum() == 1
        assert check(store).violations == ()

    def test_hanging_idle_connection_is_replaced(self, store, postgres, monkeypatch):
        monkeypatch.setattr(postgresql.AnsweringConnection, "answer_s", 5.0)
        fleets = ingest.fleets(store)
        ((pid,),) = postgres.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'hushmote'")
        stopped(pid)
        try:
            assert ingest.ingest(store, [message("a", 1)], fleets, NOW).accepted == 1
        finally:
            go_on(pid)
        assert check(store).violations == ()

    @pytest.mark.slow
    def test_silent_address_is_an_error(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            with fails("timeout"):
                Store(f"postgresql+psycopg://postgres@127.0.0.1:{port}/x?connect_timeout=2")


# Permissions


def documented(name):
    """Return the two blocks of SQL in docs/store.md, with role names for this database."""
    text = (Path(__file__).parents[3] / "docs" / "store.md").read_text()
    make, grant = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    return make.replace("hushmote_", f"{name}_"), grant.replace("hushmote_", f"{name}_")


@pytest.fixture
def roles(postgres, postgres_url):
    """Return the URL of each role, set up as in docs/store.md, for a store that its owner created."""
    name = postgres_url.rpartition("/")[2]
    make, grant = documented(name)
    postgres.execute(make, name)
    urls = {role: postgres.url(name, f"{name}_{role}") for role in ("owner", "serve", "read")}
    with Store(urls["owner"]) as store:
        ask_fleet(store, "home", EXP)
    with psycopg.connect(postgres.dsn(name, f"{name}_owner"), autocommit=True) as owner:
        owner.execute(grant.encode())
    yield urls
    for role in urls:
        postgres.execute(f"DROP OWNED BY {name}_{role}; DROP ROLE {name}_{role}", name)


class TestCountingTimeByRole:
    @pytest.fixture
    def later(self):
        return NOW + datetime.timedelta(days=1)

    def test_aggregators_role_records_it(self, roles, later, caplog):
        with Store(roles["serve"]) as store:
            for number, time in ((1, NOW), (2, later)):
                batch = [message("a", number)]
                assert ingest.ingest(store, batch, ingest.fleets(store), time, record_time=True).accepted == 1
            assert store.interrupted_days() == {NOW.date(), later.date()}
            store.record_counting(later + datetime.timedelta(minutes=1))
            with fails("permission denied"), store.writing() as connection:
                connection.exec_driver_sql("DELETE FROM interruption")
        assert not caplog.records

    def test_analysts_role_only_reads_it(self, roles, later):
        with Store(roles["serve"]) as store:
            for time in (NOW, later):
                store.record_counting(time)
        with Store(roles["read"], create=False) as store:
            assert store.interrupted_days() == {NOW.date(), later.date()}
            assert store.counting_time() == later.replace(second=0, microsecond=0)
            with fails("permission denied for table counting"):
                store.record_counting(later)


class TestRoles:
    def test_aggregator_counts_and_changes_nothing_else(self, roles):
        with Store(roles["serve"]) as store:
            fleets = ingest.fleets(store)
            assert ingest.ingest(store, [message("a", 1), ("x", b"no")], fleets, NOW).accepted == 1
            assert store.rejects()
            assert store.participation("home")["temp"].reports == 1
            assert check(store).violations == ()
            for change in (
                lambda: store.add_fleet("away", keyed=False),
                lambda: store.withdraw_experiment("home", "temp"),
                lambda: store.allow_devices("home", ["a"]),
                lambda: store.revoke_devices("home", ["a"]),
                lambda: store.set_listed("home", True),
            ):
                with fails(r"permission denied for table .*; its owner can grant it"):
                    change()

    def test_aggregator_renews_serials_if_granted(self, roles, postgres):
        with Store(roles["serve"]) as store:
            (version,) = store.experiments("home")
            store.renew_serial(version)
            assert store.experiments("home")[0].serial > version.serial
            store.set_master_check("home", "0123456789abcdef")
            assert store.master_checks() == {"home": "0123456789abcdef"}
            # The grants of a store from before serials existed.
            name = store.engine.url.database
            postgres.execute(f"REVOKE UPDATE (serial) ON experiment, fleet FROM {name}_serve", name)
            with fails("permission denied"):
                store.renew_serial(store.experiments("home")[0])
            fleets = ingest.fleets(store, FLEET_KEYS)
            assert ingest.ingest(store, [message("a", 1)], fleets, NOW).accepted == 1

    def test_aggregator_reads_the_allow_list_without_locks(self, roles):
        with Store(roles["owner"]) as owner:
            owner.allow_devices("home", ["a"])
            owner.set_listed("home", True)
            with Store(roles["serve"]) as store, owner.engine.connect() as other:
                other.exec_driver_sql("SELECT * FROM device FOR UPDATE")
                fleets = ingest.fleets(store)
                tally = ingest.ingest(store, [message("a", 1), message("b", 1)], fleets, NOW)
                assert (tally.accepted, dict(tally.rejected)) == (1, {("home", "unknown device"): 1})
                other.rollback()

    def test_analyst_reads_histograms_but_no_device(self, roles):
        with Store(roles["serve"]) as store:
            ingest.ingest(store, [message("a", 1)], ingest.fleets(store), NOW)
        with Store(roles["read"], create=False) as store:
            assert store.histogram("home", EXP.digest).sum() == 1
            assert len(store.experiments()) == 1
            with pytest.raises(StoreError, match="permission denied for table dedupe"):
                store.participation("home")
            with pytest.raises(StoreError, match="permission denied for table device"):
                store.roster("home")
            with (
                pytest.raises(StoreError, match="permission denied for table dedupe_0"),
                store.reading() as part,
            ):
                part.exec_driver_sql("SELECT * FROM dedupe_0")
            with pytest.raises(StoreError, match="permission denied"):
                ingest.ingest(store, [message("a", 2)], ingest.fleets(store), NOW)

    def test_only_the_owner_creates_a_store(self, postgres, postgres_url):
        name = postgres_url.rpartition("/")[2]
        postgres.execute(f"CREATE ROLE {name}_nobody LOGIN")
        try:
            with fails("permission denied for schema public"):
                Store(postgres.url(name, f"{name}_nobody"))
        finally:
            postgres.execute(f"DROP ROLE {name}_nobody")
