"""device/main.py on real MicroPython with provisioned settings, at a fleet's real broker.

The runtime has Debian's mbedTLS. Its memory is not the garbage-collected heap but the C library's, so
benchmarks/tls_memory.py measures it there.
"""

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

ROOT = Path(__file__).resolve().parents[2]
DEVICE = ROOT / "device"
SCRIPT = ROOT / "firmware_tests" / "reporter" / "tls_board.py"


def experiment() -> bytes:
    budget = {"rule": "sum", "cap": 3_000_000}
    return number_json(8, name="room_temp", high=40_000, budget=budget, window="all")


class Fleet:
    """A fleet's folder with its broker, a store, and an aggregator that came in with its certificate.

    runtime: the command of its boards; umqtt: the folder of their umqtt.simple 1.3.4.
    """

    def __init__(
        self, folder: FleetFolder, broker: FleetBroker, store: Store, runtime: tuple[str, ...], umqtt: Path
    ) -> None:
        self.folder = folder
        self.broker = broker
        self.store = store
        self._runtime = runtime
        self._umqtt = umqtt

    def settings(self, device: str, host: str = "localhost", *, login: bool = False, **changes) -> Path:
        """Write the settings of `hushmote provision device --folder`, with `changes` made afterwards."""
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
                mqtt_ca=folder.path / "broker/ca.pem",
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
        """One wake-up of a board: what its reporter says afterwards."""
        umqtt = DEVICE if bundled else self._umqtt
        done = subprocess.run(
            [*self._runtime, str(SCRIPT), str(settings), "1" if make else ""],
            env={**os.environ, "MICROPYPATH": f"{umqtt}:{DEVICE}"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.stdout.startswith("{"), done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[0])

    @contextlib.contextmanager
    def aggregator(self):
        """Run an aggregator as `hushmote serve` does, with the folder's certificate and master keys."""
        own = self.folder.path / "aggregator/aggregator_1.pem"
        aggregator = Aggregator(
            self.store,
            BrokerAddress("localhost", self.folder.fleet.port),
            Counting(fleet_keys=self.fleet_keys(), batch_s=0.1),
            tls=client_context(self.folder.path / "aggregator/ca.pem", own, own),
        )
        with in_thread(aggregator):
            yield aggregator

    def counted(self) -> int:
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
    """Run a fleet: its folder, its broker, and a store with one experiment."""
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
        before = fleet.counted()
        name = f"board-{host.replace('.', '-')}-{'1-8' if bundled else '1-3'}"
        said = fleet.board(fleet.settings(name, host), bundled=bundled)
        assert said["error"] is None
        assert (said["sent"], said["waiting"], said["state"]) == (1, 0, "reporting")
        until(lambda: fleet.counted() == before + 1, "the report is counted")

    def test_are_counted_over_tls_with_login(self, fleet: Fleet):
        before = fleet.counted()
        path = fleet.settings("login", login=True)
        fleet.broker.reload()
        assert fleet.board(path)["sent"] == 1
        until(lambda: fleet.counted() == before + 1, "the report is counted")
        wrong = fleet.settings("login2", login=True, mqtt_password="0" * 40)
        said = fleet.board(wrong)
        assert said["sent"] == 0
        assert said["error"] == "the broker does not authorize this client"


class TestRefusal:
    def test_board_sends_nothing_if_either_side_refuses(self, fleet: Fleet):
        strange_ca = authority.der_text(authority.new_authority("elsewhere", now_utc()).certificate)
        revoked = fleet.settings("gone")
        fleet.folder.revoke(["gone"], now_utc())
        fleet.broker.reload()
        no_trust = "the broker is refused: The certificate is not correctly signed by the trusted CA"
        not_let_in = "the broker refuses this board's certificate, or wants one"

        def error(path: Path, again: int = 20) -> str:
            """Return the board's error; TCP drops the broker's last bytes if the board is still writing."""
            said = fleet.board(path)
            assert said["sent"] == 0
            dropped = said["error"] == "the broker closed the connection"
            return error(path, again - 1) if dropped and again else said["error"]

        assert error(fleet.settings("strange", mqtt_ca=strange_ca)) == no_trust
        assert error(fleet.settings("bare", mqtt_cert=None, mqtt_key=None)) == not_let_in
        assert error(revoked) == not_let_in
        said = fleet.board(fleet.settings("misled", "127.0.0.2"))
        assert said["sent"] == 0
        assert "does not match with the expected CN" in said["error"]

    def test_board_certificate_cannot_impersonate_broker(self, fleet: Fleet):
        pem = fleet.folder.path / "thief.pem"
        pem.write_bytes(fleet.folder.issue_device("thief", now_utc()).to_pem())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        heard: list[bytes] = []

        def pose(listener: socket.socket) -> None:
            connection, _ = listener.accept()
            try:
                heard.append(context.wrap_socket(connection, server_side=True).recv(100))
            except OSError:
                connection.close()

        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=pose, args=(listener,), daemon=True)
            thread.start()
            port = listener.getsockname()[1]
            said = fleet.board(fleet.settings("misled2", mqtt_port=port))
            thread.join(20)
        assert said["sent"] == 0
        assert "Usage does not match the extendedKeyUsage" in said["error"]
        assert heard == []

    def test_certificate_without_key_gives_hint(self, fleet: Fleet):
        said = fleet.board(fleet.settings("half", mqtt_key=None))
        assert said == {"person": "mqtt_cert and mqtt_key are no pair: flash what `hushmote provision` wrote"}


class TestRotation:
    def test_of_ca_serves_old_boards_until_finish(self, own_fleet: Fleet):
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

    def test_of_master_key_counts_reports_under_either_key(self, own_fleet: Fleet, tmp_path: Path):
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
                until(lambda count=count: fleet.counted() == count, f"{board} is counted")
            deliver("waited")
            until(lambda: fleet.counted() == 3, "a report that had waited is counted")
        rotation.finish_master(folder)
        with fleet.aggregator() as aggregator:
            deliver("late")
            until(lambda: aggregator.counters.rejected, "a report under the old key is judged")
            assert dict(aggregator.counters.rejected) == {"bad tag": 1}
        assert fleet.counted() == 3

    def test_of_signing_key_requires_renewed_settings(self, own_fleet: Fleet):
        """The first new key comes from upgrading an older fleet."""
        fleet, path = own_fleet, own_fleet.folder.path / "aggregator/master.key"
        signing = own_fleet.folder.path / "authority/signing.key"
        signing.unlink()
        path.write_text(path.read_text().splitlines()[0] + "\n")
        with pytest.raises(keys.MasterKeyError, match="provision upgrade"), fleet.aggregator():
            pass
        path.write_text(path.read_text() + "signing:" + "11" * 32 + "\n")  # what the board on the table has
        board = fleet.settings("k3f9")
        path.write_text(path.read_text().splitlines()[0] + "\n")
        rotation.upgrade(path, [], signing)
        with fleet.aggregator():
            said = fleet.board(board)
            assert (said["sent"], said["state"]) == (0, "refused")
            rotation.upgrade(path, [board], signing)
            assert fleet.board(board)["sent"] == 1
            until(lambda: fleet.counted() == 1, "its report is counted")

        board = fleet.settings("m4g2")
        rotation.rotate_signing(fleet.folder)
        with fleet.aggregator():
            said = fleet.board(board)
            assert (said["sent"], said["state"]) == (0, "refused")
            after = master_key.load_keys(fleet.folder.master_file())
            rotation.renew(fleet.folder, board, after, now_utc())
            assert fleet.board(board)["sent"] == 1
            until(lambda: fleet.counted() == 2, "its report is counted")
