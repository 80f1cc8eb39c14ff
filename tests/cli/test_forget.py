"""`hushmote provision forget` removes a device's id everywhere except on the board."""

import contextlib
import json
import shutil
import signal
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from boards import ask_fleet, experiment, reports
from command_line import hushmote
from fleet_broker import FLEET, FleetBroker, context, make_fleet, running, visit
from fleet_servers import connect_client, make_nats_fleet, serving
from running_aggregator import until
from serve_process import served

from hushmote.cli.provision import forget as command
from hushmote.fleet.provisioning.fleet_folder import FleetFolder, find, now_utc
from hushmote.fleet.provisioning.master_key import load_keys
from hushmote.server.ingest import pipeline as ingest
from hushmote.server.service.audit_log import audit_log
from hushmote.server.store import Store
from hushmote.server.store.erase import queued_erasures
from hushmote.server.wire import keys, topics

DEVICE, OTHER = "gone-0123456789abcdef", "stays-0123456789abcdef"
STATUS = f"hushmote/v1/{FLEET}/status"
TEMP = experiment()


def pem_of(folder: FleetFolder, device: str) -> Path:
    """Provision a device in its own part of the folder and return its certificate."""
    pem = folder.path / f"devices/{device}.pem"
    if not pem.exists():
        hushmote("provision", "device", device, "--folder", str(folder.path), cwd=folder.path)
        hushmote("provision", "device", device, "--folder", ".", "--for", "c", cwd=folder.path)
        pem.write_bytes(folder.issue_device(device, now_utc()).to_pem())
    return pem


def fill(store_url: str, folder: FleetFolder, *devices: str) -> None:
    """Count three reports of each device in the fleet's store."""
    fleet_keys = load_keys(folder.master_file())
    assert fleet_keys is not None
    with Store(store_url) as store:
        ask_fleet(store, FLEET, TEMP, keyed=True)
        for device in devices:
            key = keys.device_key(fleet_keys.masters[0], FLEET, device)
            sent = [(topics.report_topic(FLEET, device), r) for r in reports(device, TEMP, 3, key=key)]
            assert ingest.ingest(store, sent, ingest.fleets(store, fleet_keys), now_utc()).accepted == 3


def forget(
    folder: FleetFolder,
    store_url: str,
    *more: str,
    device: str = DEVICE,
    expect: int = 0,
    writes: bool = False,
) -> str:
    words = ("provision", "forget", device, "--folder", str(folder.path), "--store", store_url, "--yes")
    return " ".join(hushmote(*words, *more, cwd=folder.path, expect=expect, writes=writes).split())


def retained(folder: FleetFolder, tls: ssl.SSLContext) -> dict[str, bytes]:
    """Return every retained status, after checking that OTHER's is among them."""
    port = folder.fleet.port
    with visit(port, tls) as aggregator:
        assert aggregator.connected()
        aggregator.subscribe(f"{STATUS}/+")
        until(lambda: f"{STATUS}/{OTHER}" in dict(aggregator.messages), "the other board's status")
        # Retained messages arrive in any order, but those of a later subscription arrive last.
        aggregator.subscribe(f"{STATUS}/{OTHER}")
        until(
            lambda: [t for t, _ in aggregator.messages].count(f"{STATUS}/{OTHER}") == 2,
            "the other board's status again",
        )
        return dict(aggregator.messages)


def traces(folder: FleetFolder) -> list[str]:
    """Return the files in a fleet's folder that name DEVICE, except the broker's."""
    files = [path for path in folder.path.rglob("*") if path.is_file() and "data" not in path.parts]
    named = [path for path in files if DEVICE in path.name or DEVICE.encode() in path.read_bytes()]
    return [str(path.relative_to(folder.path)) for path in named if path.name != "log"]


def audit_lines(store_url: str) -> str:
    """Return the audit log next to an SQLite store."""
    path = audit_log(store_url).path
    return path.read_text() if path else ""


@pytest.fixture
def folder(tmp_path: Path) -> FleetFolder:
    folder = make_fleet(tmp_path / "fleet")
    for device in (DEVICE, OTHER):
        pem_of(folder, device)
    return folder


@pytest.fixture
def broker(folder: FleetFolder):
    with running(folder) as broker:
        yield broker


@contextlib.contextmanager
def boards(folder: FleetFolder):
    """Connect both boards with their retained status, and yield the board to forget."""
    will = (f"{STATUS}/{DEVICE}", b"offline")
    port = folder.fleet.port
    with (
        visit(port, context(folder, pem_of(folder, OTHER))) as other,
        visit(port, context(folder, pem_of(folder, DEVICE)), will=will) as gone,
    ):
        for device, board in ((OTHER, other), (DEVICE, gone)):
            assert board.connected()
            board.publish(f"{STATUS}/{device}", b"online", retain=True)
        yield gone


def aggregator(folder: FleetFolder) -> ssl.SSLContext:
    return context(folder, folder.path / "aggregator/aggregator_1.pem")


def is_let_in(folder: FleetFolder, pem: Path) -> bool:
    with contextlib.suppress(OSError), visit(folder.fleet.port, context(folder, pem)) as visitor:
        return visitor.connected()
    return False


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
class TestConsent:
    def test_asks_first(self, folder: FleetFolder, store_url: str):
        fill(store_url, folder, DEVICE)
        before = traces(folder)
        words = ("provision", "forget", DEVICE, "--folder", ".", "--store", store_url)
        assert "cannot ask without a terminal, so nothing was forgotten; add --yes" in hushmote(
            *words, cwd=folder.path, expect=1
        )
        assert traces(folder) == before

    def test_changes_nothing_without_an_audit_log(self, folder: FleetFolder, store_url: str):
        fill(store_url, folder, DEVICE)
        words = ("provision", "forget", DEVICE, "--folder", ".", "--store", store_url, "--yes")
        nowhere = {"HUSHMOTE_AUDIT_LOG": "none/audit.jsonl"}
        message = hushmote(*words, cwd=folder.path, expect=1, environment=nowhere)
        assert "cannot write the audit log none/audit.jsonl" in message
        with Store(store_url) as store:
            assert store.participation(FLEET)[TEMP.name].reports == 3
            assert store.revoked_devices(FLEET) == set()

    def test_only_folder_names_command_for_store(
        self, folder: FleetFolder, broker: FleetBroker, store_url: str
    ):
        output = forget(folder, store_url, "--only-folder")
        assert f"`hushmote store erase --device {DEVICE}` at the store" in output
        assert traces(folder) == []


class TestAllPlaces:
    def test_no_id_remains(self, folder: FleetFolder, broker: FleetBroker, store_url: str):
        fill(store_url, folder, DEVICE, OTHER)
        assert len(traces(folder)) == 4
        stolen = pem_of(folder, DEVICE).read_bytes()
        with boards(folder) as gone:
            assert retained(folder, aggregator(folder)).keys() == {f"{STATUS}/{d}" for d in (DEVICE, OTHER)}
            output = forget(folder, store_url)
            until(lambda: gone.ended, "its connection ends")
        assert output.startswith("store: report numbers of 3 reports erased ")
        assert "folder: 2 credentials revoked, 3 files deleted" in output
        assert "broker: reloaded, the device's connection ended, its status cleared" in output
        assert "a histogram does not contain device ids" in output
        assert traces(folder) == []
        assert DEVICE not in audit_lines(store_url)
        assert retained(folder, aggregator(folder)).keys() == {f"{STATUS}/{OTHER}"}
        with Store(store_url) as store:
            assert store.known_devices(FLEET, [DEVICE, OTHER]) == {OTHER}
            assert store.participation(FLEET)[TEMP.name].reports == 6
        (folder.path / "stolen.pem").write_bytes(stolen)
        assert not is_let_in(folder, folder.path / "stolen.pem")
        assert is_let_in(folder, pem_of(folder, OTHER))
        # It stays locked out even after the next rotation.
        hushmote("provision", "rotate", "broker", "--folder", ".", cwd=folder.path)
        broker.reload()
        assert not is_let_in(folder, folder.path / "stolen.pem")

    def test_can_be_repeated(self, folder: FleetFolder, broker: FleetBroker, store_url: str):
        fill(store_url, folder, DEVICE)
        for _ in range(2):
            forget(folder, store_url)
            assert traces(folder) == []
        assert "device never is unknown; correct the id" in forget(
            folder, store_url, device="never", expect=1
        )

    def test_old_reports_do_not_count_again(self, folder: FleetFolder, broker: FleetBroker, store_url: str):
        fill(store_url, folder, DEVICE)
        forget(folder, store_url)
        fleet_keys = load_keys(folder.master_file())
        assert fleet_keys is not None
        key = keys.device_key(fleet_keys.masters[0], FLEET, DEVICE)
        sent = [(topics.report_topic(FLEET, DEVICE), r) for r in reports(DEVICE, TEMP, 4, key=key)]
        with Store(store_url) as store:
            assert ingest.ingest(store, sent, ingest.fleets(store, fleet_keys), now_utc()).accepted == 0


STEPS = ("_forget_in_store", "_forget_at_broker", "clear_status", "_print")
METHODS = ("revoke", "delete_files", "issue_stand_in", "put_revocations", "forget")


class TestInterruption:
    @pytest.mark.parametrize("step", [*STEPS, *METHODS])
    @pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
    @pytest.mark.parametrize("after", [False, True])
    def test_second_run_finishes(
        self, folder: FleetFolder, broker: FleetBroker, store_url: str, monkeypatch, step: str, after: bool
    ):
        fill(store_url, folder, DEVICE)
        place = command if step in STEPS else FleetFolder
        real = getattr(place, step)

        def die(*arguments: object, **more: object) -> None:
            if after:
                real(*arguments, **more)
            raise KeyboardInterrupt

        with boards(folder), monkeypatch.context() as patch:
            patch.setattr(place, step, die)
            forget(folder, store_url, expect=130)
        forget(folder, store_url)
        assert traces(folder) == []
        with boards_of_other(folder):
            assert retained(folder, aggregator(folder)).keys() == {f"{STATUS}/{OTHER}"}
        with Store(store_url) as store:
            assert store.known_devices(FLEET, [DEVICE]) == set()
        assert len(find(folder.path).journal().credentials) >= 5


@contextlib.contextmanager
def boards_of_other(folder: FleetFolder):
    with visit(folder.fleet.port, context(folder, pem_of(folder, OTHER))) as other:
        assert other.connected()
        other.publish(f"{STATUS}/{OTHER}", b"online", retain=True)
        yield other


class TestUnreachablePlace:
    @pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
    def test_broker_is_away(self, folder: FleetFolder, store_url: str):
        fill(store_url, folder, DEVICE)
        message = forget(folder, store_url, expect=1, writes=True)
        assert "is not forgotten yet: its status may still be retained: no broker at localhost" in message
        assert "then run the same command again" in message
        assert traces(folder) == ["authority/issued.jsonl"]
        with running(folder):
            forget(folder, store_url)
        assert traces(folder) == []

    @pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
    def test_store_in_use_queues_erasure(self, folder: FleetFolder, broker: FleetBroker, store_url: str):
        fill(store_url, folder, DEVICE)
        options = ("--store", store_url, "--broker", folder.path / "aggregator/aggregator_1.toml")
        with served(*options, "--master-key", folder.path / "aggregator/master.key") as process:
            process.ready()
            process.process.send_signal(signal.SIGSTOP)
            output = forget(folder, store_url)
            assert (
                "store: erasing report numbers of 3 reports is queued, because the store is in use" in output
            )
            assert "a running aggregator erases them within seconds" in output
            process.process.send_signal(signal.SIGCONT)
            until(lambda: "files were rewritten" in process.log(), process.log)
            assert process.end() == 0
        assert DEVICE not in process.log() + audit_lines(store_url)
        with Store(store_url) as store:
            assert store.known_devices(FLEET, [DEVICE]) == set()
            assert queued_erasures(store) == []
        assert json.loads(forget(folder, store_url, "--json"))["failure"] == ""

    def test_database_role_may_not_erase(
        self, folder: FleetFolder, broker: FleetBroker, postgres, postgres_url: str
    ):
        fill(postgres_url, folder, DEVICE)
        database = postgres_url.rsplit("/", 1)[1]
        for statement in (
            "DROP ROLE IF EXISTS helpdesk",
            "CREATE ROLE helpdesk LOGIN",
        ):
            postgres.execute(statement)
        grants = (
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO helpdesk",
            "GRANT INSERT, UPDATE ON device TO helpdesk",
            "GRANT INSERT ON erasure TO helpdesk",
        )
        for statement in grants:
            postgres.execute(statement, database)
        output = forget(folder, postgres.url(database, "helpdesk"))
        assert "is queued, because this failed: " in output
        with Store(postgres_url) as store:
            assert queued_erasures(store) == [(FLEET, DEVICE)]
        assert "store: report numbers of 3 reports erased" in forget(folder, postgres_url)
        postgres.execute("DROP OWNED BY helpdesk", database)
        postgres.execute("DROP ROLE helpdesk")

    @pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
    def test_broker_reads_copy_of_folder(self, folder: FleetFolder, tmp_path: Path, store_url: str):
        fill(store_url, folder, DEVICE)
        copy = tmp_path / "copy"
        folder.put_fleet(replace(folder.fleet, broker_folder=str(copy)))
        shutil.move(folder.path / "broker", copy)
        (folder.path / "broker").symlink_to(copy)
        with running(folder) as broker:
            (folder.path / "broker").unlink()
            shutil.copytree(copy, folder.path / "broker")
            before = broker.log()
            output = forget(folder, store_url)
            assert broker.log() == before
        assert "broker: the device's connection ended, its status cleared" in output
        assert "copy broker/ to where the broker has it" in output
        assert "then run the same command again, because until then the board can connect" in output


class TestNats:
    @pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
    def test_no_id_remains(self, tmp_path: Path, store_url: str):
        folder = make_nats_fleet(tmp_path / "fleet")
        gone, other = pem_of(folder, DEVICE), pem_of(folder, OTHER)
        fill(store_url, folder, DEVICE)
        with serving(folder), connect_client(folder, gone) as board, connect_client(folder, other) as stays:
            for device, visitor in ((DEVICE, board), (OTHER, stays)):
                assert visitor.connected()
                visitor.publish(f"{STATUS}/{device}", b"online", retain=True)
            output = forget(folder, store_url)
            assert "broker: reloaded; it ends the device's connections and drops its status" in output
            until(lambda: board.ended, "its connection ends")
            with connect_client(folder, folder.path / "aggregator/aggregator_1.pem") as reader:
                assert reader.connected()
                reader.subscribe(f"{STATUS}/+")
                until(lambda: reader.messages, "a status")
                assert reader.messages == [(f"{STATUS}/{OTHER}", b"online")]
        assert traces(folder) == []
