"""A backup is a store at one moment, and the check finds any store's faults."""

import datetime
import json
import os
import shutil
import signal
import sqlite3
import stat
import threading
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from boards import ask_fleet, experiment, payload_of, reports
from command_line import runner
from running_aggregator import until

from hushmote.cli import main as cli
from hushmote.server.ingest import pipeline as ingest
from hushmote.server.store import Store
from hushmote.server.store.backup import BackupRefused, backup
from hushmote.server.store.check import check
from hushmote.server.wire import report, topics

NOW = datetime.datetime(2026, 11, 21, 14, tzinfo=datetime.UTC)
DATA = Path(__file__).parents[2] / "data"


def make_reports(store):
    ask_fleet(store, "home", experiment())


def take(store, messages):
    messages = [(topics.report_topic("home", device), payload) for device, payload in messages]
    return ingest.ingest(store, messages, ingest.fleets(store), NOW)


def boards(start, end):
    """Return three reports from each of many devices, ordered by report number."""
    exp = experiment()
    return [
        (f"d{i}", report.encode(exp, n, i % exp.code_count)) for i in range(start, end) for n in (1, 2, 3)
    ]


def total(store):
    return int(store.histogram("home", experiment().digest).sum())


@contextmanager
def counting(store, first=0):
    """Count batches of a hundred devices in a thread during the block; yield their numbers of reports."""
    stop, batches = threading.Event(), list[int]()

    def count():
        while not stop.is_set():
            start = 100 * (first + len(batches))
            batches.append(take(store, boards(start, start + 100)).accepted)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield batches
    finally:
        stop.set()
        thread.join()


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    """Create the file of a store with ten real boards' reports."""
    path = tmp_path_factory.mktemp("store") / "live.sqlite"
    with Store(f"sqlite:///{path}") as store:
        make_reports(store)
        take(store, [(f"b{i}", payload) for i in range(10) for payload in reports(f"b{i}", experiment(), 4)])
        assert check(store).violations == ()
    return path


@pytest.fixture
def live(closed, tmp_path):
    """Open a copy of that store."""
    shutil.copy(closed, tmp_path)
    with Store(f"sqlite:///{tmp_path / 'live.sqlite'}") as store:
        yield store


class TestRestore:
    def test_counts_missing_reports_and_no_duplicates(self, live, tmp_path):
        copy = tmp_path / "copy.sqlite"
        backup(f"sqlite:///{live.where}", copy)
        messages = [(f"b{i}", report.encode(experiment(), n, 0)) for i in range(10) for n in range(1, 5)]
        since = boards(0, 5)
        assert take(live, since).accepted == 15
        live.close()
        away = tmp_path / "away"
        away.mkdir()
        # Including its -wal and -shm, which belong to the old store.
        for file in tmp_path.glob("live.sqlite*"):
            file.rename(away / file.name)
        copy.rename(tmp_path / "live.sqlite")
        with Store(f"sqlite:///{tmp_path / 'live.sqlite'}", create=False) as restored:
            assert check(restored).violations == ()
            # Reports acknowledged since the backup are lost: boards have dropped them and spent the budget.
            assert total(restored) == 40
            assert take(restored, messages).accepted == 0
            # Reports that a broker or board still has would be counted, once.
            assert take(restored, since + since).accepted == 15
            assert check(restored).violations == ()

    def test_postgresql_dump_restores_unlinked_whole_batches(self, postgres, postgres_url, tmp_path):
        names = postgres_url.rpartition("/")[2], postgres.create()
        with Store(postgres_url) as store:
            make_reports(store)
            take(store, boards(0, 100))
            with counting(store, 1):
                postgres.run(
                    "pg_dump", "--format=custom", f"--file={tmp_path / 'dump'}", postgres.dsn(names[0])
                )
        postgres.run("pg_restore", f"--dbname={postgres.dsn(names[1])}", "--no-owner", str(tmp_path / "dump"))
        with Store(postgres.url(names[1]), create=False) as restored:
            outcome = check(restored)
            assert outcome.violations == ()
            assert outcome.reports >= 300
            assert outcome.reports % 300 == 0
            assert take(restored, boards(0, 100)).accepted == 0
            with restored.engine.connect() as connection:
                linked = "SELECT count(*) FROM dedupe d JOIN histogram h ON d.xmin = h.xmin"
                assert connection.exec_driver_sql(linked).scalar() == 0
        postgres.drop(names[1])


class TestBackup:
    def test_excludes_reports_counted_between_its_steps(self, live, tmp_path):
        copy, shares = tmp_path / "copy.sqlite", []

        def advance(more):
            if len(shares) < 5:
                take(live, boards(100 * len(shares), 100 * (len(shares) + 1)))
            shares.append(more)

        before = total(live)
        backup(f"sqlite:///{live.where}", copy, advance, step_pages=1)
        assert len(shares) > 5
        assert sum(shares) == pytest.approx(1)
        assert total(live) == before + 5 * 300
        with Store(f"sqlite:///{copy}", create=False) as copied:
            assert total(copied) == before
            assert check(copied).violations == ()

    @pytest.mark.slow
    def test_contains_whole_batches_while_reports_are_counted(self, live, tmp_path):
        totals = []
        with counting(live) as batches:
            for i in range(8):
                before = total(live)
                backup(f"sqlite:///{live.where}", tmp_path / f"{i}.sqlite")
                assert total(live) >= before
                with Store(f"sqlite:///{tmp_path / f'{i}.sqlite'}", create=False) as copy:
                    outcome = check(copy)
                assert outcome.violations == ()
                assert outcome.reports >= before
                totals.append(outcome.reports)
                until(lambda copied=outcome.reports: total(live) > copied, "counting stops")
        assert all((n - 40) % 300 == 0 for n in totals)
        assert totals == sorted(set(totals))
        assert total(live) == 40 + sum(batches)

    def test_needs_no_wal_and_is_private(self, live, tmp_path):
        copy = tmp_path / "copy.sqlite"
        assert backup(f"sqlite:///{live.where}", copy) == copy.stat().st_size
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert sorted(p.name for p in tmp_path.iterdir() if "live" not in p.name) == ["copy.sqlite"]
        with Store(f"sqlite:///{copy}", create=False) as store, store.engine.connect() as connection:
            assert total(store) == 40
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"

    def test_of_an_earlier_schema_version_works(self, tmp_path):
        with closing(sqlite3.connect(tmp_path / "v5.sqlite")) as connection:
            connection.executescript((DATA / "store_v5.sql").read_text())
        backup(f"sqlite:///{tmp_path / 'v5.sqlite'}", tmp_path / "copy.sqlite")
        dumps = []
        for name in ("v5", "copy"):
            with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as connection:
                dumps.append(list(connection.iterdump()))
        assert dumps[0] == dumps[1]
        assert 'INSERT INTO "schema_version" VALUES(5);' in dumps[0]

    def test_killed_leaves_no_file_and_can_be_repeated(self, live, tmp_path):
        copy = tmp_path / "copy.sqlite"
        child = os.fork()
        if not child:
            os.link = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            backup(f"sqlite:///{live.where}", copy)
            os._exit(0)
        assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
        assert not copy.exists()
        assert (tmp_path / "copy.sqlite.part").exists()
        backup(f"sqlite:///{live.where}", copy)
        assert not (tmp_path / "copy.sqlite.part").exists()

    def test_without_hard_links_replaces_no_other_file(self, live, tmp_path, monkeypatch):
        copy, store = tmp_path / "copy.sqlite", f"sqlite:///{live.where}"

        def link(*_):
            raise PermissionError(1, "Operation not permitted")  # Linux's error on FAT

        def late(*_):
            copy.write_text("someone else's")
            link()

        monkeypatch.setattr(os, "link", late)
        with pytest.raises(BackupRefused, match=r"copy\.sqlite already exists"):
            backup(store, copy)
        assert copy.read_text() == "someone else's"
        copy.unlink()
        monkeypatch.setattr(os, "link", link)
        assert backup(store, copy) == copy.stat().st_size
        assert stat.S_IMODE(copy.stat().st_mode) == 0o600
        assert not copy.with_name("copy.sqlite.part").exists()

    def test_rejects_a_damaged_store(self, live, tmp_path):
        live.close()
        path = tmp_path / "live.sqlite"
        data = bytearray(path.read_bytes())
        data[2 * 4096 : 3 * 4096] = b"\xa5" * 4096
        path.write_bytes(data)
        with pytest.raises(BackupRefused, match=r"damaged|malformed"):
            backup(f"sqlite:///{path}", tmp_path / "copy.sqlite")
        assert not list(tmp_path.glob("copy*"))

    def test_command_copies_once_and_rejects_in_one_line(self, live, tmp_path, monkeypatch):
        run = runner("store", tmp_path, monkeypatch)
        url = "sqlite:///live.sqlite"
        output = json.loads(run("backup", url, "copy.sqlite", "--json"))
        assert output == {"file": "copy.sqlite", "bytes": (tmp_path / "copy.sqlite").stat().st_size}
        assert "copy.sqlite already exists" in run("backup", url, "copy.sqlite", expect=1)
        assert "nowhere does not exist" in run("backup", url, "nowhere/copy.sqlite", expect=1)
        assert "there is no store" in run("backup", "sqlite:///none.sqlite", "none", expect=1)
        assert "pg_dump" in run("backup", "postgresql+psycopg://h/d", "x", expect=1)
        (tmp_path / "photo").write_bytes(b"these are my holiday photographs" * 100)
        assert "not a database" in run("backup", "sqlite:///photo", "x", expect=1)
        assert not (tmp_path / "x").exists()
        sound = run("check", url)
        assert "is sound: 40 reports of 10 devices, each counted once" in sound.replace("\n", " ")


class TestCheck:
    def test_reports_its_progress(self, live):
        shares = []
        check(live, shares.append)
        assert sum(shares) == pytest.approx(1)

    @pytest.mark.parametrize(
        ("damage", "line"),
        [
            ("UPDATE histogram SET count = count + 1", "temp of fleet home:"),
            ("DELETE FROM dedupe WHERE device = 'b3'", "40 reports are counted, 36 were accepted"),
            (
                "DELETE FROM histogram; DELETE FROM dedupe; "
                "INSERT INTO histogram SELECT id, '2026-11-20', 0, 0, 1 FROM experiment",
                "1 report is counted, 0 were accepted",
            ),
            ("UPDATE dedupe SET numbers = '1-4,x' WHERE device = 'b3'", "numbers of 1 device cannot be read"),
            ("UPDATE dedupe SET accepted = 3 WHERE device < 'b3'", "of 3 devices do not match its count"),
            ("UPDATE dedupe SET numbers = '2-5' WHERE device = 'b3'", "of 1 device are outside its budget"),
            ("UPDATE dedupe SET experiment = 'door'", "belong to no known experiment"),
            ("UPDATE histogram SET code = code + 64", "have codes outside 0 to 63"),
            (
                "UPDATE histogram SET code = 64 WHERE code = (SELECT max(code) FROM histogram)",
                "outside 0 to 63",
            ),
            ("UPDATE histogram SET group_index = 1", "have groups outside 0 to 0"),
            ("UPDATE histogram SET group_index = 'a'", "are not numbers"),
            ("UPDATE histogram SET count = -1", "are negative"),
            ("UPDATE histogram SET count = 'many'", "are not numbers"),
            ("UPDATE dedupe SET numbers = x'00' WHERE device = 'b3'", "numbers of 1 device cannot be read"),
            ("UPDATE histogram SET window = 'all'", "have a window other than day"),
            ("UPDATE experiment SET payload = '{}'", "does not parse"),
            ("UPDATE experiment SET payload = x'7b7d'", "does not parse"),
            ("UPDATE experiment SET digest = x'00000000'", "does not match its digest"),
            ("UPDATE experiment SET serial = 4000000000", "invalid dates, serials or texts"),
            ("UPDATE experiment SET first_serial = serial + 1", "invalid dates, serials or texts"),
            ("UPDATE experiment SET counted_until = 'soon'", "invalid dates, serials or texts"),
            ("UPDATE experiment SET purpose = x'ff'", "invalid dates, serials or texts"),
            ("UPDATE dedupe SET numbers = '9~1-4' WHERE device = 'b3'", "numbers of 1 device cannot be read"),
            ("UPDATE dedupe SET numbers = '1~1-4' WHERE device = 'b3'", "of 1 device do not match its count"),
            ("INSERT INTO device VALUES ('home', 'No/Good', 'allowed')", "1 named device cannot report"),
            ("PRAGMA foreign_keys=OFF; DELETE FROM fleet", "belongs to a missing fleet"),
            (
                "INSERT INTO reject VALUES ('home', 'duplicate', -1)",
                "1 counter of rejected reports is negative",
            ),
        ],
    )
    def test_names_every_contradiction(self, live, damage, line):
        live.close()
        with closing(sqlite3.connect(live.where)) as connection:
            connection.executescript(damage)
        with Store(f"sqlite:///{live.where}", create=False) as store:
            outcome = check(store).violations
        assert any(line in violation for violation in outcome), outcome
        assert not {"b3", "No/Good"} & set(" ".join(outcome).replace(":", " ").split())

    def test_command_prints_findings_and_fails(self, live, monkeypatch, capsys):
        with live.writing() as connection:
            connection.exec_driver_sql("UPDATE histogram SET count = count + 1")
        live.close()
        for options in ([], ["--json"]):
            monkeypatch.setattr(
                "sys.argv", ["hushmote", "store", "check", f"sqlite:///{live.where}", *options]
            )
            with pytest.raises(SystemExit) as ended:
                cli.main()
            assert ended.value.code == 1
            output = capsys.readouterr()
            assert output.err == ""
            (line,) = json.loads(output.out)["violations"] if options else output.out.splitlines()
            assert line.endswith("reports are counted, 40 were accepted")

    def test_finds_two_current_versions_of_a_name(self, live):
        live.add_experiment("home", payload_of(experiment(epsilon=500_000)))
        with live.writing() as connection:
            connection.exec_driver_sql("UPDATE experiment SET current = 1")
        assert check(live).violations == (
            "temp of fleet home has 2 current versions; only one can be published",
        )
