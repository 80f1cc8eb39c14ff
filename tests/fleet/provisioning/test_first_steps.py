"""The steps that `provision fleet` prints, run unchanged on one machine up to a revoked board."""

import contextlib
import dataclasses
import os
import pwd
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from boards import MemoryStorage
from fleet_broker import Visitor, context, visit
from fleet_servers import THREE, FleetServers, connect_client
from running_aggregator import HANGS_S, WAIT_S, until

from hushmote.cli.provision.first_steps import first_steps
from hushmote.device import ldp_client, main
from hushmote.fleet.provisioning import authority, fleet_folder, settings
from hushmote.server import private_file
from hushmote.server.service.process import READY
from hushmote.server.store import Store
from hushmote.server.wire import topics
from hushmote.simulator.broker import find_mosquitto, free_port
from hushmote.simulator.nats_servers import find_nats_server

DOCS = Path(__file__).parents[3] / "docs"
EXAMPLE = Path(__file__).parents[3] / "examples" / "room_temp.toml"
ROOT = os.geteuid() == 0


@pytest.fixture
def outside() -> Iterator[Path]:
    """Provide a folder that only its owner may enter, like a home and unlike tmp_path."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def environment(**more: str) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HUSHMOTE_")}
    path = f"{Path(sys.executable).parent}:{clean['PATH']}:/usr/sbin"
    return clean | {"PATH": path, "COLUMNS": "80"} | more


def shell(command: str, cwd: Path) -> str:
    result = subprocess.run(
        ["sh", "-c", command],
        cwd=cwd,
        env=environment(HUSHMOTE_WIFI_PASSWORD="correct horse"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANGS_S,
    )
    assert result.returncode == 0, command + result.stdout + result.stderr
    return result.stdout


@contextlib.contextmanager
def running(command: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a command in a separate terminal and end it as with Ctrl-C."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            ["sh", "-c", "exec " + command],
            cwd=cwd,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(WAIT_S)
            assert process.stdout is not None
            process.stdout.close()


def printed(text: str) -> list[str]:
    """Return the printed commands in order."""
    lines = text[text.index("next") :].replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.startswith("     ")]


def allowed(port: int, tls: ssl.SSLContext, broker: subprocess.Popen) -> bool:
    """Return whether the broker is running and accepts this client."""
    assert broker.poll() is None, "mosquitto ended"
    try:
        with visit(port, tls) as visitor:
            return visitor.connected()
    except OSError:
        return False


def board_of(folder: fleet_folder.FleetFolder, work: Path) -> tuple[settings.DeviceSettings, Path]:
    """Return a folder's only board and its certificate's file."""
    (path,) = (folder.path / "devices").glob("*.settings.json")
    board = settings.load_settings(path)
    assert board.mqtt_cert is not None
    assert board.mqtt_key is not None
    pem = work / "board.pem"
    pem.write_bytes(authority.parse_board_fields(board.mqtt_cert, board.mqtt_key).to_pem())
    return board, pem


def one_report(board: settings.DeviceSettings, experiment: bytes) -> bytes:
    """Return the report of a board with these settings to the retained experiment."""
    slots = MemoryStorage()
    ldp_client.provision(slots, consent=True)
    assert board.key is not None
    assert board.announce_key is not None
    key, announce_key = bytes.fromhex(board.key), bytes.fromhex(board.announce_key)
    client = ldp_client.Client(main.POLICY, slots, board.device_id, key, announce_key, board.fleet)
    name = client.enroll(experiment).name
    report = None
    while report is None:  # its `every` skips most calls
        report = client.report(name, 21.0)
    return report


def reports_and_counts(visitor: Visitor, board: settings.DeviceSettings, store: Path) -> None:
    """Let the board receive the experiment and report; return once the store has counted it."""
    with Store(f"sqlite:///{store}", create=False) as counted:
        (version,) = counted.experiments()
        visitor.subscribe(topics.experiment_topic("home", version.experiment.name))
        until(lambda: visitor.messages, "the experiment arrives")
        report = one_report(board, visitor.messages[0][1])
        visitor.publish(topics.report_topic("home", board.device_id), report)
        until(
            lambda: counted.histogram("home", version.experiment.digest).sum() == 1, "the report is counted"
        )


@pytest.mark.parametrize("elsewhere", [False, pytest.param(True, marks=pytest.mark.long)])
def test_printed_steps_work_and_revoked_board_is_refused(outside: Path, elsewhere: bool):
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    work = outside / "work"
    work.mkdir()
    shutil.copy(EXAMPLE, work)
    make = f"hushmote provision fleet fleet-home --host localhost --set port={free_port()}"
    text = shell(make + (f" --broker-folder {outside}/etc/hushmote" if elsewhere else ""), work)
    first = printed(text)
    assert not any(str(work) in command for command in first if not command.startswith("chmod "))
    folder = fleet_folder.find(work / "fleet-home")
    tls = context(folder, folder.path / "aggregator/aggregator_1.pem")
    commands = iter(first)
    with contextlib.ExitStack() as terminals:
        for command in commands:
            if command.startswith("mosquitto "):
                broker = terminals.enter_context(running(command, work))
                break
            shell(command, work)
        until(lambda: allowed(folder.fleet.port, tls, broker), "mosquitto listens")
        if ROOT:
            user = Path(f"/proc/{broker.pid}").stat().st_uid
            assert pwd.getpwuid(user).pw_name == "mosquitto"
        for _ in ("sign", "add"):
            shell(next(commands), work)
        aggregator = terminals.enter_context(running(next(commands), work))
        assert aggregator.stdout is not None
        assert aggregator.stdout.readline().strip() == READY
        shell(next(commands), work)
        assert next(commands, None) is None
        board, shown = board_of(folder, work)
        (store,) = outside.rglob("*.sqlite")
        with visit(folder.fleet.port, context(folder, shown)) as visitor:
            assert visitor.connected()
            reports_and_counts(visitor, board, store)
        crl = Path(folder.fleet.broker_folder) / "crl.pem"
        before = crl.stat()
        revoke = f"hushmote provision revoke {board.device_id} --folder {folder.path}"
        output = shell(f"{revoke} --store sqlite:///{store}", outside)
        assert "copy broker/ to where the broker has it" in " ".join(output.split())
        if elsewhere:
            shell(first[0], work)
        after = crl.stat()
        assert (after.st_uid, after.st_gid, after.st_mode) == (before.st_uid, before.st_gid, before.st_mode)
        broker.send_signal(signal.SIGHUP)
        until(lambda: not allowed(folder.fleet.port, context(folder, shown), broker), "the board is refused")
        assert allowed(folder.fleet.port, tls, broker)
        assert len(list(outside.rglob("*.sqlite"))) == 1
    # It restarts as well.
    with running(next(c for c in first if c.startswith("mosquitto ")), work) as broker:
        until(lambda: allowed(folder.fleet.port, tls, broker), "mosquitto listens again")
        assert not allowed(folder.fleet.port, context(folder, shown), broker)


@pytest.mark.long
def test_printed_nats_steps_work_and_revoked_board_is_cut_off(outside: Path):
    if find_nats_server() is None:
        pytest.skip("nats-server is not installed")
    work = outside / "work"
    work.mkdir()
    shutil.copy(EXAMPLE, work)
    hosts = " ".join(f"--host {host}" for host in THREE)
    ports = " ".join(
        f"--set {name}port={free_port()}" for name in ("", "aggregator_", "cluster_", "monitor_")
    )
    text = shell(f"hushmote provision fleet fleet-home --broker nats {hosts} {ports}", work)
    *start, sign, add, serve, device = printed(text)
    folder = fleet_folder.find(work / "fleet-home")
    servers = FleetServers(folder)
    with contextlib.ExitStack() as terminals:
        for number, command in enumerate(start, 1):
            servers.adopt(number, terminals.enter_context(running(command, work)))
        for number in (1, 2, 3):
            until(lambda n=number: servers.is_healthy(n), "the servers are healthy")
        shell(sign, work)
        shell(add, work)
        aggregator = terminals.enter_context(running(serve, work))
        assert aggregator.stdout is not None
        assert aggregator.stdout.readline().strip() == READY
        shell(device, work)
        servers.hang_up()
        board, shown = board_of(folder, work)
        assert board.mqtt_host == ",".join(THREE)
        (store,) = outside.rglob("*.sqlite")
        server = 2
        until(lambda: let_in(folder, shown, server), "the board is admitted")
        with connect_client(folder, shown, server=server) as visitor:
            reports_and_counts(visitor, board, store)
            revoke = f"hushmote provision revoke {board.device_id} --folder {folder.path}"
            output = shell(f"{revoke} --store sqlite:///{store}", outside)
            assert "send every nats-server SIGHUP" in " ".join(output.split())
            assert "restart" not in output
            assert visitor.ended is None
            servers.hang_up()
            until(lambda: visitor.ended, "its connection ends")
        until(lambda: not let_in(folder, shown, server), "the board is refused")


def let_in(folder: fleet_folder.FleetFolder, pem: Path, server: int) -> bool:
    try:
        with connect_client(folder, pem, server=server) as visitor:
            return visitor.connected()
    except OSError:
        return False


def test_page_shows_the_printed_commands():
    spec = fleet_folder.FleetSpec(
        "home", ("broker.example", "10.0.0.5"), broker_folder="/srv/fleet-home/broker"
    )
    folder = fleet_folder.FleetFolder(Path("/srv/fleet-home"), spec)
    commands = printed("\n".join(first_steps(folder, in_environment=False)))
    nats = dataclasses.replace(
        spec, hosts=("a.example", "b.example", "c.example"), broker_folder="/etc/nats/hushmote", broker="nats"
    )
    folder = fleet_folder.FleetFolder(Path("/srv/fleet-nats"), nats)
    steps = printed("\n".join(first_steps(folder, in_environment=False)))
    commands += steps[:3] + steps[9:]  # the page shows only the first of three servers
    page = " ".join((DOCS / "identity.md").read_text().replace("\\\n", " ").split())
    for command in commands:
        assert " ".join(command.split()) in page


@pytest.mark.skipif(not ROOT, reason="only root can give files away")
def test_rewrites_keep_broker_files_owner(tmp_path: Path):
    path = tmp_path / "crl.pem"
    private_file.replace(path, b"1")
    assert path.stat().st_mode & 0o777 == 0o600
    os.chown(path, 12345, 23456)
    path.chmod(0o640)
    private_file.replace(path, b"2")
    file_stat = path.stat()
    assert (file_stat.st_uid, file_stat.st_gid, file_stat.st_mode & 0o777) == (12345, 23456, 0o640)
    assert path.read_bytes() == b"2"
    assert [p.name for p in tmp_path.iterdir()] == ["crl.pem"]
