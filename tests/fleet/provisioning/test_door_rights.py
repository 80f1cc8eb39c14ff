"""The HTTP door's certificate at a real mosquitto with the fleet's files: its rights and its expiry."""

import shutil
from pathlib import Path

import pytest
from boards import experiment, reports
from command_line import hushmote
from doors import open_door
from fleet_broker import FLEET, context, make_fleet, running, visit
from running_aggregator import until

from hushmote.fleet.provisioning import rotation
from hushmote.fleet.provisioning.fleet_folder import DOOR, DOOR_CA, FleetFolder, now_utc

REPORT = reports("k3f9", experiment(), 1)[0]
TOPIC = f"hushmote/v1/{FLEET}"


@pytest.fixture
def folder(tmp_path: Path) -> FleetFolder:
    folder = make_fleet(tmp_path / "fl")
    rotation.put_door(folder, now_utc())
    return folder


def lets_in(folder: FleetFolder, pem: Path) -> bool:
    with visit(folder.fleet.port, context(folder, pem)) as door:
        return door.connected()


def test_door_publishes_for_any_board_and_reads_no_reports(
    folder: FleetFolder,
):
    tls = context(folder, folder.path / DOOR)
    with running(folder) as broker:
        broker.port = folder.fleet.port
        aggregator_pem = folder.path / "aggregator/aggregator_1.pem"
        with visit(folder.fleet.port, context(folder, aggregator_pem)) as aggregator:
            aggregator.subscribe(f"{TOPIC}/report/+")
            aggregator.publish(f"{TOPIC}/experiment/temp", b"{}", retain=True)
            aggregator.publish(f"{TOPIC}/result/temp", b"[]", retain=True)
            with open_door(broker, tls=tls) as door:
                for device in ("k3f9", "m7q2"):
                    assert door.report(device, REPORT, fleet=FLEET).status == 204
                assert door.ask("GET", f"/v1/{FLEET}/experiment").json == ["temp"]
                assert door.ask("GET", f"/v1/{FLEET}/result/temp").json == []
            wanted = [(f"{TOPIC}/report/{device}", REPORT) for device in ("k3f9", "m7q2")]
            until(lambda: aggregator.messages == wanted, lambda: aggregator.messages)
        with visit(folder.fleet.port, tls) as door:
            door.subscribe("#")
            for topic in ("experiment/temp", "result/temp", "status/k3f9"):
                door.publish(f"{TOPIC}/{topic}", b"forged", retain=True)
            assert door.acknowledged == ["Not authorized"] * 3
            door.publish(f"{TOPIC}/report/k3f9", REPORT)
            assert door.acknowledged[3:] == ["Success"]
            door.subscribe(f"{TOPIC}/status/+")  # its response arrives after any readable messages
            assert {topic.split("/")[3] for topic, _ in door.messages} == {"experiment", "result"}


def test_new_certificate_replaces_old_except_during_ca_rotation(
    folder: FleetFolder,
):
    first, second = folder.path / "first.pem", folder.path / "second.pem"
    shutil.copy(folder.path / DOOR, first)
    with running(folder) as broker:
        assert lets_in(folder, first)
        changed = rotation.put_door(folder, now_utc())
        assert "1 older certificate of the door is revoked" in changed.done
        broker.reload()
        assert not lets_in(folder, first)
        assert lets_in(folder, folder.path / DOOR)
        shutil.copy(folder.path / DOOR, second)
        rotation.rotate_ca(folder, now_utc())
        third = (folder.path / DOOR).read_bytes()
        assert third != second.read_bytes()
        for step in ("both", "new"):
            assert (folder.path / DOOR).read_bytes() == third
            assert (folder.path / DOOR_CA).read_bytes() == (folder.path / "aggregator/ca.pem").read_bytes()
            broker.restart()
            until(broker._listens, "the broker restarts")
            assert lets_in(folder, second) == (step == "both")
            assert lets_in(folder, folder.path / DOOR)
            if step == "both":
                rotation.finish_ca(folder, now_utc(), cut_off=False)


def test_command_explains_door_start_and_lists_files(tmp_path: Path):
    make_fleet(tmp_path / "fl")
    output = " ".join(hushmote("provision", "rotate", "door", "--folder", "fl", cwd=tmp_path).split())
    assert "door_1: certificate until 20" in output
    assert "hushmote door` with --broker" in output
    for name in (DOOR, DOOR_CA):
        assert (tmp_path / "fl" / name).stat().st_mode & 0o777 == 0o600
    assert "door_1" in hushmote("provision", "list", "--folder", "fl", cwd=tmp_path)
