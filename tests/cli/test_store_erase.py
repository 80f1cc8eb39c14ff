"""`hushmote store erase`: its confirmation, the erased and remaining data, and one-line errors."""

import json
import signal
from datetime import timedelta

import pytest
import typer
from boards import FLEET_KEYS, ask_fleet, experiment, reports
from command_line import runner
from refusals import Refusal, refusals
from running_aggregator import until
from serve_process import served
from sqlalchemy import Engine, event

from hushmote.fleet.provisioning.master_key import to_text
from hushmote.server.ingest import pipeline as ingest
from hushmote.server.ingest.clock import now
from hushmote.server.store import Description, Store
from hushmote.server.store.erase import expire
from hushmote.server.wire import keys, topics
from hushmote.simulator.broker import MosquittoBroker

TEMP = experiment()


def messages(device, fleet, key=None):
    sent = reports(device, TEMP, 3, key=key, value=21.5)
    return [(topics.report_topic(fleet, device), payload) for payload in sent]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Provide `hushmote store erase` in a folder with master.key and s.sqlite, with fleets open and keyed."""
    (tmp_path / "master.key").write_text(to_text(FLEET_KEYS))
    (tmp_path / "master.key").chmod(0o600)
    with Store(f"sqlite:///{tmp_path / 's.sqlite'}") as store:
        sent = messages("board-1", "open") + messages("board-2", "open")
        for fleet, keyed in (("open", False), ("keyed", True)):
            ask_fleet(store, fleet, TEMP, description=Description(keep="30d"), keyed=keyed)
        sent += messages("board-1", "keyed", keys.device_key(FLEET_KEYS.masters[0], "keyed", "board-1"))
        assert ingest.ingest(store, sent, ingest.fleets(store, FLEET_KEYS), now()).accepted == 9
    run = runner("store", tmp_path, monkeypatch)
    return lambda *arguments, **more: run("erase", "sqlite:///s.sqlite", *arguments, **more)


def remaining_mentions(tmp_path):
    return (tmp_path / "s.sqlite").read_bytes().count(b"board-1")


class TestUnfinishedErasure:
    def test_running_aggregator_erases_queued_device(self, run, tmp_path, monkeypatch):
        status, check = (runner(name, tmp_path, monkeypatch) for name in ("status", "store"))
        url = f"sqlite:///{tmp_path / 's.sqlite'}"
        with MosquittoBroker() as broker:
            options = ("--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}")
            with served(*options, "--master-key", tmp_path / "master.key") as process:
                process.ready()
                assert "is in use, and nothing was erased" in run(
                    "--device", "board-1", "--fleet", "open", "--yes", expect=1
                )
                process.process.send_signal(signal.SIGSTOP)
                output = run("--device", "board-1", "--fleet", "keyed", "--queue", "--yes")
                assert "their numbers are sealed with the master key. It is queued," in " ".join(
                    output.split()
                )
                waits = "1 device waits for an aggregator to erase it"
                assert waits in " ".join(status("--store", "sqlite:///s.sqlite").split())
                assert json.loads(status("--store", "sqlite:///s.sqlite", "--json"))[
                    "unfinished_erasures"
                ] == [waits]
                assert waits in " ".join(check("check", "sqlite:///s.sqlite").split())
                process.process.send_signal(signal.SIGCONT)
                until(lambda: "files were rewritten" in process.log(), process.log)
                assert "a queued device of fleet keyed was erased: 3 reports" in process.log()
                files = b"".join(path.read_bytes() for path in tmp_path.glob("s.sqlite*"))
                assert files.count(b"board-1") == 1  # in the open fleet
                assert waits not in check("check", "sqlite:///s.sqlite")
                assert process.end() == 0
                assert "board-1" not in process.log()

    def test_is_reported_and_finished(self, run, tmp_path, monkeypatch):
        check = runner("store", tmp_path, monkeypatch)

        def interrupt(_connection, _cursor, statement, *_):
            if statement.split() == ["SELECT", "rewrite.erasures", "FROM", "rewrite"]:
                raise KeyboardInterrupt

        event.listen(Engine, "before_cursor_execute", interrupt)
        try:
            run("--device", "board-1", "--fleet", "open", "--yes", expect=130)
        finally:
            event.remove(Engine, "before_cursor_execute", interrupt)
        due = "old pages of the files may still contain erased data: an aggregator or"
        assert due in " ".join(check("check", "sqlite:///s.sqlite").split())
        Store(f"sqlite:///{tmp_path}/empty.sqlite").close()
        check("merge", "sqlite:///s.sqlite", "sqlite:///empty.sqlite", "--dry-run")
        assert due in " ".join(check("check", "sqlite:///s.sqlite").split())
        run()
        assert due not in " ".join(check("check", "sqlite:///s.sqlite").split())
        assert "give --device ID, --experiment NAME" in run(expect=1)

    @refusals(
        ("--fleet open", "--queue requires a device"),
        ("--fleet open --device nobody", "there is no device nobody in fleet"),
        command="store erase sqlite:///s.sqlite --queue --yes",
    )
    def test_only_device_can_be_queued(self, refusal: Refusal, run, tmp_path):
        refusal.check(tmp_path)


class TestErasure:
    def test_keeps_counts_and_lists_other_copies(self, run, tmp_path):
        key = ("--master-key", "master.key")
        output = " ".join(run("--device", "board-1", "--fleet", "keyed", *key, "--yes").split())
        assert "device board-1 of fleet keyed, 3 reports. Their contribution to the counts remains" in output
        assert "their numbers are sealed with the master key. Erased." in output
        assert "It may remain in backups and copies of the store; disk blocks" in output
        assert remaining_mentions(tmp_path) == 1  # in the open fleet
        output = " ".join(run("--device", "board-1", "--fleet", "open", "--yes").split())
        assert "Without --master-key, an open fleet counts them again if someone sends them again." in output
        assert remaining_mentions(tmp_path) == 0

    def test_asks_for_confirmation(self, run, tmp_path, monkeypatch):
        assert "cannot ask without a terminal, so nothing was erased; add --yes" in run(
            "--device", "board-2", "--fleet", "open", expect=1
        )
        monkeypatch.setattr("sys.stdin.isatty", lambda: True)
        for answer, left_over in ((False, 2), (True, 1)):
            questions = []

            def confirm(text, abort, answer=answer, questions=questions):
                questions.append((text, abort))
                if not answer:
                    raise typer.Abort

            monkeypatch.setattr("typer.confirm", confirm)
            run("--device", "board-1", "--fleet", "open", expect=0 if answer else 1)
            assert questions == [("Erase it permanently?", True)]
            assert remaining_mentions(tmp_path) == left_over

    def test_experiment_and_fleet_must_be_withdrawn(self, run, tmp_path):
        for what in (("--experiment", "temp", "--fleet", "open"), ("--fleet", "open")):
            assert "`hushmote experiment withdraw temp`" in run(*what, "--yes", expect=1)
        with Store(f"sqlite:///{tmp_path / 's.sqlite'}") as store:
            store.withdraw_experiment("open", "temp")
        output = " ".join(run("--experiment", "temp", "--fleet", "open", "--yes").split())
        assert "experiment temp of fleet open, 6 reports of 2 devices, with all counts." in output
        assert "all of fleet open, 0 reports of 0 devices" in " ".join(
            run("--fleet", "open", "--yes").split()
        )
        with Store(f"sqlite:///{tmp_path / 's.sqlite'}") as store:
            assert store.fleets() == {"keyed": True}


class TestRefusals:
    @refusals(
        ("", "give --device ID, --experiment NAME, or --fleet NAME alone"),
        ("--device board-1 --experiment temp", "give --device ID, --experiment NAME"),
        ("--device board-1", "name one fleet in s.sqlite; its fleets: keyed, open"),
        ("--fleet away", "no fleet away in s.sqlite; its fleets: keyed, open"),
        ("--device 'no\nbody' --fleet open", "there is no device no"),
        ("--device '' --fleet open", "there is no device"),
        ("--experiment hall --fleet open", "there is no experiment hall in fleet open"),
        ("--device board-1 --fleet keyed", "give the key as a file or in HUSHMOTE_MASTER_KEY"),
        ("--device board-1 --fleet keyed --master-key none", "cannot read the master key"),
        command="store erase sqlite:///s.sqlite --yes",
    )
    def test_is_one_line(self, refusal: Refusal, run, tmp_path):
        refusal.check(tmp_path)


class TestStatus:
    def test_shows_retention_and_erasures(self, run, tmp_path, monkeypatch):
        url = f"sqlite:///{tmp_path / 's.sqlite'}"
        with Store(url) as store:
            assert expire(store, now() + timedelta(days=366)) is not None
        status = runner("status", tmp_path, monkeypatch)
        output = " ".join(status("--store", "sqlite:///s.sqlite").split())
        assert "Data older than 30 days is deleted; 6 reports have been deleted so far." in output
        (keyed, opened) = sorted(
            json.loads(status("--store", "sqlite:///s.sqlite", "--json"))["experiments"],
            key=lambda e: e["fleet"],
        )
        assert (opened["keep"], opened["erased_reports"], opened["reports"]) == ("30d", 6, 0)
        assert (keyed["keep"], keyed["erased_reports"], keyed["reports"]) == ("30d", 0, 3)
