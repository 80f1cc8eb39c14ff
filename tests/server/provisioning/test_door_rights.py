"""The HTTP door's certificate at a real mosquitto on exactly the fleet's files: what it opens, its end."""

import shutil
from pathlib import Path

import pytest
from boards import experiment, reports
from command_line import hushmote
from doors import opened
from fleet_broker import FLEET, context, make_fleet, running, visit
from running import until

from hushmote.server.provisioning import rotation
from hushmote.server.provisioning.fleet_folder import DOOR, DOOR_CA, FleetFolder, now_utc

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


def test_any_boards_report_goes_through_the_door_of_a_provisioned_fleet(folder: FleetFolder):
    tls = context(folder, folder.path / DOOR)
    with running(folder) as broker:
        broker.port = folder.fleet.port
        aggregator_pem = folder.path / "aggregator/aggregator_1.pem"
        with visit(folder.fleet.port, context(folder, aggregator_pem)) as aggregator:
            aggregator.subscribe(f"{TOPIC}/report/+")
            aggregator.publish(f"{TOPIC}/experiment/temp", b"{}", retain=True)
            aggregator.publish(f"{TOPIC}/result/temp", b"[]", retain=True)
            with opened(broker, tls=tls) as door:
                for device in ("k3f9", "m7q2"):
                    assert door.report(device, REPORT, fleet=FLEET).status == 204
                assert door.ask("GET", f"/v1/{FLEET}/experiment").json == ["temp"]
                assert door.ask("GET", f"/v1/{FLEET}/result/temp").json == []
            wanted = [(f"{TOPIC}/report/{device}", REPORT) for device in ("k3f9", "m7q2")]
            until(lambda: aggregator.messages == wanted, lambda: aggregator.messages)


def test_a_door_reads_no_reports_and_asks_and_tells_nothing(folder: FleetFolder):
    with running(folder), visit(folder.fleet.port, context(folder, folder.path / DOOR)) as door:
        door.subscribe("#")
        for topic in ("experiment/temp", "result/temp", "status/k3f9"):
            door.publish(f"{TOPIC}/{topic}", b"forged", retain=True)
        assert door.acknowledged == ["Not authorized"] * 3
        door.publish(f"{TOPIC}/report/k3f9", REPORT)
        assert door.acknowledged[3:] == ["Success"]
        door.subscribe(f"{TOPIC}/status/+")  # its answer comes after what could have been read
        assert door.messages == []


def test_a_new_certificate_ends_the_one_before(folder: FleetFolder):
    before = folder.path / "before.pem"
    shutil.copy(folder.path / DOOR, before)
    with running(folder) as broker:
        assert lets_in(folder, before)
        done = rotation.put_door(folder, now_utc())
        assert "1 older certificates of the door are revoked" in done.done
        broker.reload()
        assert not lets_in(folder, before)
        assert lets_in(folder, folder.path / DOOR)


def test_a_new_authority_gives_the_door_a_new_certificate_and_both_are_trusted_until_the_end(
    folder: FleetFolder,
):
    before = folder.path / "before.pem"
    shutil.copy(folder.path / DOOR, before)
    with running(folder) as broker:
        rotation.rotate_ca(folder, now_utc())
        assert (folder.path / DOOR).read_bytes() != before.read_bytes()
        assert (folder.path / DOOR_CA).read_bytes() == (folder.path / "aggregator/ca.pem").read_bytes()
        broker.restart()
        until(broker._listens, "the broker is back")
        assert lets_in(folder, before)
        assert lets_in(folder, folder.path / DOOR)
        rotation.finish_ca(folder, now_utc(), cut_off=False)
        assert (folder.path / DOOR_CA).read_bytes() == (folder.path / "aggregator/ca.pem").read_bytes()
        broker.restart()
        until(broker._listens, "the broker is back")
        assert not lets_in(folder, before)
        assert lets_in(folder, folder.path / DOOR)


def test_the_command_says_how_the_door_is_started_and_the_list_has_it(tmp_path: Path):
    make_fleet(tmp_path / "fl")
    said = " ".join(hushmote("provision", "rotate", "door", "--folder", "fl", cwd=tmp_path).split())
    assert "door_1: certificate until 20" in said
    assert "hushmote door` with --broker" in said
    for name in (DOOR, DOOR_CA):
        assert (tmp_path / "fl" / name).stat().st_mode & 0o777 == 0o600
    assert "door_1" in hushmote("provision", "list", "--folder", "fl", cwd=tmp_path)
