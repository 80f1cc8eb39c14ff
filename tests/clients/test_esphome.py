"""The ESPHome component: host firmware with a real broker, a real aggregator and a Home Assistant user."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest
import reference_board as ref
import reference_log
from boards import FLEET_KEYS, MASTER, SIGNING
from command_line import hushmote
from esphome_host import COMPONENTS, Device, build, esphome, needs_esphome, needs_esphome_build
from experiments import experiment_json
from paho.mqtt.enums import CallbackAPIVersion
from running_aggregator import until
from serve_process import served
from traffic import publish

from hushmote.device.ldp_client import Experiment
from hushmote.fleet.provisioning.master_key import to_text
from hushmote.server.store import Store
from hushmote.server.wire.keys import device_key, sign_experiment
from hushmote.simulator.broker import MosquittoBroker, free_port

pytestmark = needs_esphome
ROOT = Path(__file__).parents[2]
CLIENTS_C = ROOT / "clients" / "c"
KEYS = ("a" * 128, "b" * 128)
REPORTS = 6
NUMBER = {"type": "number", "low": 0, "high": 40_000, "bins": 16}
FIRMWARE = {"group": "firmware", "groups": ["2.3.1", "2.4.0"]}
PAIR = [NUMBER | {"name": "room", "bins": 4}, {"name": "door", "type": "bool"}]
# Readings, and the experiments' fields. At ε = 16, two of six reports are lies with probability below 1e-10.
READINGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "room_temp": (21.4, NUMBER),
    "door": (True, {"type": "bool"} | FIRMWARE),
    "mode": ("eco", {"type": "choice", "labels": ["away", "eco"]} | FIRMWARE),
    "firmware": ("eco", {"type": "text", "salt": "s", "slots": 16}),
    "both": ((21.4, True), {"type": "pair", "of": PAIR}),
}
YAML = """
esphome: {{name: {name}{project}}}
host:
logger: {{level: INFO}}
api: {{port: {api_port}}}
external_components:
  - source: {components}
sensor:
  - {{platform: template, name: Room, id: room, lambda: "return 21.4;", update_interval: 1s}}
switch:
  - {{platform: template, name: Hold, id: hold, optimistic: true, restore_mode: {hold}}}
  - {{platform: template, name: Mark, optimistic: true}}
text_sensor:
  - {{platform: template, id: mode, lambda: 'return {{"eco"}};', update_interval: 1s}}
  - {{platform: template, id: earlier, lambda: 'return {{"2.3.1"}};', update_interval: 1s}}
binary_sensor:
  - {{platform: template, id: door, lambda: "return true;"}}
  - {{platform: template, name: Button, id: held, lambda: "return id(hold).state;"}}
hushmote:
  identity: {identity}
  policy: {{sum: {sum}, epsilon: 16, rules: count, groups: {groups}, consent_from: {consent_from}}}
  experiments:
    - {{name: room_temp, reading: {reading}, interval: 1s, budget_left: {{name: Left}}}}
    - name: door
      reading: door
      interval: 1s
      group: earlier
      on_reading: {{logger.log: {{level: INFO, format: the door was read}}}}
    - {{name: mode, reading: mode, interval: 1s}}
    - {{name: firmware, reading: mode, interval: 1s}}
    - {{name: both, reading: [room, door], interval: 1s}}
  takes_part: {{name: Takes part}}
  provision: {{name: Provision}}
  last_report: {{name: Last}}
  show: {{name: Show}}
  yes_button: held
  delay: 0s
"""


def write(folder: Path, port: int, name: str = "desk", **changes: object) -> int:
    """Write a device's identity and YAML for a broker on a port; return its API port."""
    (folder / "master.key").write_text(to_text(FLEET_KEYS))
    (folder / "master.key").chmod(0o600)
    device = f"provision device {name} --for esphome --fleet home --master-key master.key"
    hushmote(*device.split(), "--broker", f"mqtt://127.0.0.1:{port}", cwd=folder)
    values = {"name": name, "api_port": free_port(), "components": COMPONENTS, "reading": "room"}
    values |= {"groups": "firmware", "project": ', project: {name: me.desk, version: "2.4.0"}'}
    values["identity"] = f"!include {name}.esphome.yaml"
    values |= {"hold": "ALWAYS_OFF", "consent_from": "network", "sum": 16 * REPORTS * len(READINGS)} | changes
    (folder / f"{name}.yaml").write_text(YAML.format(**values))
    return int(str(values["api_port"]))


def payload_of(name: str, cap: int) -> bytes:
    budget = {"rule": "count", "cap": cap}
    return experiment_json(name=name, mechanism="grr", epsilon=16_000_000, budget=budget, **READINGS[name][1])


@contextlib.contextmanager
def run_aggregator(folder: Path, broker: MosquittoBroker, *payloads: bytes) -> Iterator[Store]:
    url = f"sqlite:///{folder}/store.sqlite"
    with Store(url) as store:
        store.add_fleet("home", keyed=True)
        for payload in payloads:
            store.add_experiment("home", payload)
        where = ("--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}")
        with served(*where, "--master-key", folder / "master.key") as process:
            process.ready()
            yield store
            assert process.end() == 0


@contextlib.contextmanager
def collect_messages(broker: MosquittoBroker) -> Iterator[list[tuple[str, int, bytes, int | None]]]:
    """Collect the devices' messages as (topic, report number or 0, digest, group's index)."""
    messages: list[tuple[str, int, bytes, int | None]] = []

    def take(_client: object, _userdata: object, message: paho.MQTTMessage) -> None:
        payload = message.payload
        number = int.from_bytes(payload[5:9], "big") if "/report/" in message.topic else 0
        group = payload[9] if number and payload[0] & 2 else None
        messages.append((message.topic, number, bytes(payload[1:5]), group))

    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_message = take
    client.connect(broker.host, broker.port)
    client.subscribe([(f"hushmote/v1/home/{kind}/+", 1) for kind in ("report", "status")])
    client.loop_start()
    try:
        yield messages
    finally:
        client.disconnect()
        client.loop_stop()


def last_number(device: Device) -> int:
    return int(device.last("Last").split()[1].rstrip(":"))


def exported(device: Device) -> dict[str, Any]:
    """Return the JSON that the button "show" logs in pieces, or {} if not all of it has been logged."""
    text = "".join(re.findall(r"JSON: ([^\n\x1b]*)", device.log()))
    with contextlib.suppress(json.JSONDecodeError):
        return json.loads(text)
    return {}


def make_ledger(device: Device) -> None:
    """Press the button in Home Assistant while the board's button is held."""
    device.turn("Hold", True)
    device.wait("Button", True)
    device.press("Provision")
    device.wait_for_states("Room", 1)
    device.turn("Hold", False)
    device.wait("Button", False)


def numbers(store: Store, device: str) -> set[int]:
    """Return the numbers of the device's counted reports."""
    return {
        n
        for name, _, seen in store.accepted_numbers("home")
        if name == device
        for n in range(1, 99)
        if n in seen
    }


@needs_esphome_build
def test_host_firmware_reports_after_opt_in_until_budget_ends(tmp_path: Path):
    named = {name: payload_of(name, REPORTS) for name in READINGS}
    experiments = list(named.values())
    with MosquittoBroker() as broker:
        api_port = write(tmp_path, broker.port)
        firmware, flash = build(tmp_path, "desk"), tmp_path / "flash"
        with run_aggregator(tmp_path, broker, *experiments) as store, collect_messages(broker) as messages:
            with Device(firmware, flash, api_port) as device:
                device.turn("Takes part", True)  # rejected without a ledger
                device.wait_for_states("Room", 3)
                assert "yes: " in device.log()
                assert device.last("Takes part") is False
                device.press("Provision")  # nobody holds the button on the board
                device.wait_for_states("Room", 2)
                assert "hold the board's button" in device.log()
                make_ledger(device)
                device.wait_for_states("Room", 3)
                assert messages == []  # it does not connect before an opt-in
                device.turn("Takes part", True)
                device.wait("Takes part", True)
                spent = [True] * len(READINGS)
                until(
                    lambda: [REPORTS in seen for *_, seen in store.accepted_numbers("home")] == spent,
                    device.log,
                )
                device.wait("Left", 0)
                device.wait_for_states("Room", 3)
                assert "Reports may contain the firmware unprotected: 2.4.0" in device.log()
                assert "the door was read" in device.log()
                name, number, words = device.last("Last").split(" ", 2)
                assert (number, words[:5]) == (f"{REPORTS}:", "code ")
                assert f"Report {REPORTS} of {name}: {words}" in device.log()
                device.press("Show")
                until(lambda: exported(device), device.log)
                assert "room_temp: one of " in device.log()
                assert "Sent or waiting: " in device.log()
                state = exported(device)
                lines = {line["reports"] for line in state["experiments"].values()}
                assert (state["consent"], lines, len(state["last"])) == (True, {REPORTS}, 8)
                for payload, (reading, _) in zip(experiments, READINGS.values(), strict=True):
                    experiment = Experiment.parse(payload)
                    counts = store.histogram("home", experiment.digest)
                    assert counts.sum() == REPORTS
                    assert counts[experiment.bucket(reading)] >= REPORTS - 1, experiment.name
            with Device(firmware, flash, api_port) as device:
                device.wait("Left", 0)
                make_ledger(device)  # the existing ledger is kept
                device.wait_for_states("Room", 4)
                assert device.last("Left") == 0
                assert device.last("Takes part") is True
                assert not device.last("Last")
        made = [(number, digest, group) for topic, number, digest, group in messages if "/report/" in topic]
        groups = {"door": 0, "mode": 1}  # the version in the reading's period; the project's version
        digests = {Experiment.parse(payload).digest: groups.get(name) for name, payload in named.items()}
        assert {digest: group for _, digest, group in made} == digests
        reports = sorted(number for number, _, _ in made)
        assert reports == sorted([*range(1, REPORTS + 1)] * len(READINGS))


@needs_esphome_build
def test_takes_part_only_in_what_a_log_has(tmp_path: Path):
    private = [5**80 + i for i in range(3)]
    digits = ", ".join(f"'{ref.public_key(key).hex().upper()}'" for key in private)
    log = f"{{origin: example.org/questions, need: 2, keys: [{digits}]}}"
    topic = "hushmote/v1/home/experiment/{}"
    messages = {name: (topic.format(name), payload_of(name, REPORTS)) for name in ("room_temp", "door")}
    signed = {name: sign_experiment(SIGNING, *message, 1) for name, message in messages.items()}
    proof = reference_log.proof_of(
        "example.org/questions", private, (0, 1, 2), topic.format("door"), signed["door"], 5, 9
    )
    retained = [(topic.format(name), payload) for name, payload in signed.items()]
    with MosquittoBroker() as broker:
        api_port = write(tmp_path, broker.port, consent_from=f"network, log: {log}")
        publish(broker, [*retained, ("hushmote/v1/home/proof/door", proof)], retain=True)
        firmware = build(tmp_path, "desk")
        with (
            collect_messages(broker) as seen,
            Device(firmware, tmp_path / "flash", api_port) as device,
        ):
            make_ledger(device)
            device.turn("Takes part", True)
            until(lambda: sum("/report/" in message[0] for message in seen) == REPORTS, device.log)
            digests = {message[2] for message in seen if "/report/" in message[0]}
            assert digests == {Experiment.parse(messages["door"][1]).digest}
            assert "alike, checked by 2 of 2 witnesses of the log example.org/questions" in device.log()


@needs_esphome_build
def test_one_firmware_runs_as_every_device_of_a_batch(tmp_path: Path):
    with MosquittoBroker() as broker:
        api_port = write(tmp_path, broker.port, "any", identity="nvs")
        url, out = f"mqtt://127.0.0.1:{broker.port}", tmp_path / "line1"
        keys = ("--master-key", "master.key", "--broker", url)
        batch = ("provision", "devices", "--count", "2", "--for", "page", "--first", "b-1", "--out", "line1")
        hushmote(*batch, *keys, cwd=tmp_path)
        firmware = build(tmp_path, "any")
        with run_aggregator(tmp_path, broker, payload_of("door", REPORTS)) as store:
            for name in ("b-1", "b-2"):
                (tmp_path / name).mkdir()
                (tmp_path / name / "identity.bin").write_bytes((out / f"{name}.page.bin").read_bytes())
                with Device(firmware, tmp_path / name, api_port) as device:
                    make_ledger(device)
                    device.turn("Takes part", True)
                    until(lambda name=name: max(numbers(store, name), default=0) == REPORTS, device.log)
        (tmp_path / "b-2" / "identity.bin").write_bytes(b"\xff" * 4096)
        with Device(firmware, tmp_path / "b-2", api_port) as device:
            until(lambda: "no identity: flash this board's page or NVS image" in device.log(), device.log)
            device.turn("Takes part", True)
            device.press("Provision")
            device.wait_for_states("Room", 2)


@needs_esphome_build
def test_only_button_opts_in_and_opt_out_drops_unsent_reports(tmp_path: Path):
    with MosquittoBroker() as broker:
        stuck = {"hold": "ALWAYS_ON"}  # held from power-up until it is released
        api_port = write(tmp_path, broker.port, "hall", consent_from="board", sum=16 * 20, **stuck)
        firmware = build(tmp_path, "hall")
        with (
            run_aggregator(tmp_path, broker, payload_of("room_temp", 99)) as store,
            Device(firmware, tmp_path / "flash", api_port) as device,
        ):
            device.wait_for_states("Room", 1)
            make_ledger(device)
            device.turn("Takes part", True)
            device.wait_for_states("Room", 2)
            assert device.last("Takes part") is False
            device.wait_for_states("Room", 5)
            assert device.last("Takes part") is False  # it was never pressed
            device.turn("Hold", False)
            device.wait("Button", False)
            device.turn("Hold", True)
            device.wait("Takes part", True)
            device.wait_for_states("Room", 4)
            assert device.last("Takes part") is True  # once for each press
            device.turn("Hold", False)
            until(lambda: numbers(store, "hall"), device.log)
            broker.terminate()
            device.turn("Mark", True)
            device.wait("Mark", True)  # all states that were made earlier have now arrived
            before = last_number(device)
            until(lambda: last_number(device) == before + 1, device.log)  # made while the broker is down
            device.turn("Takes part", False)
            device.wait("Takes part", False)
            dropped = last_number(device)
            broker.start()
            device.turn("Takes part", True)
            device.wait_for_states("Room", 3)
            assert device.last("Takes part") is False
            device.turn("Hold", True)
            device.wait("Takes part", True)
            until(lambda: 20 in numbers(store, "hall"), device.log)
            device.wait("Left", 0)
        assert not numbers(store, "hall") & set(range(before + 1, dropped + 1))
        assert numbers(store, "hall") >= set(range(dropped + 1, 21))


@needs_esphome_build
def test_component_compiles_for_esp32(tmp_path: Path):
    """Compile with ESPHome's host headers and the port's ESP-IDF model headers."""
    write(tmp_path, 1883)
    esphome("compile", "--only-generate", "desk.yaml", folder=tmp_path)
    sources = tmp_path / ".esphome" / "build" / "desk" / "src"
    for name in ("hushmote_component.cpp", "hushmote_component.h"):
        text = (sources / "esphome" / "components" / "hushmote" / name).read_text()
        (tmp_path / name).write_text(text.replace("USE_HOST", "USE_POSIX"))
    paths = [tmp_path, sources, CLIENTS_C, CLIENTS_C / "idf", ROOT / "rigs" / "idf_model"]
    command = ["g++", "-std=gnu++20", "-Wall", "-fsyntax-only", *(f"-I{path}" for path in paths)]
    done = subprocess.run(
        [*command, "-DUSE_HOST", tmp_path / "hushmote_component.cpp"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sum": 0.5}, "sum does not allow even one report of epsilon"),
        ({"reading": "hold"}, "hold must be a sensor, a binary_sensor or a text_sensor"),
        ({"reading": "[room, room, room, room]"}, "length of value must be at most 3"),
        ({"consent_from": "anyone"}, "Unknown value 'anyone'"),
        ({"consent_from": "network, ask: each"}, "this component asks once for all experiments"),
        ({"project": ""}, "write firmware: VALUE or set the version of project:"),
        ({"groups": "[firmware, model]"}, "group model has no value: write model: VALUE"),
        ({"groups": "{firmware: 2.4}"}, "Must be string"),
        ({"groups": "{firmware: '2.4\"'}"}, "must be a text of 1 to 32 bytes"),
        ({"identity": "flash"}, "expected a dictionary"),
        ({"groups": "Firmware"}, "must be 1 to 32 of a-z, 0-9, _ and -"),
        ({"consent_from": f"network, log: {{origin: a, keys: [{KEYS[0]}], need: 1}}"}, "at least 2"),
        (
            {"consent_from": f"network, log: {{origin: a, keys: [{KEYS[0]}, {KEYS[0]}], need: 1}}"},
            "two keys start with the same 8 digits",
        ),
        (
            {"consent_from": f"network, log: {{origin: a, keys: [{', '.join(KEYS)}], need: 2}}"},
            "at least 1 of 1",
        ),
        (
            {"consent_from": f"network, log: {{origin: a, keys: [{', '.join(KEYS)}, {'c' * 128}], need: 1}}"},
            "more than half of the witnesses",
        ),
        (
            {"consent_from": f"network, log: {{origin: a b, keys: [{', '.join(KEYS)}], need: 1}}"},
            "the log's name",
        ),
    ],
    ids=[
        *("sum", "reading", "four readings", "consent_from", "ask"),
        *("no version", "no value", "number as value", "quote in value", "identity", "name of group"),
        *("one key", "same key", "need", "half", "origin"),
    ],
)
def test_reports_yaml_errors_before_build(tmp_path: Path, changes: dict, message: str):
    write(tmp_path, 1883, **changes)
    printed = esphome("config", "desk.yaml", folder=tmp_path, status=2)
    assert message in printed
    assert device_key(MASTER, "home", "desk").hex() not in printed


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("key: '00'", "must be 64 hex digits"),
        ("broker: a,b", "the host platform is for tests"),
        ("announce_key: '00'", "must be 128 hex digits"),
    ],
)
def test_reports_invalid_identity_before_build(tmp_path: Path, broken: str, message: str):
    write(tmp_path, 1883)
    identity = tmp_path / "desk.esphome.yaml"
    field = broken.split(":")[0]
    lines = [line for line in identity.read_text().splitlines() if not line.startswith(f"{field}:")]
    identity.write_text("\n".join([*lines, broken]))
    printed = esphome("config", "desk.yaml", folder=tmp_path, status=2)
    assert message in printed
    assert device_key(MASTER, "home", "desk").hex() not in printed


@pytest.mark.parametrize(
    ("block", "status", "message"),
    [
        ("", 0, "Configuration is valid!"),
        ("deep_sleep: {sleep_duration: 10min, run_duration: 30s}", 0, "Configuration is valid!"),
        ("deep_sleep: {sleep_duration: 10min, wakeup_pin: GPIO33}", 2, "only after sleep_duration"),
        ("web_server: {version: 3, auth: {username: me, password: any}}", 0, "Configuration is valid!"),
    ],
    ids=["plain", "deep sleep", "wake-up pin", "page"],
)
def test_example_is_valid_and_hides_the_key(tmp_path: Path, block: str, status: int, message: str):
    write(tmp_path, 1883)
    identity = (tmp_path / "desk.esphome.yaml").read_text()
    example = (COMPONENTS.parent / "example.yaml").read_text()
    (tmp_path / "hushmote").mkdir()
    (tmp_path / "hushmote" / "desk.esphome.yaml").write_text(identity)
    remote = example[example.index("  - source:") : example.index("wifi:")]
    example = example.replace(remote, f"  - source: {COMPONENTS}\n\n")
    (tmp_path / "example.yaml").write_text(f"{example}\n{block}\n")
    (tmp_path / "secrets.yaml").write_text("wifi_ssid: any\nwifi_password: any_password\n")
    printed = esphome("config", "example.yaml", folder=tmp_path, status=status)
    assert message in printed
    assert "key: !secret" in printed
    assert device_key(MASTER, "home", "desk").hex() not in printed
