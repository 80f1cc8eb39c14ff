"""`hushmote status` on a real terminal while a store grows, and its single picture in a pipe."""

import dataclasses
import datetime
import json
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest
from boards import experiment, payload_of, reports
from command_line import hushmote
from filled_store import fill
from fleet_broker import make_fleet
from sqlalchemy import update
from terminal import INTERRUPT, Terminal
from time_of_day import advance_clock, away_from_midnight, set_times
from traffic import publish

from hushmote.cli.experiment.run import list_versions
from hushmote.cli.status import follow, run
from hushmote.cli.status.follow import SnapshotReader
from hushmote.fleet.results.publication import Publication
from hushmote.fleet.results.snapshot import budgets, retained_messages, take_snapshot
from hushmote.server.answers.query import Facts
from hushmote.server.answers.releases.evidence import group_of
from hushmote.server.budgets import policy
from hushmote.server.ingest import pipeline
from hushmote.server.overview.watch import StoreState
from hushmote.server.store import Description, Store, StoreError, schema
from hushmote.server.store.check import check
from hushmote.server.wire import topics
from hushmote.simulator.broker import MosquittoBroker

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
    sent = [
        (topics.report_topic("home", d), payload)
        for d in devices
        for payload in reports(d, exp, 2, value=value)
    ]
    take(store, *sent)


def take(store: Store, *sent: tuple[str, bytes]) -> None:
    pipeline.ingest(store, sent, pipeline.fleets(store), datetime.datetime.now(datetime.UTC))


_VALUE = {"temp": 20.0, "mode": "on"}


class TestSinglePicture:
    @pytest.mark.slow
    @pytest.mark.parametrize("columns", [80, 45])
    def test_picture_fits(self, store, url, tmp_path, columns):
        away_from_midnight()
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        for exp in (TEMP, MODE):
            fill(store, "home", payload_of(exp), {today: 200_000})
        with Terminal(["status", "--store", url], tmp_path, columns=columns) as terminal:
            assert terminal.wait() == 0
        screen = re.sub("\x1b\\[[0-9;]*m", "", terminal.screen.decode())
        assert max(map(len, screen.splitlines())) <= columns
        assert screen.startswith("400,000 reports in ")
        assert "200,000 reports, 200,000 today" in " ".join(screen.split())
        assert "\x1b" not in screen
        assert "ε" not in screen
        words = " ".join(screen.split())
        assert (
            "Privacy: One report can raise someone's confidence in a guess about the reading from 10% to"
            in words
        )
        assert "Someone watching live counts can see individual reports" in words
        assert re.search(r"0 [▁▂▃▄▅▆▇█]{32} 64", screen)

    def test_lists_rejected_reports(self, store, url, tmp_path):
        count(store, TEMP, ["a", "b"])
        take(store, ("hushmote/v1/home/report/x", b"no"))
        result = json.loads(hushmote("status", "--store", url, "--json", cwd=tmp_path))
        assert result["rejected"] == {"home": {"malformed": 1}}
        assert [(e["experiment"], e["reports"]) for e in result["experiments"]] == [("temp", 4), ("mode", 0)]
        assert "aggregator" not in result
        assert "1 report was rejected: they are not valid reports" in hushmote(
            "status", "--store", url, cwd=tmp_path
        )

    def test_says_when_counting_last_worked(self, store, url, tmp_path):
        assert "last worked" not in hushmote("status", "--store", url, cwd=tmp_path)
        then = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=25)
        set_times(store, alive=then)
        assert "Counting last worked 25 h ago." in hushmote("status", "--store", url, cwd=tmp_path)
        document = json.loads(hushmote("status", "--store", url, "--json", cwd=tmp_path))
        assert document["counting_at"] == then.replace(second=0, microsecond=0).isoformat()

    def test_says_what_is_deleted_next(self, store, url, tmp_path):
        away_from_midnight()
        store.add_experiment("home", payload_of(TEMP), description=Description("°C", keep="2d"))
        count(store, TEMP, ["a"])
        words = " ".join(hushmote("status", "--store", url, cwd=tmp_path).split())
        today = datetime.datetime.now(datetime.UTC).date()
        erasure = today + datetime.timedelta(3)
        assert f"Data of {today} will be deleted next, on {erasure} 00:00 UTC." in words

    def test_says_which_fleet_has_no_experiments(self, store, url, tmp_path):
        store.add_fleet("lab", keyed=True)
        fleets = hushmote("status", "--store", url, cwd=tmp_path).split("Fleet ")[1:]
        empty = [fleet.split(":")[0] for fleet in fleets if "There are no experiments." in fleet]
        assert (len(fleets), empty) == (2, ["lab"])

    def test_shows_20_of_many_and_urgent_ones_first(self, store, url, tmp_path):
        """Show what needs attention, the number of all others, and each fleet's totals."""
        away_from_midnight()
        today = datetime.datetime.now(datetime.UTC).date()
        for n in range(30):
            fleet = f"hall{n // 20}"
            fill(store, fleet, payload_of(experiment(name=f"room{n:02}")), {today.isoformat(): 50})
        past = f"{today - datetime.timedelta(3)}"
        fill(store, "hall1", payload_of(experiment(name="zz_quiet")), {past: 50})
        out = hushmote("status", "--store", url, cwd=tmp_path)
        words = " ".join(out.split())
        assert "1 of 33 experiments needs attention. 20 are shown, these first; " in words
        assert "lists the 13 others too" in words
        assert len(re.findall(r"^  (?:room\d\d|mode|temp|zz_quiet)  ", out, re.M)) == 20
        hall1 = words.partition("Fleet hall1")[2]
        assert "zz_quiet 50 reports, 0 today" in hall1.partition("room")[0]
        assert f"No report has arrived since {past}." in hall1
        assert "1 other experiment and 50 reports" in words.partition("Fleet hall1")[0]
        assert "10 other experiments and 500 reports" in hall1
        assert "2 experiments and 0 reports" in words.partition("Fleet home")[2]
        document = json.loads(hushmote("status", "--store", url, "--json", cwd=tmp_path))
        assert len(document["experiments"]) == 33
        assert document["attention"] == [
            {
                "fleet": "hall1",
                "experiment": "zz_quiet",
                "problems": {"quiet": f"No report has arrived since {past}."},
            }
        ]

    def test_sums_up_many_fleets(self, store, url, tmp_path):
        for n in range(30):
            store.add_fleet(f"empty{n}", keyed=False)
        out = hushmote("status", "--store", url, cwd=tmp_path)
        assert "30 other fleets with 0 experiments and 0 reports" in out
        assert out.count("Fleet ") == 1

    def test_shows_details_only_on_request(self, store, url, tmp_path):
        count(store, TEMP, ["a", "b"])
        take(store, ("hushmote/v1/home/report/x", b"no"))
        plain, privacy, verbose = (
            hushmote("status", "--store", url, *more, cwd=tmp_path)
            for more in ((), ("--privacy",), ("--verbose",))
        )
        digest = TEMP.digest.hex()
        epsilons = re.compile(rf"^home +temp +{digest} +1 ", re.M)
        accepted = re.compile(rf"^home +temp +{digest} +yes +4 +\d +2$", re.M)
        rejected = re.compile(r"^home +malformed +1$", re.M)
        for table, place in ((epsilons, privacy), (accepted, verbose), (rejected, verbose)):
            assert [text for text in (plain, privacy, verbose) if table.search(text)] == [place]

    @pytest.mark.micropython  # check-mechanism runs it if MicroPython is installed
    @pytest.mark.parametrize("consent_from", ["network", "board"])
    def test_shows_policies_that_let_network_start_boards(self, consent_from, store, url, tmp_path):
        known = dataclasses.replace(policy.policy_for(8, 1e-6, ["temp"]), consent_from=consent_from)
        (tmp_path / "policy.json").write_text(json.dumps(known.to_dict()))
        words, given = (
            "The policy allows devices to be started over the network.",
            ("--policy", "policy.json"),
        )
        check = ("check-mechanism", "rr")
        of_store = (("status", "--store", url), ("ledger", "--store", url))
        for command in (*of_store, check):
            assert (words in hushmote(*command, *given, cwd=tmp_path)) == (consent_from == "network"), command
        for command in (*of_store, check):
            result = json.loads(hushmote(*command, *given, "--json", cwd=tmp_path))
            assert result["policy"]["consent_from"] == consent_from
        assert words not in hushmote("status", "--store", url, cwd=tmp_path)


@pytest.mark.usefixtures("store")
class TestBoards:
    def test_lists_those_that_need_attention(self, url, tmp_path):
        statuses = {
            "home/status/b1": b"online",
            "home/status/b2": b"offline locked refused:door_open",
            "home/status/b3": b"online spent:door_open",
            "home/status/b4": b"[red]online[/red]\x1b[2J",
            "other/status/b5": b"online locked",
            "home/status/b6": b"online duplicate-id",
        }
        with MosquittoBroker() as broker:
            messages = [(f"hushmote/v1/{topic}", payload) for topic, payload in statuses.items()]
            publish(broker, messages, retain=True)
            command = ("status", "--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}")
            text = hushmote(*command, cwd=tmp_path)
            document = json.loads(hushmote(*command, "--json", cwd=tmp_path))
        assert [line for line in text.splitlines() if line.startswith("board ")] == [
            "board b2 of fleet home: locked, refused door_open",
            "board b4 of fleet home: unreadable",
            "board b6 of fleet home: online, duplicate id",
        ]
        assert "\x1b[2J" not in text
        assert [d["device"] for d in document["devices"]] == ["b1", "b2", "b3", "b4", "b6"]
        assert document["devices"][2]["spent"] == ["door_open"]

    def test_aggregators_own_certificate_is_rejected(self, url, tmp_path):
        folder = make_fleet(tmp_path / "fleet")
        environment = {"HUSHMOTE_BROKER_CERT": str(folder.path / "aggregator/aggregator_1.pem")}
        command = ("status", "--store", url, "--broker", "mqtts://localhost:1")
        output = hushmote(*command, cwd=tmp_path, environment=environment, expect=1)
        assert "belongs to the aggregator, so the broker would end the aggregator's" in output


class TestFollow:
    @pytest.mark.slow
    def test_shows_commit_at_once_and_ctrl_c_restores_terminal(self, store, url, tmp_path):
        with Terminal(["status", "--follow", "--store", url], tmp_path) as terminal:
            terminal.until("0 reports in ")
            count(store, TEMP, ["a", "b", "c"])
            # Below the count in the same picture, which may arrive in two reads.
            terminal.until("6 reports so far. ")
            assert b"6 reports in " in terminal.screen
            assert b"mean " not in terminal.screen  # too few reports for a mean
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

    def test_rate_is_in_reports_per_second(self, store, monkeypatch):
        clock_s = [100.0, 104.0]
        monkeypatch.setattr(follow, "time", SimpleNamespace(monotonic=lambda: clock_s.pop(0)))
        reader = SnapshotReader()
        rates = list[Mapping[tuple[str, str], float]]()
        for version in range(2):
            fill(store, "home", payload_of(TEMP), {"2026-01-01": 1_000})
            rates.append(reader.read(store, StoreState("ready", "", version)).rates)
        assert rates == [{}, {("home", "temp"): 250.0, ("home", "mode"): 0.0}]

    def test_recounts_changed_older_windows_within_a_minute(self, store, monkeypatch):
        fill(store, "home", payload_of(TEMP), {f"2026-01-0{day}": 5_000 for day in (1, 2, 3)})
        seen = SnapshotReader()
        for version, expected in enumerate((15_000, 20_000)):
            overview = seen.read(store, StoreState("ready", "", version)).overview
            assert overview is not None
            assert overview.reports == expected
            fill(store, "home", payload_of(TEMP), {"2026-01-01": 5_000})
            advance_clock(monkeypatch, datetime.timedelta(minutes=1))


class TestErrors:
    def test_are_one_line(self, store, url, tmp_path):
        message = hushmote("status", "--store", "sqlite:///none.sqlite", cwd=tmp_path, expect=1)
        assert message.startswith("hushmote: there is no store at none.sqlite")
        away = hushmote("status", "--store", url, "--aggregator", "http://127.0.0.1:1", cwd=tmp_path)
        assert "does not answer: Connection refused." in " ".join(away.split())

    def test_json_for_unreachable_aggregator(self, store, url, tmp_path):
        arguments = ("--store", url, "--aggregator", "http://127.0.0.1:1", "--json")
        result = json.loads(hushmote("status", *arguments, cwd=tmp_path))["aggregator"]
        assert list(result)[:3] == ["answered", "trouble", "connected"]
        assert not result["answered"]
        assert result["words"] == result["trouble"]
        assert result["trouble"].endswith("does not answer: Connection refused.")


class TestUnreadableExperiment:
    @pytest.fixture
    def mixed(self, store: Store, url: str) -> str:
        """Provide a store in which mode has a mechanism that is not installed here."""
        for exp in (TEMP, MODE):
            fill(store, "home", payload_of(exp), {"2026-11-20": 2_000})
        with store.writing() as connection:
            text = payload_of(MODE).decode().replace('"grr"', '"elsewhere:Unary"')
            statement = update(schema.experiment).where(schema.experiment.c.name == "mode")
            connection.execute(statement.values(payload=text.encode()))
        return url

    @staticmethod
    def status(store: Store, capsys: pytest.CaptureFixture[str], *, as_json: bool = False) -> tuple[str, str]:
        """Return the output and the final error of `hushmote status`."""
        with pytest.raises(StoreError) as error:
            run.run(store, None, None, None, as_json=as_json, privacy=not as_json, verbose=not as_json)
        return " ".join(capsys.readouterr().out.split()), str(error.value)

    def test_status_shows_the_others_and_fails(self, mixed, store, capsys):
        text, error = self.status(store, capsys)
        assert error.startswith("experiment mode of fleet home cannot be read here: mechanism elsewhere:Una")
        assert text.count("Experiment mode of fleet home cannot be read here") == 1
        assert "temp 2,000 reports" in text
        assert "Privacy:" not in text  # the other experiment may reveal more
        text, again = self.status(store, capsys, as_json=True)
        assert again == error
        document = json.loads(text)
        assert [e["experiment"] for e in document["experiments"]] == ["temp"]
        assert [(e["fleet"], e["experiment"]) for e in document["unreadable"]] == [("home", "mode")]

    def test_list_and_estimate_leave_only_it_out(self, mixed, tmp_path, capsys):
        with pytest.raises(StoreError, match="experiment mode of fleet home cannot be read here"):
            list_versions(mixed, None, "", as_json=False)
        assert "home temp" in " ".join(capsys.readouterr().out.split())
        assert "temp: 2,000 reports" in hushmote("estimate", "temp", "--store", mixed, cwd=tmp_path)
        text = hushmote("estimate", "mode", "--store", mixed, cwd=tmp_path, expect=1)
        assert text.startswith("hushmote: experiment mode of fleet home cannot be read here: ")
        assert len(text.splitlines()) == 1

    def test_results_are_cleared_and_the_others_published(self, mixed, store):
        publication, at = Publication(), datetime.datetime(2026, 11, 22, tzinfo=datetime.UTC)
        snapshot = take_snapshot(store, publication, at)
        assert [*snapshot.results] == [("home", "temp")]
        assert len(snapshot.notes) == 1
        assert snapshot.notes[0].startswith("home/mode is not published: ")
        messages = retained_messages(snapshot, publication, at)
        assert messages[topics.result_topic("home", "mode")] == b""
        assert json.loads(messages[topics.result_topic("home", "temp")])["reports"] == 2_000
        assert {gauge.labels["experiment"] for gauge in budgets(store, at)} == {"temp"}

    def test_release_is_not_judged_without_it(self, mixed, store):
        with pytest.raises(StoreError, match="experiment mode of fleet home cannot be read here"):
            group_of(Facts(store), "home", "2.4.0")

    def test_damaged_counts_affect_one_experiment(self, store, capsys):
        for exp in (TEMP, MODE):
            fill(store, "home", payload_of(exp), {"2026-11-20": 2_000})
        with store.writing() as connection:
            connection.exec_driver_sql(
                "UPDATE histogram SET code = 99 WHERE code = 0 AND experiment = "
                "(SELECT id FROM experiment WHERE name = 'mode')"
            )
        text, error = self.status(store, capsys)
        assert error.startswith("experiment mode of fleet home cannot be read here: ")
        assert "is damaged: it counts code 99, but mode has codes 0 to" in error
        assert "temp 2,000 reports" in text
        text, again = self.status(store, capsys, as_json=True)
        assert again == error
        assert [e["experiment"] for e in json.loads(text)["experiments"]] == ["temp"]

    def test_check_covers_the_others(self, mixed, store):
        with store.writing() as connection:
            connection.exec_driver_sql("UPDATE histogram SET count = -count WHERE experiment = 1")
        lines = check(store).violations
        assert sum("version 2 of mode in fleet home cannot be read here" in line for line in lines) == 1
        assert any("of temp in fleet home" in line and "are negative" in line for line in lines)
        assert sum("mode" in line for line in lines) == 1
