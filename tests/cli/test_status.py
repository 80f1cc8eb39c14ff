"""`hushmote status` on a real terminal while a store grows, and its one picture in a pipe."""

import dataclasses
import datetime
import json
import os
import re
import signal
from pathlib import Path

import pytest
from boards import experiment, payload_of, reports
from command_line import hushmote
from filled_store import fill
from terminal import INTERRUPT, Terminal
from time_of_day import away_from_midnight, later

from hushmote.cli.status.follow import SnapshotReader
from hushmote.server.budgets import policy
from hushmote.server.ingest import pipeline
from hushmote.server.overview.watch import StoreState
from hushmote.server.store import Description, Store
from hushmote.server.wire import topics

TEMP = experiment()
MODE = experiment(
    name="mode", type="choice", labels=["off", "on", "boost"], bins=None, low=None, high=None, mechanism="grr"
)
_ENTER, _LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"  # the alternate screen


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.sqlite'}"


@pytest.fixture
def store(url: str):
    with Store(url) as store:
        store.add_fleet("home", keyed=False)
        words = Description("°C", "How warm is it?\x1b[31m", "me")
        store.add_experiment("home", payload_of(TEMP), description=words)
        store.add_experiment("home", payload_of(MODE))
        yield store


def count(store: Store, exp, devices) -> None:
    value = _VALUE[exp.name]
    sent = [(topics.report_topic("home", d), one) for d in devices for one in reports(d, exp, 2, value=value)]
    take(store, *sent)


def take(store: Store, *sent: tuple[str, bytes]) -> None:
    pipeline.ingest(store, sent, pipeline.fleets(store), datetime.datetime.now(datetime.UTC))


_VALUE = {"temp": 20.0, "mode": "on"}


class TestOnce:
    @pytest.mark.slow
    @pytest.mark.parametrize("columns", [80, 45])
    def test_picture_fits(self, store, url, tmp_path, columns):
        away_from_midnight()
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        for exp in (TEMP, MODE):
            fill(store, "home", payload_of(exp), {today: 200_000})
        with Terminal(["status", "--store", url], tmp_path, columns=columns) as terminal:
            assert terminal.wait() == 0
        shown = re.sub("\x1b\\[[0-9;]*m", "", terminal.screen.decode())
        assert max(map(len, shown.splitlines())) <= columns
        assert shown.startswith("400,000 reports in ")
        assert "200,000 reports, 200,000 today" in " ".join(shown.split())
        assert "\x1b" not in shown
        assert "ε" not in shown
        words = " ".join(shown.split())
        assert (
            "Privacy: One report can raise someone's confidence in a guess about the reading from 10% to"
            in words
        )
        assert "Someone watching live counts can see individual reports" in words
        assert re.search(r"0 [▁▂▃▄▅▆▇█]{32} 64", shown)

    def test_lists_rejected_reports(self, store, url, tmp_path):
        count(store, TEMP, ["a", "b"])
        take(store, ("hushmote/v1/home/report/x", b"no"))
        said = json.loads(hushmote("status", "--store", url, "--json", cwd=tmp_path))
        assert said["rejected"] == {"home": {"malformed": 1}}
        assert "aggregator" not in said
        assert "1 report was rejected: they are not valid reports" in hushmote(
            "status", "--store", url, cwd=tmp_path
        )

    @pytest.mark.micropython  # check-mechanism runs it where it is
    @pytest.mark.parametrize("consent_from", ["network", "board"])
    def test_says_when_policy_lets_network_start_boards(self, consent_from, store, url, tmp_path):
        known = dataclasses.replace(policy.policy_for(8, 1e-6, ["temp"]), consent_from=consent_from)
        (tmp_path / "policy.json").write_text(json.dumps(dataclasses.asdict(known)))
        words, given = "The policy lets devices be started over the network.", ("--policy", "policy.json")
        check = ("check-mechanism", "rr")
        of_store = (("status", "--store", url), ("ledger", "--store", url))
        for command in (*of_store, check):
            assert (words in hushmote(*command, *given, cwd=tmp_path)) == (consent_from == "network"), command
        for command in (*of_store, check):
            said = json.loads(hushmote(*command, *given, "--json", cwd=tmp_path))
            assert said["policy"]["consent_from"] == consent_from
        assert words not in hushmote("status", "--store", url, cwd=tmp_path)


class TestFollow:
    @pytest.mark.slow
    def test_shows_commit_at_once_and_ctrl_c_restores_terminal(self, store, url, tmp_path):
        with Terminal(["status", "--follow", "--store", url], tmp_path) as terminal:
            terminal.until("0 reports in ")
            count(store, TEMP, ["a", "b", "c"])
            terminal.until(
                "6 reports so far. "
            )  # below the number in one picture, which may come in two reads
            assert b"6 reports in " in terminal.screen
            assert b"mean " not in terminal.screen  # so few tell nothing
            count(store, MODE, ["a"])
            terminal.until("8 reports in ")
            terminal.type(INTERRUPT)
            assert terminal.wait() == 0
            assert terminal.screen.count(_ENTER) == terminal.screen.count(_LEAVE) == 1
            assert b"Traceback" not in terminal.screen
            assert b"\x1b[31mHow" not in terminal.screen

    @pytest.mark.slow
    def test_survives_missing_store_and_stops_on_sigterm(self, store, url, tmp_path):
        with Terminal(["status", "--follow", "--store", url], tmp_path, columns=45) as terminal:
            terminal.until("reports in ")
            store.close()
            for file in tmp_path.glob("store.sqlite*"):
                os.rename(file, file.with_name(f"away-{file.name}"))
            terminal.until("There is no store at")
            for file in tmp_path.glob("away-*"):
                os.rename(file, file.with_name(file.name.removeprefix("away-")))
            terminal.until("reports in ")
            terminal.kill(signal.SIGTERM)
            assert terminal.wait() == 0
            assert _LEAVE in terminal.screen

    def test_recounts_changed_older_windows_within_a_minute(self, store, monkeypatch):
        fill(store, "home", payload_of(TEMP), {f"2026-01-0{day}": 5_000 for day in (1, 2, 3)})
        seen = SnapshotReader()
        for version, came in enumerate((15_000, 20_000)):
            shown = seen.read(store, StoreState("ready", "", version)).overview
            assert shown is not None
            assert shown.reports == came
            fill(store, "home", payload_of(TEMP), {"2026-01-01": 5_000})
            later(monkeypatch, datetime.timedelta(minutes=1))


class TestErrors:
    def test_are_one_line(self, store, url, tmp_path):
        said = hushmote("status", "--store", "sqlite:///none.sqlite", cwd=tmp_path, expect=1)
        assert said.startswith("hushmote: there is no store at none.sqlite")
        away = hushmote("status", "--store", url, "--aggregator", "http://127.0.0.1:1", cwd=tmp_path)
        assert "does not answer: Connection refused." in " ".join(away.split())

    def test_json_of_unreachable_aggregator(self, store, url, tmp_path):
        arguments = ("--store", url, "--aggregator", "http://127.0.0.1:1", "--json")
        said = json.loads(hushmote("status", *arguments, cwd=tmp_path))["aggregator"]
        assert list(said)[:3] == ["answered", "trouble", "connected"]
        assert not said["answered"]
        assert said["words"] == said["trouble"]
        assert said["trouble"].endswith("does not answer: Connection refused.")
