"""A store whose files are removed, moved or replaced while it is open."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
from boards import ask_fleet, experiment
from running_aggregator import running, until
from serve_process import served
from traffic import crowd, publish, total

from hushmote.server.aggregator import CLIENT_ID
from hushmote.server.store import Store, StoreError
from hushmote.server.store.backup import backup
from hushmote.server.store.open_files import StoreRemoved
from hushmote.simulator.broker import MosquittoBroker


@pytest.fixture
def path(tmp_path):
    """Return the path of a store that no process has open."""
    path = tmp_path / "store.sqlite"
    with Store(f"sqlite:///{path}") as store:
        ask_fleet(store, "open", experiment())
    return path


def file_next_to(path, end):
    return Path(f"{path}{end}")


def report_count(path):
    """Return the number of counted reports, through a new connection."""
    with Store(f"sqlite:///{path}", read_only=True) as store:
        return int(store.histogram("open", experiment().digest).sum())


class TestMovedFile:
    def test_stops_acknowledgements_until_it_is_back(self, path):
        messages, counts = crowd(100)
        with MosquittoBroker() as broker:
            url = f"mqtt://127.0.0.1:{broker.port}"
            arguments = ("--store", f"sqlite:///{path}", "--broker", url, "--batch", "0.1s")
            with served(*arguments) as process:
                process.ready()
                publish(broker, messages[:60])
                until(lambda: report_count(path) == 60, process.log)
                path.rename(path.with_name("elsewhere"))
                publish(broker, messages[60:])
                until(lambda: f"{path} was moved, removed or replaced" in process.log(), process.log)
                path.with_name("elsewhere").rename(path)
                until(lambda: report_count(path) == 100, process.log)
                assert process.end() == 0
        with Store(f"sqlite:///{path}") as store:
            assert list(store.histogram("open", experiment().digest)) == counts


class TestOtherPrograms:
    def test_using_a_store_is_not_a_removal(self, tmp_path):
        path = tmp_path / "new.sqlite"
        url = f"sqlite:///{path}"
        with Store(url) as store:  # the first write of a new store, whose -wal is new as well
            store.add_fleet("a", keyed=False)
            with Store(url) as other:
                other.add_fleet("b", keyed=False)
            store.add_fleet("c", keyed=False)
            backup(url, tmp_path / "copy.sqlite")
            with closing(sqlite3.connect(path)) as other:
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                other.execute("VACUUM")
            store.add_fleet("d", keyed=False)
            store.engine.dispose()  # SQLite removes the -wal, which no process has open any more
            assert not os.path.exists(f"{path}-wal")
            store.add_fleet("e", keyed=False)
            assert list(store.fleets()) == ["a", "b", "c", "d", "e"]


def lose_the_wal_in_mid_batch(store, statement):
    with store.writing() as connection:
        file_next_to(store.where, "-wal").unlink()
        connection.exec_driver_sql(statement)


class TestRemovedWal:
    @pytest.mark.parametrize("end", ["-wal", pytest.param("-shm", marks=pytest.mark.long)])
    def test_stops_acknowledgements_and_loses_nothing(self, path, end):
        messages, counts = crowd(640)
        with MosquittoBroker() as broker:
            url = f"mqtt://127.0.0.1:{broker.port}"
            arguments = ("--store", f"sqlite:///{path}", "--broker", url, "--batch", "0.1s")
            with served(*arguments) as process:
                process.ready()
                publish(broker, messages[:600])
                until(lambda: report_count(path) == 600, process.log)
                file_next_to(path, end).unlink()
                publish(broker, messages[600:])
                assert process.wait() == 1
                assert process.log().count(f"{path}{end} was removed") == 1
            with Store(f"sqlite:///{path}") as store:
                with running(store, broker, client_id=CLIENT_ID) as aggregator:
                    until(lambda: total(aggregator) == 40, aggregator.counters)
                assert set(aggregator.counters.rejected) <= {"duplicate"}
                assert total(aggregator) == 40
                assert list(store.histogram("open", experiment().digest)) == counts

    def test_blocks_a_new_store_beside_it(self, path):
        with Store(f"sqlite:///{path}"):
            path.rename(path.with_name("elsewhere"))
        with pytest.raises(StoreError, match="is missing but its -wal exists: put it back, restore a backup"):
            Store(f"sqlite:///{path}")
        path.with_name("elsewhere").rename(path)
        assert report_count(path) == 0

    def test_made_anew_by_another_program_is_reported(self, path):
        with Store(f"sqlite:///{path}") as store:
            file_next_to(path, "-wal").unlink()
            with closing(sqlite3.connect(path)) as other, suppress(sqlite3.Error):
                other.execute("SELECT count(*) FROM fleet").fetchone()
            assert file_next_to(path, "-wal").exists()
            before = path.read_bytes()
            with pytest.raises(
                StoreRemoved, match="the last reports counted may be lost: stop all programs that use"
            ):
                store.add_fleet("further", keyed=False)
            assert path.read_bytes() == before

    def test_reports_completeness_once_no_reader_blocks(self, path, monkeypatch):
        monkeypatch.setattr("hushmote.server.store.database.BUSY_TIMEOUT_S", 0)
        with Store(f"sqlite:///{path}") as store, closing(sqlite3.connect(path)) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM fleet").fetchone()
            store.add_fleet("further", keyed=False)
            file_next_to(path, "-wal").unlink()
            with pytest.raises(StoreRemoved, match="may be lost"):
                store.fleets()
            other.execute("ROLLBACK")
            with pytest.raises(StoreRemoved, match="everything counted is in"):
                store.fleets()

    @pytest.mark.parametrize(
        "statement",
        ["UPDATE schema_version SET version = version", "no statement"],
        ids=["failing batch", "empty batch"],
    )
    def test_in_mid_batch_is_noticed(self, path, statement):
        with Store(f"sqlite:///{path}") as store:
            with pytest.raises(StoreRemoved, match="everything counted is in"):
                lose_the_wal_in_mid_batch(store, statement)
            with pytest.raises(StoreRemoved):
                store.fleets()
