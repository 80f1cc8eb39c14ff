"""device/main.py on real MicroPython with provisioned settings and a fleet's real broker.

The runtime has Debian's mbedTLS. It allocates memory from the C library rather than the garbage-collected
heap, so benchmarks/tls_memory.py measures it there.
"""

import base64
import contextlib
import json
import os
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest
from boards import ask_fleet
from certificates import Authority
from experiments import number_json
from fleet_broker import FleetBroker, make_fleet, running, visit
from fleet_broker import context as tls_context
from micropython import find_runtime, load
from running_aggregator import in_thread, until

from hushmote.device import ldp_client
from hushmote.fleet.provisioning import authority, master_key, rotation
from hushmote.fleet.provisioning import settings as provision
from hushmote.fleet.provisioning.fleet_folder import FleetFolder, now_utc
from hushmote.server.aggregator import Aggregator, Counting
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.tls import client_context
from hushmote.server.store import Store
from hushmote.server.wire import keys, report, topics
from hushmote.simulator.broker import MosquittoBroker, free_port

ROOT = Path(__file__).resolve().parents[2]
DEVICE = ROOT / "device"
SCRIPT = ROOT / "firmware_tests" / "reporter" / "tls_board.py"


def experiment() -> bytes:
    budget = {"rule": "sum", "cap": 3_000_000}
    return number_json(8, name="room_temp", high=40_000, budget=budget, window="all")


class Fleet:
    """A fleet folder with its broker, a store, and an aggregator that logs in with its certificate.

    runtime: the boards' MicroPython command; umqtt: the folder with their umqtt.simple 1.3.4.
    """

    def __init__(
        self, folder: FleetFolder, broker: FleetBroker, store: Store, runtime: tuple[str, ...], umqtt: Path
    ) -> None:
        self.folder = folder
        self.broker = broker
        self.store = store
        self._runtime = runtime
        self._umqtt = umqtt

    def settings(
        self, device: str, host: str = "localhost", *, login: bool = False, ca: Path | None = None, **changes
    ) -> Path:
        """Write the settings of `hushmote provision device --folder` with `changes` applied."""
        folder = self.folder
        path = provision.settings_path(device, folder.path / "devices")
        password = folder.issue_login(device) if login else None
        provision.provision_device(
            master_key.load_keys(folder.master_file()),
            folder.fleet.fleet,
            device,
            provision.Network(
                wifi_ssid="home",
                mqtt_host=host,
                mqtt_port=folder.fleet.password_port if login else folder.fleet.port,
                mqtt_ca=ca or folder.path / "broker/ca.pem",
                mqtt_user=device if login else None,
                mqtt_password=password,
                certificate=None if login else folder.issue_device(device, now_utc()),
            ),
            path=path,
        )
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return path

    def fleet_keys(self) -> keys.FleetKeys | None:
        """Return the counting keys and the signing key."""
        return master_key.load_keys(self.folder.master_file(), signing=self.folder.signing_file())

    def board(self, settings: Path, make: bool = True, bundled: bool = False) -> dict:
        """Run one wake-up of a board and return its reporter's status."""
        umqtt = DEVICE if bundled else self._umqtt
        process = subprocess.run(
            [*self._runtime, str(SCRIPT), str(settings), "1" if make else ""],
            env={**os.environ, "MICROPYPATH": f"{umqtt}:{DEVICE}"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert process.stdout.startswith("{"), process.stdout + process.stderr
        return json.loads(process.stdout.splitlines()[0])

    @contextlib.contextmanager
    def aggregator(self):
        """Run an aggregator as `hushmote serve` does, with the folder's certificate and master keys."""
        certificate = self.folder.path / "aggregator/aggregator_1.pem"
        aggregator = Aggregator(
            self.store,
            BrokerAddress("localhost", self.folder.fleet.port),
            Counting(fleet_keys=self.fleet_keys(), batch_s=0.1),
            tls=client_context(self.folder.path / "aggregator/ca.pem", certificate, certificate),
        )
        with in_thread(aggregator):
            yield aggregator

    def report_count(self) -> int:
        digest = ldp_client.Experiment.parse(experiment()).digest
        return int(self.store.histogram(self.folder.fleet.fleet, digest).sum())


@pytest.fixture(scope="module")
def runtime() -> tuple[str, ...]:
    return find_runtime("tls")


@pytest.fixture(scope="module")
def umqtt() -> Path:
    return load(ROOT / "firmware_tests" / "emulation" / "get_umqtt.py").fetch(ROOT / ".rig" / "lib")


@contextlib.contextmanager
def whole_fleet(path: Path, runtime: tuple[str, ...], umqtt: Path):
    """Run a fleet with its folder, its broker, and a store with one experiment."""
    folder = make_fleet(path / "folder", passwords=True)
    with running(folder) as broker, Store(f"sqlite:///{path}/store.sqlite") as store:
        ask_fleet(store, folder.fleet.fleet, experiment(), keyed=True)
        yield Fleet(folder, broker, store, runtime, umqtt)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, runtime: tuple[str, ...], umqtt: Path):
    """Run one fleet with an aggregator for all tests that do not change its keys."""
    with whole_fleet(tmp_path_factory.mktemp("fleet"), runtime, umqtt) as fleet, fleet.aggregator():
        yield fleet


@pytest.fixture
def own_fleet(tmp_path: Path, runtime: tuple[str, ...], umqtt: Path):
    with whole_fleet(tmp_path, runtime, umqtt) as fleet:
        yield fleet


class TestReports:
    @pytest.mark.parametrize(
        ("host", "bundled"), [("localhost", False), ("127.0.0.1", False), ("localhost", True)]
    )
    def test_are_counted_over_tls_with_certificate(self, fleet: Fleet, host: str, bundled: bool):
        before = fleet.report_count()
        name = f"board-{host.replace('.', '-')}-{'1-8' if bundled else '1-3'}"
        output = fleet.board(fleet.settings(name, host), bundled=bundled)
        assert output["error"] is None
        assert (output["sent"], output["waiting"], output["state"]) == (1, 0, "reporting")
        until(lambda: fleet.report_count() == before + 1, "the report is counted")

    def test_are_counted_if_the_broker_uses_the_second_root(self, fleet: Fleet, tmp_path: Path):
        before = fleet.report_count()
        roots = tmp_path / "roots.pem"
        own = (fleet.folder.path / "broker/ca.pem").read_bytes()
        roots.write_bytes(Authority(tmp_path, "old").file.read_bytes() + own)
        output = fleet.board(fleet.settings("two-roots", ca=roots))
        assert (output["error"], output["sent"]) == (None, 1)
        until(lambda: fleet.report_count() == before + 1, "the report is counted")

    def test_are_counted_over_tls_with_login(self, fleet: Fleet):
        before = fleet.report_count()
        path = fleet.settings("login", login=True)
        fleet.broker.reload()
        assert fleet.board(path)["sent"] == 1
        until(lambda: fleet.report_count() == before + 1, "the report is counted")
        settings = fleet.settings("login2", login=True, mqtt_password="0" * 40)
        output = fleet.board(settings)
        assert output["sent"] == 0
        assert output["error"] == "the broker does not authorize this client"


class TestCertificateDates:
    @pytest.mark.parametrize(("start", "end", "queries"), [(1, 5, 2), (-5, -1, 2), (-1, 5, 1)])
    def test_rejected_ones_make_the_board_ask_for_the_time(
        self, start: int, end: int, queries: int, tmp_path: Path, runtime: tuple[str, ...], umqtt: Path
    ):
        """The first query is the daily one; the test double of ntptime does not set the clock."""
        ca = Authority(tmp_path)
        certificate, key = ca.sign("127.0.0.1", "127.0.0.1", start=start, end=end)
        der = base64.b64encode(ssl.PEM_cert_to_DER_cert(ca.file.read_text())).decode()
        port = free_port()
        tls = (f"listener {port} 127.0.0.1", f"certfile {certificate}", f"keyfile {key}")
        path = tmp_path / "settings.json"
        settings = {"fleet": "house", "device_id": "d1", "wifi_ssid": "home", "time_server": "127.0.0.1"}
        settings |= {"mqtt_host": "127.0.0.1", "mqtt_port": port, "mqtt_ca": der}
        path.write_text(json.dumps(settings))
        with MosquittoBroker(settings=tls):
            process = subprocess.run(
                [*runtime, str(SCRIPT.with_name("dated_board.py")), str(path), str(tmp_path)],
                env={**os.environ, "MICROPYPATH": f"{umqtt}:{DEVICE}"},
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
        assert process.returncode == 0, process.stdout + process.stderr
        result = json.loads(process.stdout.splitlines()[-1])
        assert result["queries"] == queries
        assert ("certificate validity" in (result["error"] or "")) == (queries == 2)
        assert result["failures"] == [0, 0, 0]


class TestRefusal:
    def test_board_sends_nothing_if_either_side_refuses(self, fleet: Fleet):
        strange_ca = authority.der_text(authority.new_authority("elsewhere", now_utc()).certificate)
        revoked = fleet.settings("gone")
        fleet.folder.revoke(["gone"], now_utc())
        fleet.broker.reload()
        no_trust = (
            "the broker's certificate was rejected: The certificate is not correctly signed by the trusted CA"
        )
        not_let_in = "the broker rejects this board's certificate, or requires one"

        def error(path: Path, attempts: int = 20) -> str:
            """Return the board's error; TCP drops the broker's last bytes if the board is still writing."""
            output = fleet.board(path)
            assert output["sent"] == 0
            dropped = output["error"] == "the broker closed the connection"
            return error(path, attempts - 1) if dropped and attempts else output["error"]

        assert error(fleet.settings("strange", mqtt_ca=strange_ca)) == no_trust
        assert error(fleet.settings("bare", mqtt_cert=None, mqtt_key=None)) == not_let_in
        assert error(revoked) == not_let_in
        output = fleet.board(fleet.settings("misled", "127.0.0.2"))
        assert output["sent"] == 0
        assert "does not match with the expected CN" in output["error"]

    def test_board_certificate_cannot_impersonate_broker(self, fleet: Fleet):
        pem = fleet.folder.path / "thief.pem"
        pem.write_bytes(fleet.folder.issue_device("thief", now_utc()).to_pem())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        received: list[bytes] = []

        def pose(listener: socket.socket) -> None:
            connection, _ = listener.accept()
            try:
                received.append(context.wrap_socket(connection, server_side=True).recv(100))
            except OSError:
                connection.close()

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=pose, args=(listener,), daemon=True)
            thread.start()
            port = listener.getsockname()[1]
            output = fleet.board(fleet.settings("misled2", mqtt_port=port))
            thread.join(20)
        assert output["sent"] == 0
        assert "Usage does not match the extendedKeyUsage" in output["error"]
        assert received == []

    def test_certificate_without_key_gives_hint(self, fleet: Fleet):
        output = fleet.board(fleet.settings("half", mqtt_key=None))
        assert output == {
            "person": "mqtt_cert and mqtt_key do not match: flash what `hushmote provision` wrote"
        }


class TestRotation:
    def test_rotated_ca_serves_old_boards_until_finish(self, own_fleet: Fleet):
        fleet, folder = own_fleet, own_fleet.folder
        old_aggregator = tls_context(folder, folder.path / "aggregator/aggregator_1.pem")
        old = fleet.settings("old")
        rotation.rotate_ca(folder, now_utc())
        fleet.broker.reload()
        new = fleet.settings("new")
        for path in (old, new):
            assert fleet.board(path, make=False)["error"] is None
        with visit(folder.fleet.port, old_aggregator) as aggregator:
            assert aggregator.connected()
        rotation.finish_ca(folder, now_utc(), cut_off=True)
        fleet.broker.reload()
        assert fleet.board(new, make=False)["error"] is None
        assert "not correctly signed" in fleet.board(old, make=False)["error"]

    def test_rotated_master_key_counts_under_either_key(self, own_fleet: Fleet, tmp_path: Path):
        exp = ldp_client.Experiment.parse(experiment())
        fleet, folder = own_fleet, own_fleet.folder
        old, renewed = fleet.settings("old"), fleet.settings("renewed")
        before = master_key.load_keys(folder.master_file())
        assert before is not None

        def deliver(device: str) -> None:
            """Publish a report under the old key, as if it had waited in another board's flash."""
            pem = tmp_path / f"{device}.pem"
            pem.write_bytes(folder.issue_device(device, now_utc()).to_pem())
            key = keys.device_key(before.masters[0], folder.fleet.fleet, device)
            with visit(folder.fleet.port, tls_context(folder, pem)) as visitor:
                visitor.publish(
                    topics.report_topic(folder.fleet.fleet, device), report.encode(exp, 1, 0, device, key)
                )

        rotation.rotate_master(folder)
        after = master_key.load_keys(folder.master_file())
        rotation.renew(folder, renewed, after, now_utc())
        with fleet.aggregator():
            for count, board in enumerate((old, renewed), 1):
                assert fleet.board(board)["sent"] == 1
                until(lambda count=count: fleet.report_count() == count, f"{board} is counted")
            deliver("waited")
            until(lambda: fleet.report_count() == 3, "the queued report is counted")
        rotation.finish_master(folder)
        with fleet.aggregator() as aggregator:
            deliver("late")
            until(lambda: aggregator.counters.rejected, "the report under the old key is rejected or counted")
            assert dict(aggregator.counters.rejected) == {"bad tag": 1}
        assert fleet.report_count() == 3

    def test_rotated_signing_key_requires_renewed_settings(self, own_fleet: Fleet):
        """The first new key comes from upgrading an older fleet."""
        fleet, path = own_fleet, own_fleet.folder.path / "aggregator/master.key"
        signing = own_fleet.folder.path / "authority/signing.key"
        signing.unlink()
        path.write_text(path.read_text().splitlines()[0] + "\n")
        with pytest.raises(keys.MasterKeyError, match="provision upgrade"), fleet.aggregator():
            pass
        path.write_text(path.read_text() + "signing:" + "11" * 32 + "\n")  # the key that the board has
        board = fleet.settings("k3f9")
        path.write_text(path.read_text().splitlines()[0] + "\n")
        rotation.upgrade(path, [], signing)
        with fleet.aggregator():
            output = fleet.board(board)
            assert (output["sent"], output["state"]) == (0, "refused")
            rotation.upgrade(path, [board], signing)
            assert fleet.board(board)["sent"] == 1
            until(lambda: fleet.report_count() == 1, "its report is counted")

        board = fleet.settings("m4g2")
        rotation.rotate_signing(fleet.folder)
        with fleet.aggregator():
            output = fleet.board(board)
            assert (output["sent"], output["state"]) == (0, "refused")
            after = master_key.load_keys(fleet.folder.master_file())
            rotation.renew(fleet.folder, board, after, now_utc())
            assert fleet.board(board)["sent"] == 1
            until(lambda: fleet.report_count() == 2, "its report is counted")
