"""`hushmote serve` while PostgreSQL accepts no connections, is read-only, or cannot recover."""

import re
import threading

import pytest
from boards import ask_fleet, experiment
from postgres import Cluster
from running_aggregator import until
from serve_process import served
from traffic import counted_reports, crowd, publish

from hushmote.server.store import Store, StoreError, postgresql
from hushmote.simulator.broker import MosquittoBroker


@pytest.fixture(scope="module")
def server():
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(server):
    """Return this module's database server, which is running again for each test."""
    yield server
    if server.pid is None:
        server.start()


@pytest.fixture(scope="module")
def broker():
    with MosquittoBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def url(server):
    """Return the URL of a store with data."""
    url = server.url(server.create())
    with Store(url) as store:
        ask_fleet(store, "open", experiment())
    return url


def arguments(url, broker):
    return "--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}"


def waits(process, url):
    until(lambda: f"no answer from {url} yet; waiting for at most 120 s" in process.log(), process.log)


class TestStart:
    def test_waits_for_a_missing_server(self, cluster, url, broker):
        cluster.stop()
        with served(*arguments(url, broker)) as process:
            waits(process, url)
            cluster.start()
            process.ready()
            assert process.log().count("waiting for at most") == 1
            assert process.end() == 0

    def test_waits_for_a_starting_server(self, cluster, url, broker):
        cluster.stop()
        # A standby without connections refuses them like a server that is still recovering: 57P03.
        cluster.hold_at_the_start()
        starting = threading.Thread(target=cluster.start)
        starting.start()
        try:
            with served(*arguments(url, broker)) as process:
                waits(process, url)
                assert process.process.poll() is None
                until(cluster.refuses_for_now, "a server that is starting")
                cluster.promote()
                process.ready()
                assert process.end() == 0
        finally:
            starting.join()

    def test_gives_up_in_one_line(self, cluster, url, monkeypatch, caplog):
        cluster.stop()
        monkeypatch.setattr(postgresql, "PATIENCE_S", 0.1)
        with pytest.raises(StoreError, match=rf"^cannot use {re.escape(url)}: .*refused[^\n]*$"):
            Store(url, wait_for_server=True)
        (waiting,) = caplog.messages
        assert f"no answer from {url} yet" in waiting

    def test_wrong_password_or_database_ends_at_once(self, cluster, monkeypatch, caplog):
        cluster.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        cluster.ask_for_passwords("guarded")
        monkeypatch.setenv("PGPASSWORD", "wrong")
        name = cluster.create()
        for url, reason in (
            (cluster.url(name, "guarded"), "password authentication failed"),
            (cluster.url("away"), 'database "away" does not exist'),
            (cluster.url(name, "nobody"), 'role "nobody" does not exist'),
        ):
            with pytest.raises(StoreError, match=rf"^[^\n]*{reason}[^\n]*$"):
                Store(url, wait_for_server=True)
        assert not caplog.messages  # no waiting was logged


class TestReadOnlyServer:
    @pytest.fixture
    def read_only(self, cluster, url):
        """Make the database read-only for new sessions, like one that has lost a failover, or undo it."""
        name = url.rpartition("/")[2]

        def change(on):
            cluster.execute(
                f"ALTER DATABASE {name} SET default_transaction_read_only = {'on' if on else 'off'}"
            )
            condition = f"datname = '{name}' AND pid <> pg_backend_pid()"
            if on:
                cluster.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {condition}")

        yield change
        change(False)

    def test_counting_resumes_without_a_restart(self, url, broker, read_only):
        with served(*arguments(url, broker)) as process, Store(url, create=False) as store:
            process.ready()
            read_only(True)
            publish(broker, crowd(50, prefix="first")[0])
            until(lambda: "read-only transaction" in process.log(), process.log)
            read_only(False)
            publish(broker, crowd(50, prefix="second")[0])
            until(lambda: counted_reports(store) == 100, process.log)
            assert process.end() == 0

    @pytest.mark.parametrize("form", ["text", "json"])
    def test_batches_that_fail_for_too_long_end_the_process(self, url, broker, read_only, form):
        script = """
import functools
import hushmote.cli.serve.run as module
from hushmote.cli.main import main
module.Counting = functools.partial(module.Counting, give_up_s=1.0)
main()
"""
        environment = {"HUSHMOTE_LOG_FORMAT": form}
        with served(*arguments(url, broker), script=script, environment=environment) as process:
            process.ready()
            read_only(True)
            publish(broker, crowd(5, prefix=form)[0])
            assert process.wait() == 75
        last = process.log().strip().splitlines()[-1]
        assert "no batch could be committed for 1 s, so this process ends" in last
        assert "read-only transaction" in last
