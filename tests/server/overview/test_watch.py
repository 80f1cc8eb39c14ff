"""Watching a store while others write to it: commits, states, and no writes by the watcher."""

import datetime
import os
import shutil
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from boards import ask_fleet, experiment, reports
from sqlalchemy import event, text
from time_of_day import advance_clock

from hushmote.server.ingest.pipeline import fleets, ingest
from hushmote.server.overview.watch import StoreWatch
from hushmote.server.store import Store, StoreError, schema
from hushmote.server.store.backup import backup
from hushmote.server.wire import topics

NOW = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
TEMP = experiment()


def make_store(url: str) -> Store:
    store = Store(url)
    ask_fleet(store, "home", TEMP)
    return store


def count(store: Store, device: str) -> None:
    """Commit a batch of one board's reports."""
    messages = [(topics.report_topic("home", device), sent) for sent in reports(device, TEMP, 2)]
    assert ingest(store, messages, fleets(store), NOW).accepted == 2


def total(watch: StoreWatch) -> int:
    """Return the number of TEMP reports it sees in a store that is ready."""
    assert watch.store is not None
    return int(watch.store.histogram("home", TEMP.digest).sum())


@pytest.fixture
def url(folder: Path) -> str:
    return f"sqlite:///{folder / 'store.sqlite'}"


@pytest.fixture
def folder(tmp_path: Path):
    """Provide a folder with a store that no process has open."""
    make_store(f"sqlite:///{tmp_path / 'store.sqlite'}").close()
    return tmp_path


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestReadOnly:
    def test_database_rejects_writes(self, store_url: str):
        make_store(store_url).close()
        with Store(store_url, read_only=True) as store:
            with pytest.raises(StoreError):
                store.add_fleet("other", keyed=False)
            assert list(store.fleets()) == ["home"]

    def test_changes_nothing_in_its_folder(self, folder: Path, url: str):
        before = files(folder)
        with StoreWatch(url) as watch:
            assert watch.refresh().is_ready
            total(watch)
            assert files(folder) == before
        assert files(folder) == before
        store = Store(url)
        count(store, "one")
        before = files(folder)
        with StoreWatch(url) as watch:
            watch.refresh()
            total(watch)
            after = files(folder)
            # Readers register in the log's index, with locks and in shared memory.
            assert {n: b for n, b in after.items() if "-shm" not in n} == {
                n: b for n, b in before.items() if "-shm" not in n
            }
        store.close()

    @pytest.mark.slow
    def test_reads_another_users_files(self):
        """Read as a user without write access: an idle store, one in use, and one left by a crash."""
        if os.geteuid():
            pytest.skip("only root can become someone else")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            folder.chmod(0o755)
            path = folder / "store.sqlite"
            url = f"sqlite:///{path}"
            with make_store(url):
                pass
            path.chmod(0o644)
            assert _as_nobody(url) == "ready 0"
            with Store(url) as store:
                count(store, "one")
                assert _as_nobody(url) == "ready 2"
                for end in ("", "-wal", "-shm"):
                    shutil.copy(f"{path}{end}", folder / f"crashed{end}")
                    (folder / f"crashed{end}").chmod(0o644)
            assert _as_nobody(f"sqlite:///{folder / 'crashed'}") == "ready 2"

    def test_reads_a_backup_unchanged(self, folder: Path):
        backup(f"sqlite:///{folder / 'store.sqlite'}", folder / "copy.sqlite")
        before = files(folder)
        with StoreWatch(f"sqlite:///{folder / 'copy.sqlite'}") as watch:
            assert watch.refresh().is_ready
        assert files(folder) == before

    def test_accepts_any_character_in_the_path(self, tmp_path: Path):
        url = f"sqlite:///{tmp_path / 'a#b%20 ü.sqlite'}"
        make_store(url).close()
        with StoreWatch(url) as watch:
            assert watch.refresh().is_ready


def _as_nobody(url: str) -> str:
    """Return the state and the number of reports that a child process without root's rights sees."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        summary = "nothing"
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            with StoreWatch(url) as watch:
                state = watch.refresh()
                total = watch.store.histogram("home", TEMP.digest).sum() if watch.store else ""
                summary = f"{state.kind} {state.words}{total}"
        except BaseException as e:
            summary = repr(e)
        finally:
            os.write(writes, summary.encode())
            os._exit(0)
    os.close(writes)
    with open(reads) as answer:
        summary = answer.read()
    os.waitpid(child, 0)
    return summary


class TestStates:
    def test_follow_creation_and_removal(self, tmp_path: Path):
        path = tmp_path / "store.sqlite"
        url = f"sqlite:///{path}"
        with StoreWatch(url) as watch:
            state = watch.refresh()
            assert (state.kind, watch.store) == ("absent", None)
            assert state.words.startswith(f"there is no store at {path}")
            make_store(url).close()
            assert watch.refresh().is_ready
            path.unlink()
            assert watch.refresh().kind == "absent"
            make_store(url).close()
            last = watch.refresh()
            assert last.is_ready
            assert last.version == 4

    def test_replaced_file_is_read(self, folder: Path, tmp_path_factory):
        path = folder / "store.sqlite"
        other = tmp_path_factory.mktemp("other") / "store.sqlite"
        with make_store(f"sqlite:///{other}") as store:
            count(store, "one")
        with StoreWatch(f"sqlite:///{path}") as watch:
            before = watch.refresh()
            os.replace(other, path)
            after = watch.refresh()
            assert after.is_ready
            assert after.version > before.version
            assert total(watch) == 2

    def test_older_store_names_the_upgrade_command(self, tmp_path: Path):
        path = tmp_path / "old.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript((Path(__file__).parents[2] / "data" / "store_v5.sql").read_text())
        url = f"sqlite:///{path}"
        with StoreWatch(url) as watch:
            state = watch.refresh()
            assert state.kind == "other schema"
            assert f"hushmote store upgrade {url}" in state.words
            Store(url, upgrade=True).close()
            assert watch.refresh().is_ready

    def test_store_upgraded_by_a_later_version_is_reported(self, store_url: str):
        with make_store(store_url) as store, StoreWatch(store_url) as watch:
            for _ in range(2):
                assert watch.refresh().is_ready
                assert watch.reader().store is watch.store
                with store.writing() as connection:
                    connection.execute(schema.schema_version.update().values(version=99))
                state = watch.refresh()
                assert state.kind == "other schema"
                assert "use the Hushmote that wrote it" in state.words
                with pytest.raises(StoreError, match="use the Hushmote that wrote it"):
                    watch.reader()
                with store.engine.begin() as connection:
                    connection.execute(schema.schema_version.update().values(version=schema.VERSION))

    def test_problem_leaves_no_connection_open(self, store_url: str):
        with make_store(store_url) as store, StoreWatch(store_url) as watch:
            watch.refresh()
            ends: list[str] = []
            assert watch.store is not None
            event.listen(watch.store.engine, "checkin", lambda *_: ends.append("returned"))
            with store.writing() as connection:
                connection.execute(schema.schema_version.update().values(version=99))
            assert watch.refresh().kind == "other schema"
            assert ends == ["returned"]

    def test_exclusively_locked_store_is_reported_until_released(self, folder: Path, monkeypatch):
        monkeypatch.setattr("hushmote.server.store.read_only.BUSY_TIMEOUT_S", 0.05)
        path = folder / "store.sqlite"
        with StoreWatch(f"sqlite:///{path}") as watch:
            with closing(sqlite3.connect(path, isolation_level=None)) as greedy:
                greedy.execute("PRAGMA locking_mode=EXCLUSIVE")
                greedy.execute("BEGIN IMMEDIATE")
                greedy.execute("INSERT INTO reject VALUES ('', 'unknown fleet', 1)")
                greedy.execute("COMMIT")
                greedy.execute("PRAGMA journal_mode")
                state = watch.refresh()
                assert state.kind == "locked"
                assert state.words.startswith(f"cannot use {path}: ")
            assert watch.refresh().is_ready

    @pytest.mark.parametrize(
        "content", [b"", b"no database at all, but a text" * 100, bytes(4096)], ids=["empty", "text", "zeros"]
    )
    def test_missing_store_is_one_sentence(self, tmp_path: Path, content: bytes):
        path = tmp_path / "store.sqlite"
        path.write_bytes(content)
        with StoreWatch(f"sqlite:///{path}") as watch:
            state = watch.refresh()
        assert state.kind in ("absent", "unreadable")
        assert str(path) in state.words
        assert "\n" not in state.words
        assert path.read_bytes() == content

    def test_folder_in_its_place_is_reported(self, tmp_path: Path):
        with StoreWatch(f"sqlite:///{tmp_path}") as watch:
            assert watch.refresh().kind == "unreadable"

    def test_invalid_url_is_rejected_immediately(self):
        with pytest.raises(StoreError):
            StoreWatch("nonsense")

    def test_server_outage_is_reported_until_it_is_back(self, postgres, postgres_url: str):
        make_store(postgres_url).close()
        with StoreWatch(postgres_url) as watch:
            assert watch.refresh().is_ready
            postgres.restart()
            watch.refresh()
            assert watch.refresh().is_ready


class TestCommits:
    def test_each_is_noticed_once_with_its_counts(self, store_url: str):
        with make_store(store_url) as store, StoreWatch(store_url) as watch:
            before = watch.refresh()
            assert before.is_ready
            assert watch.refresh() == before or "postgresql" in store_url  # others' transactions end too
            for i in range(5):
                count(store, f"board-{i}")
                after = watch.refresh()
                assert after.is_ready
                assert after.version > before.version
                assert total(watch) == 2 * (i + 1)
                before = after

    def test_quiet_store_changes_only_at_the_end_of_an_hour(self, url: str, monkeypatch):
        with Store(url), StoreWatch(url) as watch:
            seen = [watch.refresh().version for _ in range(20)]
            advance_clock(monkeypatch, datetime.timedelta(hours=1))
            assert seen + [watch.refresh().version for _ in range(20)] == [1] * 20 + [2] * 20

    def test_transaction_that_ends_after_a_later_one_is_noticed(self, postgres_url: str):
        """Transactions are numbered at their start, so the last completed one does not imply the others."""
        with make_store(postgres_url) as store, StoreWatch(postgres_url) as watch:
            with store.engine.connect() as first, store.engine.connect() as second:
                for connection in (first, second):
                    connection.execute(text("SELECT pg_current_xact_id()"))
                second.commit()
                before = watch.refresh()
                first.execute(schema.reject.insert().values(fleet="", reason="unknown fleet", count=1))
                first.commit()
            assert watch.refresh().version > before.version
            assert watch.store is not None
            assert watch.store.rejects() == {"": {"unknown fleet": 1}}

    def test_aggregator_that_starts_later_is_noticed(self, url: str):
        """Until then the file is opened as immutable."""
        with StoreWatch(url) as watch:
            before = watch.refresh()
            with Store(url) as store:
                count(store, "one")
                after = watch.refresh()
                assert after.version > before.version
                assert total(watch) == 2
            assert watch.refresh().is_ready
            assert total(watch) == 2

    def test_reader_may_write_where_others_left_files(self, folder: Path, url: str):
        """SQLite shares the log's index among a process's connections in the first connection's mode."""
        with Store(url):
            shutil.copytree(folder, folder / "killed")
        left = f"sqlite:///{folder / 'killed' / 'store.sqlite'}"
        with StoreWatch(left) as watch:
            assert watch.refresh().is_ready
            with Store(left) as store:
                count(store, "one")
            watch.refresh()
            assert total(watch) == 2

    @pytest.mark.slow
    def test_concurrent_readers_lose_and_block_nothing(self, folder: Path):
        url, over = f"sqlite:///{folder / 'store.sqlite'}", threading.Event()
        seen: list[int] = []

        def read() -> None:
            with StoreWatch(url) as watch:
                while not over.is_set():
                    assert watch.refresh().is_ready
                    seen.append(total(watch))

        readers = [threading.Thread(target=read) for _ in range(4)]
        for reader in readers:
            reader.start()
        for i in range(40):
            with Store(url) as store:
                count(store, f"b{i}")
        over.set()
        for reader in readers:
            reader.join()
        assert max(seen) <= 80
        with StoreWatch(url) as watch:
            watch.refresh()
            assert total(watch) == 80

    def test_checking_for_them_reads_no_table(self, url: str):
        """The cost does not depend on the number of reports: SQLite runs no statement on rows."""
        with Store(url) as store, StoreWatch(url) as watch:
            watch.refresh()
            assert watch.store is not None
            statements: list[str] = []
            event.listen(watch.store.engine, "before_cursor_execute", lambda *a: statements.append(a[2]))
            watch.refresh()
            assert statements == ["BEGIN", "PRAGMA data_version"]
            count(store, "one")
            statements.clear()
            watch.refresh()
            (read,) = (s for s in statements if "SELECT" in s)
            assert read == "SELECT schema_version.version \nFROM schema_version"
