"""`hushmote serve` on a machine with a wrong clock never loses, doubles, misfiles or erases reports.

The clock is libfaketime's, the broker is a real mosquitto, and the stores are SQLite and PostgreSQL.
"""

import contextlib
import datetime
import getpass
import os
import subprocess
import sys
from pathlib import Path

import pytest
from boards import ask_fleet, experiment
from command_line import DOOR, hushmote
from fleet_broker import running as fleet_broker
from living_boards import LivingBoards
from running_aggregator import WAIT_S, until
from serve_process import get, health, served, with_setting
from traffic import crowd, publish

from hushmote.fleet.provisioning import fleet_folder
from hushmote.server.store import Description, Store, schema
from hushmote.server.store.check import check
from hushmote.server.store.counting import AHEAD, BEHIND, counting_minute
from hushmote.simulator.broker import MosquittoBroker, free_port

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
DAY = datetime.timedelta(days=1)
TO_1970 = "@1970-01-02 03:04:05"
TO_2031 = "+1800d"

pytestmark = pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed")


@pytest.fixture
def mosquitto():
    with MosquittoBroker() as broker:
        yield broker


def now():
    return datetime.datetime.now(datetime.UTC)


class Machine:
    """A machine whose clock can be set through a file, with immediate effect on its processes."""

    def __init__(self, where):
        self._where = where
        self.set("+0d")
        self.environment = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(where),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # as if someone set the clock
        }

    def set(self, clock):
        self._where.with_suffix(".new").write_text(clock)
        self._where.with_suffix(".new").replace(self._where)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path / "clock")


class Site:
    """A store whose windows are kept for 60 days, and a broker that queues reports."""

    def __init__(self, url, broker):
        self.store, self.url, self.broker = Store(url), url, broker
        ask_fleet(self.store, "open", experiment(window="day"), description=Description(keep="60d"))
        (version,) = self.store.experiments()
        self.old = [str(now().date() - days * DAY) for days in (40, 20)]
        with self.store.ingest() as transaction:  # not erased while the clock is right
            transaction.write({}, {(version.id, window, 0, 0): 7 for window in self.old}, {})
        self._sent = 0
        self.first_day = now().date()

    def send(self, count=100):
        """Publish reports, a few of them twice."""
        messages, _ = crowd(count, experiment(window="day"), prefix=f"n{self._sent}-")
        publish(self.broker, messages + messages[:10])
        self._sent += count

    @property
    def counts(self):
        """Return the counted reports without those of the old windows."""
        digest = experiment(window="day").digest
        return int(self.store.histogram("open", digest).sum()) - 7 * len(self.old)

    def set_times(self, at):
        """Make the store look as if it was last written at this time."""
        minute = counting_minute(at)
        with self.store.writing() as connection:
            connection.execute(schema.counting.update().values(alive=minute, clock=minute))

    def serve(self, machine, *more, broker=None, **options):
        at = broker or f"mqtt://127.0.0.1:{self.broker.port}"
        where = ("--store", self.url, "--broker", at, "--batch", "0.3s")
        return served(*where, *more, environment=machine.environment, **options)

    def counts_all(self, process):
        until(lambda: self.counts == self._sent, lambda: f"{self.counts} of {self._sent}: {process.log()}")

    def is_whole(self, *more_windows):
        """Check that every report was counted once, in the window of its day, and nothing was erased."""
        digest = experiment(window="day").digest
        assert self.counts == self._sent
        assert check(self.store).violations != ()  # only in the old windows, which no device filled
        assert check(self.store).violations == (
            f"temp of fleet open: {self._sent + 14:,} reports are counted, {self._sent:,} were accepted",
        )
        days = {str(self.first_day), str(now().date())}  # the test may run across a midnight
        assert set(self.store.windows("open", digest)) - days == {*self.old, *more_windows}
        assert self.store.experiments()[0].erased == 0
        assert set(self.store.rejects().get("open", {})) <= {"duplicate"}


@pytest.fixture
def site(store_url, mosquitto):
    site = Site(store_url, mosquitto)
    yield site
    site.store.close()


def waits(process, port, reason):
    """Return once the process's log and health report that its clock is wrong."""
    until(lambda: "the clock says " in process.log(), process.log)
    until(
        lambda: health(f"http://127.0.0.1:{port}") == (503, reason),
        lambda: f"{health(f'http://127.0.0.1:{port}')} {process.log()}",
    )


class TestAtTheStart:
    @pytest.mark.parametrize(
        ("clock", "reason"), [(TO_1970, BEHIND), ("-21d", BEHIND), (TO_2031, AHEAD)], ids=str
    )
    def test_wrong_clock_counts_nothing_until_it_is_right(self, site, machine, clock, reason):
        site.set_times(now())
        machine.set(clock)
        port = free_port()
        with site.serve(machine, "--http", f"127.0.0.1:{port}") as process:
            waits(process, port, reason)
            until(lambda: "subscribed at" in process.log(), process.log)
            site.send()
            site.send()
            waits(process, port, reason)
            assert site.counts == 0
            machine.set("+0d")
            process.ready()
            site.counts_all(process)
            assert health(f"http://127.0.0.1:{port}") == (200, None)
            assert process.end() == 0
        assert process.log().count("the clock says ") == 1
        assert process.log().count("the clock is right again") == 1
        site.is_whole()

    def test_reports_wait_over_a_restart(self, site, machine):
        site.set_times(now())
        with site.serve(machine) as process:
            process.ready()
            assert process.end() == 0
        site.send()
        for clock in (TO_1970, "-21d", TO_2031):
            machine.set(clock)
            with site.serve(machine) as process:
                until(lambda process=process: "the clock says" in process.log(), process.log)
                assert process.end() == 0
            assert site.counts == 0
        machine.set("+0d")
        with site.serve(machine) as process:
            process.ready()
            site.counts_all(process)
            assert process.end() == 0
        site.is_whole()

    @pytest.mark.parametrize("days", [3, 7, 30])
    def test_shorter_pause_needs_no_operator(self, site, machine, days):
        site.set_times(now() - days * DAY)
        with site.serve(machine) as process:
            process.ready()
            site.send()
            site.counts_all(process)
            assert process.end() == 0
        assert "the clock" not in process.log()
        assert site.store.last_time() >= counting_minute(now()) - 120
        assert len(site.store.interrupted_days()) >= days
        site.is_whole()

    def test_after_32_days_an_operator_accepts_the_clock(self, site, machine, tmp_path):
        site.set_times(now() - 32 * DAY)
        port = free_port()
        with site.serve(machine, "--http", f"127.0.0.1:{port}") as process:
            until(lambda: "subscribed at" in process.log(), process.log)
            site.send()
            waits(process, port, AHEAD)
            assert "32 days after the last right time" in process.log()
            assert site.counts == 0
            hushmote("store", "clock", site.url, "--accept", cwd=tmp_path)
            process.ready()
            site.counts_all(process)
            assert process.end() == 0
        assert len(site.store.interrupted_days()) in (33, 34)
        site.is_whole()


class TestWhileRunning:
    def test_one_second_back_changes_nothing(self, site, machine):
        with site.serve(machine) as process:
            process.ready()
            site.send()
            site.counts_all(process)
            machine.set("-1")
            site.send()
            site.counts_all(process)
            assert process.end() == 0
        assert "the clock" not in process.log()
        site.is_whole()

    @pytest.mark.parametrize("clock", [TO_1970, "-21d", TO_2031])
    def test_jump_and_back_loses_and_erases_nothing(self, site, machine, clock):
        with site.serve(machine) as process:
            process.ready()
            for number in range(1, 3):
                machine.set("+0d")
                site.send()
                site.counts_all(process)
                machine.set(clock)
                site.send()
                until(lambda n=number: process.log().count("the clock says") == n, process.log)
                assert site.counts == 200 * number - 100
            machine.set("+0d")
            site.counts_all(process)
            assert process.end() == 0
        site.is_whole()

    def test_accepted_wrong_clock_can_be_revoked(self, site, machine, tmp_path):
        with site.serve(machine) as process:
            process.ready()
            machine.set(TO_2031)
            site.send()
            until(lambda: "the clock says" in process.log(), process.log)
            site.store.accept_clock(now() + 1800 * DAY)
            site.counts_all(process)
            misfiled = set(site.store.windows("open", experiment(window="day").digest)) - {*site.old}
            machine.set("+0d")
            site.send()
            until(lambda: "behind the store's last time" in process.log(), process.log)
            assert site.counts == 100
            hushmote("store", "clock", site.url, "--accept", cwd=tmp_path)
            site.counts_all(process)
            assert process.end() == 0
        assert site.store.last_time() <= now().timestamp()
        site.is_whole(*misfiled)

    def test_jump_within_the_limit_erases_no_running_window(self, site, machine):
        site.store.add_experiment(
            "open", site.store.experiments()[0].payload, description=Description(keep="1d")
        )
        old, site.old = site.old, []  # these are erased, since they were already due
        with site.serve(machine) as process:
            process.ready()
            until(lambda: process.log().count("reached its retention time and was erased") == 2, process.log)
            site.send()
            site.counts_all(process)
            before = site.store.windows("open", experiment(window="day").digest)
            machine.set("+30d")
            site.send()
            site.counts_all(process)
            assert process.end() == 0
        assert not {*old} & {*before}
        assert {*before} < {*site.store.windows("open", experiment(window="day").digest)}
        assert process.log().count("reached its retention time and was erased") == 2

    def test_keeps_its_connection_while_it_waits(self, site, machine):
        site.set_times(now())
        machine.set(TO_1970)
        script = with_setting("ingest.link", "_KEEPALIVE_S", 1)  # the broker ends it after 1.5 s of silence
        port = free_port()
        with site.serve(machine, "--http", f"127.0.0.1:{port}", script=script) as process:
            until(lambda: "subscribed at" in process.log(), process.log)
            site.send()
            waits(process, port, BEHIND)
            oldest = "hushmote_oldest_uncommitted_seconds "
            until(
                lambda: (
                    float(get(f"http://127.0.0.1:{port}/metrics")[1].split(f"\n{oldest}")[1].split()[0]) > 6
                ),
                process.log,
            )
            machine.set("+0d")
            site.counts_all(process)
            assert process.end() == 0
        assert process.log().count("subscribed at") == 1
        site.is_whole()


class TestSeveralAggregators:
    def test_wrong_clock_stops_only_its_own_aggregator(self, site, machine, tmp_path):
        other, ports = Machine(tmp_path / "other"), (free_port(), free_port())
        site.set_times(now())
        other.set(TO_2031)
        with contextlib.ExitStack() as stack:
            processes = []
            for number, (at, port) in enumerate(zip((machine, other), ports, strict=True)):
                broker = tmp_path / f"{number}.toml"
                broker.write_text(
                    f'url = "mqtt://127.0.0.1:{site.broker.port}"\n'
                    f'share = "both"\nclient_id = "agg-{number}"\n'
                )
                options = ("--http", f"127.0.0.1:{port}")
                processes.append(stack.enter_context(site.serve(at, *options, broker=broker)))
            right, wrong = processes
            right.ready()
            waits(wrong, ports[1], AHEAD)
            site.send(400)
            until(lambda: 150 < site.counts < 250, lambda: f"{site.counts} {right.log()} {wrong.log()}")
            assert health(f"http://127.0.0.1:{ports[0]}") == (200, None)
            other.set("+0d")
            site.counts_all(wrong)
            assert right.end() == wrong.end() == 0
        site.is_whole()


class TestExperimentAdd:
    def add(self, url, machine, folder, *more):
        """Return the status and standard error of `hushmote experiment add` on this machine."""
        (folder / "door.toml").write_text(DOOR)
        command = [sys.executable, "-m", "hushmote", "experiment", "add", str(folder / "door.toml")]
        run = subprocess.run(
            [*command, "--store", url, "--fleet", "open", *more],
            env=os.environ | machine.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        return run.returncode, run.stderr

    @pytest.mark.parametrize("clock", ["@2106-01-02 03:04:05", TO_1970])
    def test_new_store_rejects_an_impossible_clock(self, store_url, machine, tmp_path, clock):
        machine.set(clock)
        status, line = self.add(store_url, machine, tmp_path, "--open")
        assert (status, line.count("\n")) == (1, 1)
        assert line.startswith("hushmote: the clock says ")
        machine.set("+0d")
        assert self.add(store_url, machine, tmp_path, "--open") == (0, "")
        with Store(store_url) as store:
            (version,) = store.experiments()
        assert abs(version.serial - now().timestamp()) < 600

    @pytest.mark.parametrize("clock", ["@2106-01-02 03:04:05", TO_1970, TO_2031, "+32d", "-21d"])
    def test_store_in_use_rejects_a_wrong_clock(self, site, machine, tmp_path, clock):
        site.set_times(now())
        machine.set(clock)
        status, line = self.add(site.url, machine, tmp_path)
        assert (status, line.count("\n")) == (1, 1)
        assert line.startswith("hushmote: the clock says ")
        machine.set("+30d")
        assert self.add(site.url, machine, tmp_path) == (0, "")
        assert site.store.experiments()[-1].serial - now().timestamp() < 31 * 86_400


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
class TestRaspberryPi:
    """A machine without a battery-backed clock starts in 1970, until a time server answers."""

    BOARDS = ("desk", "lamp", "door")

    @pytest.fixture
    def fleet(self, tmp_path):
        """Yield a keyed fleet's folder with its broker, which uses TLS."""
        options = ("--fleet", "home", "--host", "localhost", "--set", f"port={free_port()}")
        options += ("--set", f"broker_user={getpass.getuser()}")
        hushmote("provision", "fleet", "fleet", *options, cwd=tmp_path)
        for board in self.BOARDS:
            hushmote("provision", "device", board, "--folder", "fleet", cwd=tmp_path)
        with fleet_broker(fleet_folder.find(tmp_path / "fleet")):
            yield tmp_path / "fleet"

    def serve(self, url, fleet, machine):
        keys = ("--master-key", fleet / "aggregator/master.key")
        keys += ("--signing-key", fleet / "authority/signing.key")
        broker = ("--broker", fleet / "aggregator/aggregator_1.toml")
        # libfaketime lets a sleep fail in which the clock changes.
        script = with_setting(
            "aggregator", "time.sleep", "lambda s: __import__('select').select((), (), (), s)"
        )
        return served("--store", url, *broker, *keys, environment=machine.environment, script=script)

    def test_boards_lose_nothing_while_it_waits_for_its_clock(self, store_url, fleet, machine, tmp_path):
        (tmp_path / "door.toml").write_text(DOOR.replace("cap = 2", "cap = 100_000"))
        add = ("experiment", "add", "door.toml", "--fleet", "home", "--keys", "--store", store_url)
        hushmote(*add, cwd=tmp_path)
        settings = [fleet / f"devices/{board}.settings.json" for board in self.BOARDS]
        with LivingBoards(settings, "door_open", 0.05) as boards, Store(store_url) as store:
            with self.serve(store_url, fleet, machine) as process:
                process.ready()
                until(lambda: boards.confirmed_reports() >= 30, boards.status)
                assert process.end() == 0
            machine.set(TO_1970)
            with self.serve(store_url, fleet, machine) as process:
                until(lambda: "not valid yet" in process.log(), process.log)
                target, counted = boards.confirmed_reports() + 100, store.participation("home")
                until(lambda: boards.confirmed_reports() >= target, boards.status)
                assert store.participation("home") == counted
                machine.set("+0d")
                process.ready()
                until(lambda: boards.confirmed_reports() >= target + 50, boards.status)
                total = boards.finish()
                until(lambda: store.participation("home")["door_open"].reports == total, process.log)
                assert process.end() == 0
            assert "its certificate is not valid yet: set this machine's clock, or wait" in process.log()
            assert boards.confirmed_reports() == total
            (version,) = store.experiments()
            assert set(store.rejects().get("home", {})) <= {"duplicate"}
            assert not any(
                window.startswith("1970") for window in store.windows("home", version.experiment.digest)
            )
