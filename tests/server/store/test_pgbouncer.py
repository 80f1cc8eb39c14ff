"""A store behind pgbouncer in transaction mode, where each transaction may use a different session."""

import datetime
from concurrent.futures import ThreadPoolExecutor

import pytest
from boards import ask_fleet, experiment
from postgres import Cluster, Pgbouncer
from running_aggregator import until

from hushmote.server.ingest import pipeline as ingest
from hushmote.server.store import Store, StoreError
from hushmote.server.store.check import check
from hushmote.server.store.erase import erase
from hushmote.server.wire import report, topics

NOW = datetime.datetime(2026, 11, 21, 14, tzinfo=datetime.UTC)
EXP = experiment(budget={"rule": "unlimited"})


@pytest.fixture
def url(pgbouncer: Pgbouncer, postgres_url: str) -> str:
    """Return the URL of an open fleet's store, behind pgbouncer."""
    url = pgbouncer.url(postgres_url.rpartition("/")[2])
    with Store(url) as store:
        ask_fleet(store, "home", EXP)
    return url


def message(device: str, number: int) -> tuple[str, bytes]:
    return topics.report_topic("home", device), report.encode(EXP, number, number % EXP.code_count)


def is_reachable(store: Store) -> bool:
    try:
        return bool(store.fleets())
    except StoreError:
        return False


class TestSettings:
    NAMES = ("synchronous_commit", "lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")

    def test_every_transaction_is_durable(self, url: str, postgres: Cluster):
        name = url.rpartition("/")[2]
        devices = set()
        with Store(url) as store:
            postgres.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
            postgres.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
            )
            until(lambda: is_reachable(store), "pgbouncer notices that its sessions ended")
            for _ in range(20):
                with store.writing() as connection:
                    devices.add(tuple(connection.exec_driver_sql(f"SHOW {n}").scalar() for n in self.NAMES))
        assert devices == {("on", "30s", "2min", "5min")}

    def test_no_session_keeps_anything_of_a_reader(self, url: str):
        with Store(url, read_only=True) as reader, Store(url) as store:
            for number in range(1, 21):
                reader.fleets()
                assert ingest.ingest(store, [message("a", number)], ingest.fleets(store), NOW).accepted == 1

    def test_no_lock_outlives_its_batch(self, url: str, postgres: Cluster):
        with Store(url) as store:
            for number in range(1, 9):
                ingest.ingest(store, [message("a", number)], ingest.fleets(store), NOW)
            assert postgres.execute("SELECT * FROM pg_locks WHERE locktype = 'advisory'") == []


class TestCounting:
    def test_aggregators_count_each_report_once(self, url: str):
        batches = [[message(f"d{n}", i) for n in range(40)] for i in range(1, 21)]
        accepted: list[int] = []

        def work(_: int) -> None:
            with Store(url, create=False) as reopened:
                fleets = ingest.fleets(reopened)
                accepted.extend(ingest.ingest(reopened, batch, fleets, NOW).accepted for batch in batches)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert sum(accepted) == 800
        with Store(url) as store:
            assert (check(store).reports, check(store).violations) == (800, ())

    def test_no_statement_is_prepared(self, url: str, postgres: Cluster):
        with Store(url) as store:
            fleets = ingest.fleets(store)
            for number in range(1, 30):  # psycopg would prepare a statement on its sixth use
                assert ingest.ingest(store, [message("a", number)], fleets, NOW).accepted == 1
            with store.reading() as connection:
                assert connection.exec_driver_sql("SELECT name FROM pg_prepared_statements").all() == []


class TestErasing:
    def test_leaves_nothing_and_counting_continues(self, url: str, postgres: Cluster):
        with Store(url) as store, Store(url) as other:
            for number in range(1, 5):
                ingest.ingest(store, [message("gone-0123456789", number)], ingest.fleets(store), NOW)
                ingest.ingest(other, [message("b", number)], ingest.fleets(other), NOW)
            assert erase(store, "home", device="gone-0123456789").reports == 4
            assert ingest.ingest(other, [message("b", 5)], ingest.fleets(other), NOW).accepted == 1
            assert (check(store).reports, check(store).violations) == (9, ())
        name = url.rpartition("/")[2]
        postgres.execute("CHECKPOINT")
        ((oid,),) = postgres.execute(f"SELECT oid FROM pg_database WHERE datname = '{name}'")
        files = b"".join(p.read_bytes() for p in (postgres.folder / "base" / str(oid)).iterdir())
        assert b"gone-0123456789" not in files
