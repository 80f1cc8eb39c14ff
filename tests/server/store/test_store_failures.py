"""After a store failure none of the batch counts, a retry counts it once, and the error is one line."""

import contextlib
import datetime
import json
import os
import resource
import select
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from boards import ask_fleet, experiment
from command_line import hushmote
from postgres import Cluster
from refusals import fails
from running_aggregator import running, until
from sqlalchemy import update
from sqlalchemy.pool import QueuePool
from traffic import crowd, publish, total

from hushmote.server.ingest import pipeline as ingest
from hushmote.server.ingest.rate_limit import RateLimit
from hushmote.server.store import Store, StoreError, schema
from hushmote.server.store.check import check
from hushmote.server.store.database import Database
from hushmote.server.store.number_set import NumberSet
from hushmote.server.wire import report, topics
from hushmote.simulator.broker import MosquittoBroker

NOW = datetime.datetime(2026, 11, 21, 14, tzinfo=datetime.UTC)
EXP = experiment()
DISK_KIB = 1024


class Disk:
    """A small file system that really fills up, and can be made read-only even for root."""

    def __init__(self, folder):
        self.folder = folder

    def fill(self):
        """Fill it completely."""
        with open(self.folder / "ballast", "ab", buffering=0) as ballast:
            for size in (65536, 4096, 512):
                try:
                    while True:
                        ballast.write(bytes(size))
                except OSError:
                    pass

    def free(self):
        (self.folder / "ballast").unlink()

    def remount(self, mode):
        subprocess.run(["mount", "-o", f"remount,{mode}", self.folder], check=True)


@pytest.fixture
def disk():
    folder = Path(tempfile.mkdtemp(prefix="hushmote-disk-"))
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k,mode=755", "tmpfs", folder]
    try:
        if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("no file system can be mounted here: only root may")
        folder.chmod(0o755)
        yield Disk(folder)
        subprocess.run(["umount", "--lazy", folder], check=True)
    finally:
        folder.rmdir()


def make_report(store):
    for fleet in ("open", "other"):
        ask_fleet(store, fleet, EXP)
    return store


@pytest.fixture
def store(store_url):
    with Store(store_url) as store:
        yield make_report(store)


in_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


def batch(devices, number=1, fleet="open"):
    return [(topics.report_topic(fleet, d), report.encode(EXP, number, number)) for d in devices]


def take(store, messages):
    return ingest.ingest(store, messages, ingest.fleets(store), NOW)


def counted_reports(store, fleet="open"):
    return int(store.histogram(fleet, EXP.digest).sum())


# Disks


def as_nobody(action):
    """Return an action's output in a child process without root's rights."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                output = action()
            except StoreError as e:
                output = str(e)
            os.write(writes, output.encode())
        finally:
            os._exit(0)
    os.close(writes)
    with open(reads) as answer:
        output = answer.read()
    os.waitpid(child, 0)
    return output


class TestReadOnlyDisk:
    @pytest.mark.parametrize(
        "endings", [(), ("-wal",), ("-wal", "-shm")], ids=["closed", "wal", "wal and shm"]
    )
    def test_status_reads_a_crashed_store(self, disk, endings, tmp_path):
        with Store(f"sqlite:///{disk.folder}/store.sqlite") as store:
            take(make_report(store), batch(["a"]))
            if endings:
                take(store, batch(["b"]))
                for end in ("", *endings):
                    shutil.copy(f"{store.where}{end}", disk.folder / f"left.sqlite{end}")
            else:
                store.close()
                shutil.copy(store.where, disk.folder / "left.sqlite")
        url = f"sqlite:///{disk.folder}/left.sqlite"
        disk.remount("ro")
        if endings == ("-wal",):  # its index cannot be made
            line = hushmote("status", "--store", url, cwd=tmp_path, expect=1)
            assert "read-only disk" in line
            return
        document = json.loads(hushmote("status", "--store", url, "--json", cwd=tmp_path))
        assert sum(line["reports"] for line in document["experiments"]) == (2 if endings else 1)

    def test_is_one_line_before_and_while_counting(self, disk):
        url = f"sqlite:///{disk.folder}/store.sqlite"
        with Store(url) as store:
            take(make_report(store), batch(["a"]))
            store.engine.dispose()
            disk.remount("ro")
            with fails("read-only"):
                take(store, batch(["b"]))
            with fails("read-only"):
                Store(url)
            disk.remount("rw")
            assert take(store, batch(["a", "b"])).accepted == 1

    @pytest.mark.parametrize(
        ("file", "folder"), [(0o444, 0o777), (0o666, 0o555), (0o444, 0o555)], ids=["file", "folder", "both"]
    )
    def test_missing_permission_is_one_line(self, disk, file, folder):
        place = disk.folder / "place"
        place.mkdir()
        path = place / "store.sqlite"
        with Store(f"sqlite:///{path}") as store:
            take(make_report(store), batch(["a"]))
        path.chmod(file)
        place.chmod(folder)
        output = as_nobody(lambda: str(Store(f"sqlite:///{path}")))
        assert "read-only" in output
        assert output.count("\n") == 0
        for store_file in place.iterdir():  # SQLite gives -wal and -shm the file's permissions
            store_file.chmod(0o666)
        place.chmod(0o777)
        assert "Store object" in as_nobody(lambda: str(Store(f"sqlite:///{path}")))


class TestFullDisk:
    def test_counts_the_batch_once_there_is_space(self, disk):
        with Store(f"sqlite:///{disk.folder}/store.sqlite") as store:
            make_report(store)
            take(store, batch(["first"]))
            disk.fill()
            many = batch([f"device-{i}" for i in range(4000)])
            with fails("the disk is full; free some space"):
                take(store, many)
            with Store(f"sqlite:///{disk.folder}/store.sqlite", create=False) as reader:
                assert counted_reports(reader) == 1
                assert check(reader).violations == ()
            disk.free()
            assert take(store, many).accepted == 4000
            assert check(store).violations == ()

    def test_new_store_is_one_line(self, disk):
        disk.fill()
        with fails("the disk is full|unable to open|no permission"):
            Store(f"sqlite:///{disk.folder}/store.sqlite")
        disk.free()
        with Store(f"sqlite:///{disk.folder}/store.sqlite") as store:
            take(make_report(store), batch(["a"]))

    @pytest.mark.parametrize("left_kib", [0, 8, 36])  # full for the -wal, for the -shm, or halfway
    def test_upgrade_leaves_the_old_store_whole(self, disk, left_kib, tmp_path):
        dump = (Path(__file__).parents[2] / "data" / "store_v5.sql").read_text()
        path = disk.folder / "store.sqlite"
        with closing(sqlite3.connect(tmp_path / "old")) as connection:
            connection.executescript(dump)
        shutil.copy(tmp_path / "old", path)
        (disk.folder / "reserve").write_bytes(bytes(left_kib << 10))
        disk.fill()
        (disk.folder / "reserve").unlink()
        with fails("the disk is full; free some space"):
            Database(f"sqlite:///{path}", create=False, upgrade=True)
        disk.free()
        database = Database(f"sqlite:///{path}", create=False, upgrade=True)
        assert database.version_before == 5
        database.close()

    def test_acknowledges_and_loses_nothing(self, disk):
        messages, counts = crowd(600, EXP)
        with MosquittoBroker() as broker, Store(f"sqlite:///{disk.folder}/store.sqlite") as store:
            make_report(store)
            with running(store, broker, client_id="one") as aggregator:
                publish(broker, messages[:50])
                until(lambda: counted_reports(store) == 50, "counting")
                disk.fill()
                for start in range(50, 600, 50):
                    publish(broker, messages[start : start + 50])
                until(lambda: aggregator.counters.failures >= 1, lambda: aggregator.counters)
                before = aggregator.counters.accepted
            # It stopped with reports that were neither counted nor acknowledged, so the broker still has
            # them.
            assert counted_reports(store) == before < 600
            disk.free()
            with running(store, broker, client_id="one") as aggregator:
                until(lambda: aggregator.counters.accepted == 600 - before, lambda: aggregator.counters)
            assert list(store.histogram("open", EXP.digest)) == counts
            assert check(store).violations == ()

    def test_of_postgresql_counts_the_batch_later(self, disk, postgres):
        place = disk.folder / "tablespace"
        place.mkdir()
        subprocess.run(["mount", "-o", "remount,size=32m", disk.folder], check=True)
        subprocess.run(["chown", "postgres", place], check=True)
        postgres.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
        try:
            postgres.execute("CREATE DATABASE small TABLESPACE small")
            with Store(postgres.url("small")) as store:
                take(make_report(store), batch(["first"]))
                disk.fill()
                many = batch([f"device-{i}" for i in range(4000)])
                with fails("the disk is full; free some space"):
                    take(store, many)
                disk.free()  # before that, reading may fail as well, because it writes evicted pages
                assert counted_reports(store) == 1
                assert take(store, many).accepted == 4000
                assert check(store).violations == ()
        finally:
            postgres.execute("DROP DATABASE IF EXISTS small WITH (FORCE)")
            postgres.execute("DROP TABLESPACE small")


# Connections


# Returns once the server's process is gone.
CUT = "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE application_name = 'hushmote'"


class Proxy:
    """A proxy between a store and PostgreSQL that cuts the connection around the next COMMIT.

    cut: with "before" the server never gets the COMMIT; with "after" it commits and its response is lost.
    """

    def __init__(self, port):
        self._server_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cut = ""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client, server):
        with client, server:
            while True:
                for side in select.select([client, server], [], [])[0]:
                    data = side.recv(65536)
                    if side is client and self.cut and b"COMMIT" in data:
                        if self.cut == "after":
                            server.sendall(data)
                            assert server.recv(65536)
                        self.cut = ""
                        return
                    if not data:
                        return
                    (server if side is client else client).sendall(data)


class TestLostConnection:
    def test_sqlite_syncs_each_commit(self, tmp_path):
        with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
            assert isinstance(store.engine.pool, QueuePool)
            connections = [store.engine.connect() for _ in range(5)]
            for connection in connections:
                assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
                assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
                connection.close()

    def test_repeated_postgresql_kills_lose_and_double_nothing(self):
        messages, counts = crowd(1500, EXP)
        with contextlib.ExitStack() as stack:
            cluster = stack.enter_context(Cluster())
            broker = stack.enter_context(MosquittoBroker())
            store = make_report(stack.enter_context(Store(cluster.url(cluster.create()))))
            with running(store, broker, batch_reports=50, batch_s=0.05) as aggregator:
                stream = threading.Thread(target=publish, args=(broker, messages))
                stream.start()
                for start in (1, 300, 700):
                    until(lambda n=start: aggregator.counters.accepted >= n, aggregator.counters)
                    cluster.restart()
                stream.join()
                until(lambda: total(aggregator) >= 1500, aggregator.counters)
            assert list(store.histogram("open", EXP.digest)) == counts
            outcome = check(store)
            assert (outcome.reports, outcome.violations) == (1500, ())

    def test_between_batches_is_harmless_and_within_counts_none(self, postgres, postgres_url):
        with Store(postgres_url) as store:
            take(make_report(store), batch(["a"]))
            postgres.execute(CUT)
            assert take(store, batch(["a"])).accepted == 0
            with fails("terminating connection|server closed"), store.ingest() as transaction:
                key = ("open", "temp", "b")
                transaction.write({key: NumberSet(1)}, {(1, "2026-11-21", 0, 1): 1}, {})
                postgres.execute(CUT)
            assert counted_reports(store) == 1
            assert take(store, batch(["a", "b"])).accepted == 1
            assert check(store).violations == ()

    @pytest.mark.parametrize("cut", ["before", "after"])
    def test_unknown_commit_outcome_counts_once_on_retry(self, postgres, postgres_url, cut):
        proxy = Proxy(postgres.port)
        try:
            with Store(postgres.url(postgres_url.rpartition("/")[2], port=proxy.port)) as store:
                take(make_report(store), batch(["a"]))
                proxy.cut = cut
                with fails("server closed the connection"):
                    take(store, batch(["a", "b", "c"]))
                assert proxy.cut == ""
                assert counted_reports(store) == (3 if cut == "after" else 1)
                result = take(store, batch(["a", "b", "c"]))
                duplicates = {"before": 1, "after": 3}[cut]
                assert result.accepted == 3 - duplicates
                assert result.rejected == {("open", "duplicate"): duplicates}
                assert counted_reports(store) == 3
                assert check(store).violations == ()
        finally:
            proxy.close()


# Rows and pages


def damage(store, statement):
    with store.writing() as connection:
        connection.exec_driver_sql(statement)


@contextmanager
def damaged(store, device="a", fleet="open", **values):
    """Set a device's row to these values during the block."""
    table = schema.dedupe
    condition = (table.c.device == device, table.c.fleet == fleet)
    with store.writing() as connection:
        row = connection.execute(table.select().where(*condition)).mappings().one()
        connection.execute(update(table).where(*condition).values(**values))
    yield
    with store.writing() as connection:
        connection.execute(
            update(table).where(*condition).values(numbers=row["numbers"], beyond=row["beyond"])
        )


class TestDamage:
    @pytest.mark.parametrize("values", [{"numbers": "5-6,1-2"}, {"beyond": b"no bitmap"}], ids=str)
    def test_of_one_devices_row_rejects_only_its_reports(self, store, values, caplog):
        take(store, batch(["a", "b"]) + batch(["a"], fleet="other"))
        with damaged(store, **values):
            mixed = batch(["a", "b"], 2) + batch(["a"], 3) + batch(["a"], 2, "other") + [("x", b"")]
            tally = take(store, mixed)
            assert tally.accepted == 2
            assert tally.rejected == {("open", "damaged numbers"): 2, ("", "unknown fleet"): 1}
            (line,) = [
                r.getMessage() for r in caplog.records if r.levelname == "ERROR"
            ]  # one message per device
            assert "of a device in fleet open for temp are damaged" in line
            assert take(store, batch(["a"], 2)).accepted == 0
            (violation,) = check(store).violations[:1]
            assert "the report numbers of 1 device cannot be read" in violation
        assert take(store, batch(["a", "b"], 3)).accepted == 2
        assert store.rejects() == {"open": {"damaged numbers": 3}, "": {"unknown fleet": 1}}
        assert check(store).violations == ()

    def test_non_utf_8_text_affects_one_device(self, tmp_path):
        with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
            take(make_report(store), batch(["a", "b"]))
            damage(store, "UPDATE dedupe SET numbers = CAST(x'31ff' AS TEXT) WHERE device = 'a'")
            assert take(store, batch(["a", "b"], 2)).rejected == {("open", "damaged numbers"): 1}
            assert counted_reports(store) == 3

    @in_sqlite
    @pytest.mark.parametrize("where", ["add", "encode"])
    def test_error_in_one_devices_numbers_affects_only_it(self, store, where, monkeypatch):
        take(store, batch(["a", "b"]))
        work = getattr(NumberSet, where)

        def fail(numbers, *arguments):
            if len(numbers) + (where == "add") == 3:
                raise IndexError("tuple index out of range")
            return work(numbers, *arguments)

        monkeypatch.setattr(NumberSet, where, fail)
        limit = RateLimit(2)
        mixed = batch(["c", "a"], 2) + batch(["a", "b"], 3) + batch(["d"])
        tally = ingest.ingest(store, mixed, ingest.fleets(store), NOW, limit)
        assert tally.accepted == 3
        assert tally.rejected == {("open", "damaged numbers"): 2}
        assert limit.remaining(("open", "a")) == 2  # uncounted reports do not use the limit
        assert counted_reports(store) == 5
        assert check(store).violations == ()
        monkeypatch.undo()
        assert take(store, batch(["a"], 2) + batch(["a"], 3)).accepted == 2
        assert check(store).violations == ()

    @in_sqlite
    def test_rejected_reports_are_acknowledged(self, store):
        take(store, batch(["a", "b"]))
        with damaged(store, numbers="5-6,1-2"), MosquittoBroker() as broker:
            with running(store, broker, client_id="one") as aggregator:
                publish(broker, batch(["a", "b", "c"], 2))
                until(lambda: total(aggregator) == 3, aggregator.counters)
                assert aggregator.counters.rejected == {"damaged numbers": 1}
                assert aggregator.counters.failures == 0
            with running(store, broker, client_id="one") as aggregator:
                publish(broker, batch(["d"]))
                until(lambda: total(aggregator) == 1, aggregator.counters)
                assert aggregator.counters.rejected == {}  # the broker has no earlier messages left
        assert counted_reports(store) == 5
        assert check(store).violations == ()

    def test_histogram_code_out_of_range_is_an_error(self, store):
        take(store, batch(["a"]))
        for code in (64, -1, 1 << 24):
            damage(store, f"UPDATE histogram SET code = {code}")
            with fails("is damaged: it counts code .*, but temp has codes 0 to 63"):
                counted_reports(store)
        assert take(store, batch(["b"])).accepted == 1  # counting continues, and the check reports it

    @in_sqlite  # which keeps any type in any column
    @pytest.mark.parametrize(
        "damaged", ["count = 'x'", "code = 'x'", "code = 'x', count = 'x'", "count = 1.5"]
    )
    def test_non_numeric_histogram_row_is_an_error(self, store, damaged):
        take(store, batch(["a", "b", "c"]))
        damage(store, f"UPDATE histogram SET {damaged} WHERE code = (SELECT max(code) FROM histogram)")
        with fails("is damaged: "):
            counted_reports(store)

    def test_experiment_is_an_error_before_counting(self, store):
        fleets = ingest.fleets(store)
        for payload in (b"x", b"{}", b""):
            with store.writing() as connection:
                connection.execute(update(schema.experiment).values(payload=payload))
            with fails("is damaged: experiment temp of fleet open does not parse"):
                ingest.fleets(store)
        # A running aggregator continues with the version that it has read.
        assert ingest.ingest(store, batch(["a"]), fleets, NOW).accepted == 1

    def test_overwritten_pages_are_an_error(self, tmp_path):
        url = f"sqlite:///{tmp_path}/store.sqlite"
        with Store(url) as store:
            take(make_report(store), batch([f"device-{i}" for i in range(2000)]))
        with closing(sqlite3.connect(tmp_path / "store.sqlite")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            query = "SELECT pageno FROM dbstat WHERE name = 'dedupe' AND pagetype = 'leaf'"
            try:
                pages = [number for (number,) in connection.execute(query)]
            except sqlite3.OperationalError:  # dbstat is not in every build
                (root,) = connection.execute(
                    "SELECT rootpage FROM sqlite_master WHERE name = 'dedupe'"
                ).fetchone()
                pages = [root]
            (size,) = connection.execute("PRAGMA page_size").fetchone()
        data = bytearray((tmp_path / "store.sqlite").read_bytes())
        for page in pages:
            data[(page - 1) * size : page * size] = b"\xa5" * size
        (tmp_path / "store.sqlite").write_bytes(data)
        with Store(url) as store:
            with fails("the file is damaged; restore a backup"):
                take(store, batch([f"device-{i}" for i in range(2000)], 2))
            assert counted_reports(store) == 2000


class TestUnopenedFile:
    """SQLite says only that it cannot open a file; the line says why."""

    def test_names_exhausted_inodes(self, disk):
        subprocess.run(["mount", "-o", "remount,nr_inodes=2", disk.folder], check=True)
        (disk.folder / "last").touch()
        with fails(r"the disk cannot hold another file \(no inodes are left\); remove some files"):
            Store(f"sqlite:///{disk.folder / 'store.sqlite'}")

    def test_names_too_many_open_files(self, tmp_path):
        url = f"sqlite:///{tmp_path / 'store.sqlite'}"
        Store(url).close()
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        try:
            with fails("too many open files; raise the limit with `ulimit -n` or systemd's LimitNOFILE"):
                Store(url, create=False)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
