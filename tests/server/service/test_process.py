"""`hushmote serve` for an operator: signals, systemd, passwords and keys."""

import contextlib
import json
import re
import resource
import signal
import socket
import sqlite3
import types
from typing import Any

import pytest
from boards import ask_fleet, experiment, payload_of
from command_line import runner
from running_aggregator import running, until
from serve_process import get, served, with_setting
from traffic import counted_reports, crowd, publish

from hushmote.fleet.provisioning import master_key
from hushmote.server.aggregator import CLIENT_ID, Aggregator, Counters, Counting
from hushmote.server.service import process as module
from hushmote.server.wire import keys, report, topics
from hushmote.simulator.broker import MosquittoBroker, free_port


@pytest.fixture
def mosquitto():
    with MosquittoBroker() as broker:
        yield broker


def arguments(store, broker, batch_s=0.1):
    options = ("--store", f"sqlite:///{store.where}", "--broker", f"mqtt://127.0.0.1:{broker.port}")
    return (*options, "--batch", f"{batch_s}s")


def sample(port, name):
    """Return one of the aggregator's metrics."""
    text = get(f"http://127.0.0.1:{port}/metrics")[1]
    return float(text.split(f"\nhushmote_{name} ")[1].split()[0])


def has_ended(process):
    return process.process.poll() is not None


@contextlib.contextmanager
def write_lock(store):
    """Hold the store's write lock like another program; a commit hangs in the driver for BUSY_TIMEOUT_S."""
    other = sqlite3.connect(store.where, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


class TestTooManyOpenFiles:
    @pytest.fixture
    def limited(self):
        """Return a function that stops a process from opening files, or lets it open them again."""
        before = resource.getrlimit(resource.RLIMIT_NOFILE)

        def limit(pid, on):

            resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]) if on else before)

        return limit

    def test_is_one_line_and_counting_resumes(self, store, mosquitto, limited):
        with served(*arguments(store, mosquitto), "--http", f"127.0.0.1:{free_port()}") as process:
            process.ready()
            limited(process.process.pid, True)
            mosquitto.kill()
            until(lambda: "too many open files; raise the limit" in process.log(), process.log)
            mosquitto.start()
            limited(process.process.pid, False)
            messages, _ = crowd(30)
            until(lambda: process.log().count("subscribed at") == 2, process.log)
            publish(mosquitto, messages)
            until(lambda: counted_reports(store) == 30, process.log)
            assert process.end() == 0

    def test_ends_in_order(self, store, mosquitto, limited):
        with served(*arguments(store, mosquitto)) as process:
            process.ready()
            limited(process.process.pid, True)
            assert process.end() == 0
            assert "0 reports accepted" in process.log()


class TestStop:
    def test_sigterm_commits_received_messages(self, store, mosquitto):
        # Fewer than the usual window of 20: a pause right after the 20th would commit them.
        messages, counts = crowd(15)
        port = free_port()
        with served(*arguments(store, mosquitto, 1000.0), "--http", f"127.0.0.1:{port}") as process:
            process.ready()
            publish(mosquitto, messages)
            until(lambda: sample(port, "uncommitted_messages") == 15, process.log)
            assert process.end() == 0
            assert "stopped: " in process.log()
        assert list(store.histogram("open", experiment().digest)) == counts
        assert store.rejects() == {}

    @pytest.mark.parametrize("signals", [1, 2])
    def test_hanging_store_neither_delays_it_nor_loses_reports(self, store, mosquitto, signals):
        messages, counts = crowd(15)
        script = with_setting("service.process", "STOP_S", 1.0 if signals == 1 else 600.0)
        port = free_port()
        options = (*arguments(store, mosquitto, 1000.0), "--batch", "15", "--http", f"127.0.0.1:{port}")
        with served(*options, script=script) as process:
            process.ready()
            with write_lock(store):
                publish(mosquitto, messages)
                until(lambda: sample(port, "uncommitted_messages") == 15, process.log)
                # Its loop turns at least every 0.2 s, unless it is in the driver.
                until(lambda: sample(port, "since_turn_seconds") > 1, process.log)
                process.process.send_signal(signal.SIGTERM)
                if signals == 2:  # two signals at once count as one
                    until(
                        lambda: has_ended(process) or process.process.send_signal(signal.SIGTERM), process.log
                    )
                assert process.wait() == 0
                # Only once the driver gives up, since the lock is still held.
                assert "cannot use" not in process.log()
            assert "stopped without the store: 15 messages wait at the broker" in process.log()
        assert counted_reports(store) == 0
        with running(store, mosquitto, client_id=CLIENT_ID):
            until(lambda: counted_reports(store) == 15, lambda: counted_reports(store))
        assert list(store.histogram("open", experiment().digest)) == counts
        assert store.rejects() == {}


class TestOptions:
    def test_error_is_one_line_without_the_password(self, tmp_path, monkeypatch):
        run = runner("serve", tmp_path, monkeypatch)
        for options, words in [
            (("--store", "postgresql+psycopg://me:p%40ss@host/hushmote"), "PGPASSFILE"),
            (("--broker", "tcp://host"), "mqtts:// for TLS"),
            (("--http", "9417"), "must be host:port"),
            (("--batch", "often"), "must be a number of reports or seconds, such as 500 or 0.5s"),
            (("--batch", "0s"), "must be 1 to 30000 reports, and at least 0.01s"),
        ]:
            mistake = run(*options, expect=1)
            assert words in mistake
            assert "p%40ss" not in mistake


class TestSystemd:
    def test_receives_the_status(self, store, mosquitto, tmp_path):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(tmp_path / "notify"))
            manager.settimeout(60)
            environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
            with served(*arguments(store, mosquitto), environment=environment) as process:
                messages_received = ""
                while (
                    "READY=1" not in messages_received
                    or "STATUS=subscribed at" not in messages_received
                    or "WATCHDOG=1" not in messages_received
                ):
                    messages_received += manager.recv(4096).decode() + "\n"
                assert process.end(signal.SIGINT) == 0
                while b"STOPPING=1" not in manager.recv(4096):  # others may arrive first
                    pass

    def test_credential_may_show_group_bits(self, tmp_path, monkeypatch):
        master = tmp_path / "master.key"
        master_keys = master_key.create_keys(master)
        master.chmod(0o440)
        with pytest.raises(keys.MasterKeyError, match="can be read by others"):
            master_key.load_keys(master)
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
        assert master_key.load_keys(master) == master_keys


class SimulatedRun:
    """An aggregator whose thread never ends, and a clock that waiting for the thread advances."""

    def __init__(self, monkeypatch):
        self.seconds = 1_000.0
        self.counters = Counters()
        self.condition = types.SimpleNamespace(since_turn_s=0.0, state="subscribed", connected=True)
        self.signals = []
        self.events = []  # (seconds, what happened)
        self.steps = {}  # what to do, by seconds
        monkeypatch.setattr(module.time, "monotonic", lambda: self.seconds)
        monkeypatch.setattr(module, "notify", lambda **fields: self.note(next(iter(fields))))
        monkeypatch.setattr(module, "_log_rejects", lambda last, now, s: self.note(("rejects", last, now)))

    def note(self, what):
        self.events.append((round(self.seconds - 1_000), what))

    def is_alive(self):
        return True

    def join(self, seconds):
        self.seconds += seconds
        step = self.steps.pop(round(self.seconds - 1_000), None)
        if step is not None:
            step()

    def times_of(self, what):
        return [seconds for seconds, event in self.events if event == what]


class TestWatch:
    def test_notifies_every_10_s_and_stops_within_20(self, monkeypatch):
        run: Any = SimulatedRun(monkeypatch)  # in place of the aggregator and its thread
        first, second = Counters(accepted=1), Counters(accepted=2)
        run.steps = {
            30: lambda: setattr(run, "counters", first),
            90: lambda: setattr(run, "counters", second),
            125: lambda: setattr(run.condition, "since_turn_s", 30.0),  # the loop hangs
            155: lambda: setattr(run.condition, "since_turn_s", 0.0),
            200: lambda: run.signals.append(signal.SIGTERM),
        }
        module._watch(run, run, run.signals)
        beats = [seconds // 10 for seconds in run.times_of("WATCHDOG")]
        assert 18 <= len(beats) <= 21
        assert not {13, 14} & set(beats)
        assert [event for event in run.events if event[1][0] == "rejects"] == [
            (60, ("rejects", Counters(), first)),
            (120, ("rejects", first, second)),
            (180, ("rejects", second, second)),
        ]
        assert run.times_of("STOPPING") == [200]
        assert 219 <= run.seconds - 1_000 <= 221


class TestMasterKey:
    def test_wrong_key_is_one_line_and_rotated_key_is_accepted(self, store, mosquitto, tmp_path):
        right, new, _ = (master_key.create_keys(tmp_path / name) for name in ("right", "new", "wrong"))
        both = tmp_path / "both"
        both.write_text(master_key.to_text(keys.FleetKeys((*new.masters, *right.masters), right.signing)))
        both.chmod(0o600)
        exp = experiment()
        ask_fleet(store, "home", exp, keyed=True)

        def run_with_key(name):
            return running(store, mosquitto, fleet_keys=master_key.load_keys(tmp_path / name))

        def is_right(name):
            with run_with_key(name):
                pass

        def is_wrong(name):
            with pytest.raises(keys.MasterKeyError, match="this is not the master key of fleet home"):
                Aggregator(store, counting=Counting(fleet_keys=master_key.load_keys(tmp_path / name))).run()

        is_right("wrong")  # nothing has been counted yet, so any key is accepted
        with run_with_key("right"):
            key = keys.device_key(right.masters[0], "home", "a")
            publish(mosquitto, [(topics.report_topic("home", "a"), report.encode(exp, 1, 0, "a", key))])
            until(lambda: store.master_checks()["home"], store.master_checks)
        is_right("right")
        with served(*arguments(store, mosquitto), "--master-key", tmp_path / "wrong") as process:
            assert process.wait() == 1
            (line,) = process.log().splitlines()
        assert "this is not the master key of fleet home" in line
        is_wrong("new")
        is_right("both")  # a rotation begins
        is_wrong("right")  # it would reject the boards flashed in the meantime
        is_right("both")
        is_right("new")  # and ends
        is_wrong("right")
        assert store.histogram("home", exp.digest).sum() == 1


class TestSigningKey:
    """`serve` on a machine without the signing key, and with the key in a second file."""

    @pytest.fixture
    def files(self, store, tmp_path):
        master_key.create_keys(tmp_path / "master.key", tmp_path / "signing.key")
        ask_fleet(store, "home", experiment(), keyed=True)
        store.withdraw_experiment("open", "temp")
        return ("--master-key", tmp_path / "master.key"), ("--signing-key", tmp_path / "signing.key")

    def test_without_it_publishes_nothing_unsigned(self, store, mosquitto, files):
        port = free_port()
        options = (*arguments(store, mosquitto), "--http", f"127.0.0.1:{port}")
        with served(*options, *files[0]) as process:
            process.ready()
            until(lambda: sample(port, "experiments_unsigned") == 1, process.log)
            assert sample(port, "experiments_published") == 0
            assert process.end() == 0
        (line,) = [line for line in process.log().splitlines() if "nobody has signed it" in line]
        assert "temp of fleet home is not published" in line
        assert "`hushmote experiment sign FILE`" in line

    def test_in_its_own_file_works_like_in_one_file(self, store, mosquitto, files):
        port = free_port()
        options = (*arguments(store, mosquitto), "--http", f"127.0.0.1:{port}")
        with served(*options, *files[0], *files[1]) as process:
            process.ready()
            until(lambda: sample(port, "experiments_published") == 1, process.log)
            assert sample(port, "experiments_unsigned") == 0

    def test_of_another_server_is_one_line(self, store, mosquitto, files, tmp_path):
        master_key.create_keys(tmp_path / "other.key", tmp_path / "other.signing.key")
        other = ("--signing-key", tmp_path / "other.signing.key")
        with served(*arguments(store, mosquitto), *files[0], *other) as process:
            assert process.wait() == 1
        (line,) = process.log().splitlines()
        assert "is not the signing key for" in line


class TestLog:
    def test_fault_is_one_line_without_device_data(self, store, mosquitto):
        script = with_setting("ingest.pipeline", "ingest", "lambda *_, **__: {}['dev-secret']")
        with served(*arguments(store, mosquitto), script=script) as process:
            process.ready()
            publish(mosquitto, crowd(1)[0])
            assert process.wait() == 1
        assert "stopped by a fault in Hushmote, KeyError at " in process.log()
        assert "please report it" in process.log()
        assert "Traceback" not in process.log()
        assert "dev-secret" not in process.log()

    def test_counts_rejects_by_reason_and_minute(self, store, mosquitto):
        messages, _ = crowd(30)
        script, pattern = (
            with_setting("service.process", "_MINUTE_S", 0.5),
            r"rejected in .*duplicate (\d+)\n",
        )
        with served(*arguments(store, mosquitto), script=script) as process:
            process.ready()
            publish(mosquitto, messages + messages)
            until(lambda: sum(map(int, re.findall(pattern, process.log()))) == 30, process.log)
            assert process.end() == 0
        assert len(re.findall(pattern, process.log())) < 30

    def test_explains_two_boards_with_one_identity(self, store, mosquitto):
        exp = experiment()
        clones = [(topics.report_topic("open", "clone"), report.encode(exp, 1, code)) for code in (3, 5)]
        script = with_setting("service.process", "_MINUTE_S", 0.5)
        with served(*arguments(store, mosquitto), script=script) as process:
            process.ready()
            publish(mosquitto, clones[:1])
            until(lambda: store.participation("open").get("temp") is not None, process.log)
            publish(mosquitto, clones)
            until(lambda: "two boards share one identity" in process.log(), process.log)
            assert process.end() == 0
        assert "rejected: conflicting number 1, duplicate 1\n" in process.log()
        assert "clone" not in process.log()

    def test_json_is_one_object_a_line_without_devices(self, store, mosquitto):
        secret = "dev-that-nobody-may-read"
        exp = experiment()
        rubbish = [
            (f"hushmote/v1/open/report/{secret}", b""),
            (f"hushmote/v1/open/report/{secret}", secret.encode()),
            (f"hushmote/v1/open/report/{secret}", report.encode(exp, 1, 0)[:-1]),
            (f"hushmote/v1/open/report/{secret.upper()}", b"x"),
            (f"hushmote/v1/{secret}/report/{secret}", b"x"),
            (f"hushmote/v1/open/report/{secret}", report.encode(exp, 4_000_000, 0)),
            (f"hushmote/v1/open/report/{secret}", report.encode(exp, 1, 0)),
            (f"hushmote/v1/open/report/{secret}", report.encode(exp, 1, 0)),
        ]
        with served(*arguments(store, mosquitto), environment={"HUSHMOTE_LOG_FORMAT": "json"}) as process:
            process.ready()
            publish(mosquitto, rubbish)
            until(lambda: sum(sum(r.values()) for r in store.rejects().values()) == 7, store.rejects)
            other = sqlite3.connect(store.where, isolation_level=None)
            # A failing store, with device ids in its statements.
            other.execute("ALTER TABLE dedupe RENAME TO gone")
            publish(mosquitto, [(f"hushmote/v1/open/report/{secret}", report.encode(exp, 2, 0))])
            until(lambda: "reports wait" in process.log(), process.log)
            other.execute("ALTER TABLE gone RENAME TO dedupe")
            other.close()
            until(lambda: store.histogram("open", exp.digest).sum() == 2, "counted")
            assert process.end() == 0
        lines = [json.loads(line) for line in process.log().splitlines()]
        assert all({"time", "level", "event"} <= set(line) for line in lines)
        assert all(line["time"].endswith("Z") and "\n" not in line["event"] for line in lines)
        assert lines[-1]["accepted"] == 2
        assert sum(lines[-1]["rejected"].values()) == 7
        assert secret not in process.log().lower()

    def test_json_error_is_an_object(self, tmp_path):
        options = ("--store", f"sqlite:///{tmp_path}/none/x")
        with served(*options, environment={"HUSHMOTE_LOG_FORMAT": "json"}) as process:
            assert process.wait() == 1
        (line,) = process.log().splitlines()
        assert json.loads(line)["level"] == "critical"
        assert "does not exist" in json.loads(line)["event"]

    def test_nothing_published_is_logged_once_and_rate_limits(self, store, mosquitto):
        store.withdraw_experiment("open", "temp")
        messages, _ = crowd(5)
        exp = experiment()
        more = [(messages[0][0], report.encode(exp, number, 0)) for number in range(2, 5)]
        with served(*arguments(store, mosquitto), "--rate", "2") as process:
            process.ready()
            until(lambda: "nothing is published" in process.log(), process.log)
            store.add_experiment("open", payload_of(exp))
            publish(mosquitto, messages + more)
            until(lambda: counted_reports(store) == 6 and store.rejects(), process.log)
            assert process.end() == 0
        assert store.rejects() == {"open": {"too fast": 2}}
        assert process.log().count("nothing is published because no fleet has a current experiment") == 1
