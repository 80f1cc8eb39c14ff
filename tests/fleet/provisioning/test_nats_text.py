"""NATS servers' configuration matches the plan exactly, for one server or three."""

import datetime
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fleet_broker import FLEET
from fleet_servers import THREE, make_nats_fleet
from refusals import Refusal, refusals
from running_aggregator import HANGS_S

from hushmote.fleet.provisioning import nats as servers_config
from hushmote.fleet.provisioning.fleet_spec import FleetSpec
from hushmote.fleet.provisioning.journal import Credential
from hushmote.server.wire.topics import NameRefused
from hushmote.simulator.nats_servers import find_nats_server

PLAN = FleetSpec(FLEET, ("a.example",), broker_folder="/etc/nats/hushmote", broker="nats")


def test_all_listeners_use_tls_and_monitor_is_local():
    text = servers_config.nats_conf(FleetSpec(FLEET, ("a", "b", "c"), broker_folder="/x", broker="nats"), 2)
    assert text.count("listen: ") == text.count("verify_and_map: true") == text.count("/x/2/ca.pem") == 3
    assert 'http: "127.0.0.1:8222"' in text
    assert text.count("nats-route://") == 3
    assert "no_auth_user" not in text
    conf = servers_config.nats_conf(PLAN, 1)
    assert "cluster" not in conf
    assert conf.count("listen: ") == conf.count("verify_and_map: true") == 2


@pytest.mark.parametrize(
    ("hosts", "listens", "here"),
    [
        (("a.example",), "0.0.0.0", "127.0.0.1"),
        (("10.0.0.5",), "0.0.0.0", "127.0.0.1"),
        (("fd00::5",), "[::]", "[::1]"),
        (("127.0.0.2",), "127.0.0.2", "127.0.0.2"),
    ],
    ids=["name", "IPv4", "IPv6", "loopback"],
)
def test_server_listens_to_others_unless_host_is_loopback(hosts, listens: str, here: str):
    text = servers_config.nats_conf(FleetSpec(FLEET, hosts, broker_folder="/x", broker="nats"), 1)
    assert f'listen: "{listens}:4222"' in text
    assert f'listen: "{listens}:8883"' in text
    assert f'http: "{here}:8222"' in text


def server_text(
    hosts: tuple[str, ...] = ("a",), folder: str = "/x", password_port: int | None = None
) -> Callable[[Path], object]:
    spec = FleetSpec(FLEET, hosts, broker_folder=folder, password_port=password_port, broker="nats")
    return lambda _folder: servers_config.nats_conf(spec, 1)


@refusals(
    *((server_text(hosts), "for one or three servers") for hosts in ((), ("a", "b"), ("a", "b", "c", "d"))),
    (server_text(password_port=8884), "omit password_port"),
    *(
        (server_text(folder=folder), "one line")
        for folder in ('/x"\nno_auth_user: x', "/x\x00", '/x"', "/x\\")
    ),
)
def test_refusal_is_one_line(refusal: Refusal, tmp_path: Path):
    refusal.check(tmp_path)


def test_users_have_only_their_own_rights():
    now = datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC)
    journal = [
        ("k3f9", "device", "a1", "root", None),
        ("gone", "device", "a2", "root", now),
        ("old", "device", "a3", "removed root", None),
        ("login", "device", None, "root", None),
        ("aggregator_1", "aggregator", "b1", "root", None),
        ("aggregator_1", "aggregator", "b2", "root", now),
        ("aggregator_2", "aggregator", "b3", "root", None),  # not in the specification
        ("door_1", "door", "c1", "root", None),
        ("door_1", "door", "c2", "root", now),
    ]
    credentials = [Credential(*entry[:4], until=now, revoked=entry[4]) for entry in journal]
    text = servers_config.users_conf(FleetSpec("home", ("a",), broker="nats"), credentials, ["root"])
    line = r'^\{user: "urn:hushmote:(\w+:\w+)", allowed_connection_types: (\S.*\]), permissions: (.*)\}$'
    users = {user: (types, rights) for user, types, rights in re.findall(line, text, re.M)}
    topics = "hushmote.v1.home"
    board = f'publish: ["{topics}.report.k3f9", "{topics}.status.k3f9"], subscribe: $BOARD_READS'
    reads = f'["{topics}.experiment.*", "{topics}.proof.*", "{topics}.result.*", "$MQTT.sub.>"]'
    assert users == {
        "k3f9:a1": ("[MQTT]", f"{{{board}}}"),
        "aggregator_1:b1": ("[STANDARD, MQTT]", "$AGGREGATOR"),
        "aggregator_1:b2": ("[WEBSOCKET]", "$AGGREGATOR"),
        "door_1:c1": ("[MQTT]", f'{{publish: ["{topics}.report.*"], subscribe: {reads}}}'),
    }
    assert text.count("user: ") == len(users)


@pytest.mark.parametrize("name", ["home.>", "*", "home/#", 'home"'])
def test_fleet_name_cannot_widen_rights(name: str):
    with pytest.raises(NameRefused):
        servers_config.users_conf(FleetSpec(name, ("a",), broker="nats"), (), ())
    with pytest.raises(NameRefused):
        servers_config.nats_conf(FleetSpec(name, ("a",), broker_folder="/x", broker="nats"), 1)


def test_aggregator_names_must_not_be_possible_board_names():
    with pytest.raises(ValueError, match="aggregator_1"):
        servers_config.users_conf(FleetSpec(FLEET, ("a",), aggregators=("k3f9",), broker="nats"), (), ())


@pytest.mark.long
def test_server_accepts_folder_with_spaces(tmp_path: Path):
    program = find_nats_server()
    if program is None:
        pytest.skip("nats-server is not installed")
    folder = make_nats_fleet(tmp_path / "a folder", THREE)
    for number in (1, 2, 3):
        config = folder.path / f"broker/{number}/nats.conf"
        subprocess.run([program, "-t", "-c", str(config)], check=True, timeout=HANGS_S, capture_output=True)
