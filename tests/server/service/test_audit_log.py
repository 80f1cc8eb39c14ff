"""The audit log has one JSON line per action, survives moving its file, and never names a device."""

import datetime
import functools
import json
import os
import pwd
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from boards import FLEET_KEYS, MASTER, ask_fleet, experiment
from command_line import hushmote
from refusals import fails

from hushmote.fleet.provisioning.master_key import to_text
from hushmote.server.ingest import pipeline as ingest
from hushmote.server.service.audit_log import AuditLog, AuditLogError, audit_log, system_user
from hushmote.server.store import Store
from hushmote.server.wire import keys, report, topics

ROOM_TEMP = Path(__file__).parents[3] / "examples" / "room_temp.toml"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class TestFile:
    def test_is_next_to_the_sqlite_store_or_in_the_variable(self):
        assert audit_log("sqlite:////srv/a.sqlite", {}).path == Path("/srv/a.sqlite.audit.jsonl")
        assert audit_log("postgresql+psycopg://user@host/database", {}).path is None
        for url in ("sqlite:////srv/a.sqlite", "postgresql+psycopg://user@host/database"):
            assert audit_log(url, {"HUSHMOTE_AUDIT_LOG": "/var/log/h"}).path == Path("/var/log/h")

    def test_is_recreated_after_it_was_moved(self, tmp_path):
        path = tmp_path / "audit.jsonl"
        log = AuditLog(path)
        log.note("ada", "add")
        path.rename(tmp_path / "audit.jsonl.1")
        log.note("ben", "withdraw")
        assert [line["who"] for line in lines(path)] == ["ben"]
        assert path.stat().st_mode & 0o777 == 0o600

    def test_keeps_concurrent_writers_lines_intact(self, tmp_path):
        path = tmp_path / "audit.jsonl"
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: AuditLog(path).note("ada", "add", number=n, text="x" * 500), range(400)))
        assert sorted(line["number"] for line in lines(path)) == list(range(400))

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_created_by_root_belongs_to_the_folders_owner(self, tmp_path):
        os.chown(tmp_path, 12345, 23456)
        AuditLog(tmp_path / "audit.jsonl").check()
        status = (tmp_path / "audit.jsonl").stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (12345, 23456, 0o600)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_root_does_not_change_the_owner_of_a_used_file(self, tmp_path):
        path = tmp_path / "audit.jsonl"
        AuditLog(path).note("root", "add")
        os.chown(path, 12345, 23456)
        AuditLog(path).note("root", "withdraw")
        status = path.stat()
        assert (status.st_uid, status.st_gid) == (12345, 23456)

    def test_error_is_one_line(self, tmp_path):
        with fails(r"^cannot write the audit log .*: No such file", AuditLogError):
            AuditLog(tmp_path / "none" / "a").check()

    def test_user_comes_from_the_system(self, monkeypatch):
        for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
            monkeypatch.setenv(name, "someone-else")
        assert system_user() == pwd.getpwuid(os.getuid()).pw_name


class TestCommands:
    @pytest.fixture
    def run(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        return functools.partial(hushmote, cwd=tmp_path)

    def test_records_the_user_of_each_action(self, run, tmp_path):
        run("experiment", "add", str(ROOM_TEMP), "--fleet", "home", "--open")
        run("experiment", "withdraw", "room_temp", "--grace", "0")
        run("store", "erase", "sqlite:///hushmote.sqlite", "--experiment", "room_temp", "--yes")
        log = tmp_path / "hushmote.sqlite.audit.jsonl"
        entries = lines(log)
        assert [line["action"] for line in entries] == ["add", "withdraw", "erase"]
        assert {line["who"] for line in entries} == {system_user()}
        assert {line["fleet"] for line in entries} == {"home"}
        assert {line["experiment"] for line in entries} == {"room_temp"}

    def test_never_name_a_device(self, run, tmp_path):
        exp = experiment()
        key = tmp_path / "master.key"
        key.touch(0o600)
        key.write_text(to_text(FLEET_KEYS))
        with Store("sqlite:///hushmote.sqlite") as store:
            ask_fleet(store, "home", exp, keyed=True)
            payload = report.encode(exp, 1, 0, "k3f9x1", keys.device_key(MASTER, "home", "k3f9x1"))
            message = topics.report_topic("home", "k3f9x1"), payload
            ingest.ingest(
                store, [message], ingest.fleets(store, FLEET_KEYS), datetime.datetime.now(datetime.UTC)
            )
        erase = ("store", "erase", "sqlite:///hushmote.sqlite", "--device", "k3f9x1", "--yes")
        run(*erase, "--master-key", "master.key", "--queue")
        run(*erase, "--master-key", "master.key")
        log = tmp_path / "hushmote.sqlite.audit.jsonl"
        assert [(line["action"], line["what"]) for line in lines(log)] == [
            ("queue erasure", "device"),
            ("erase", "device"),
        ]
        assert "k3f9x1" not in log.read_text()

    def test_change_nothing_without_an_audit_log(self, run):
        add = ("experiment", "add", str(ROOM_TEMP), "--fleet", "home", "--open")
        message = run(*add, expect=1, environment={"HUSHMOTE_AUDIT_LOG": "none/audit.jsonl"})
        assert "cannot write the audit log none/audit.jsonl: No such file or directory" in message
        assert not Path("hushmote.sqlite").exists()
        run(*add)
        nowhere = {"HUSHMOTE_AUDIT_LOG": "none/audit.jsonl"}
        withdraw = ("experiment", "withdraw", "room_temp", "--grace", "0")
        assert "cannot write the audit log" in run(*withdraw, expect=1, environment=nowhere)
        run(*withdraw)
        erase = ("store", "erase", "sqlite:///hushmote.sqlite", "--experiment", "room_temp", "--yes")
        assert "cannot write the audit log" in run(*erase, expect=1, environment=nowhere)
