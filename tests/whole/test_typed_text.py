"""One matrix: odd texts at every place where people type, on every client and with a real broker.

A text works on the board, or is refused in one line where it was typed. It never fails later.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import c_experiments
import pytest
import yaml
from boards import FLEET_KEYS, MASTER
from c_core import needs_gcc, post_program
from command_line import hushmote
from esphome_host import COMPONENTS, esphome, needs_esphome
from micropython import find_runtime
from refusals import fails
from run_page import LIBRARY
from running_aggregator import until

from hushmote.device.ldp_client import Experiment
from hushmote.fleet.provisioning.firmware import c_header, esphome_yaml
from hushmote.fleet.provisioning.fleet_folder import FolderError, make
from hushmote.fleet.provisioning.fleet_spec import FleetSpec
from hushmote.fleet.provisioning.master_key import load_keys, to_text
from hushmote.fleet.provisioning.settings import DeviceSettings, Network, load_settings, provision_device
from hushmote.server.errors import HushmoteError, ProvisionError
from hushmote.server.experiments import definition
from hushmote.simulator.broker import MosquittoBroker

ROOT = Path(__file__).parents[2]
NODE = shutil.which("node")
TEXTS = {
    "umlaut": "Büro überall",
    "emoji": "Büro 🏠👩‍🌾",
    "quote": 'it\'s "home"',
    "backslash": r"home\u00e4\n",
    "tab": "home\toffice",
    "byte-order mark": "\ufeffhome office",
    "32 characters": "x" * 32,
    "33 characters": "x" * 33,
    "32 umlauts": "ä" * 32,
    "64 characters": "x" * 64,
    "right to left": "home\u202eoffice",
    "U+0000": "home\0office",
    "half a pair": "home\ud83doffice",
}
UNSEEN = {"tab", "byte-order mark", "right to left", "U+0000", "half a pair"}
READABLE = TEXTS.keys() - UNSEEN
ASCII_NAMES = {"32 characters"}
# The texts that work at each place; all others are refused there.
SETTINGS = {
    "wifi_ssid": READABLE - {"33 characters", "32 umlauts", "64 characters"},
    "wifi_password": READABLE - {"32 umlauts", "64 characters"},  # 64 bytes are a key in hex
    "mqtt_user": READABLE,
    "mqtt_password": READABLE,
    "mqtt_prefix": {"32 characters", "33 characters", "64 characters"},
    "mqtt_host": {"32 characters", "33 characters", "64 characters"},
    "device_id": ASCII_NAMES,
    "fleet": ASCII_NAMES,
}
UNQUOTED = READABLE - {"quote", "backslash"}
EXPERIMENT_TEXTS = {
    "name": ASCII_NAMES,
    "labels": UNQUOTED,
    "groups": UNQUOTED - {"33 characters", "32 umlauts", "64 characters"},
    "group": ASCII_NAMES,
    "salt": UNQUOTED - {"33 characters", "32 umlauts", "64 characters"},
    "unit": {"umlaut", "emoji", "quote", "backslash", "tab", "byte-order mark", "right to left"},
    "purpose": TEXTS.keys() - {"U+0000", "half a pair"},
    "owner": TEXTS.keys() - {"U+0000", "half a pair"},
}

REFUSED_POLICY = -17
ESPHOME = """
esphome: {{name: d1}}
host:
api:
external_components:
  - source: {components}
binary_sensor:
  - {{platform: template, id: door, lambda: "return true;"}}
hushmote:
  identity: !include d1.esphome.yaml
  policy: {{sum: 8, epsilon: 4, rules: sum, consent_from: network}}
  takes_part: {{name: Takes part}}
  provision: {{name: Provision}}
  experiments:
    - {{name: door, reading: door, interval: 1s}}
"""
CONNECT = """
import json, sys
from kept_experiments import KeptExperiments
from ldp_client import Client, provision
from mqtt_reporter import Reporter
from settings import load_settings
from umqtt.simple import MQTTClient

class Slots:
    def __init__(self): self.slots = [None, None]
    def read(self, slot): return self.slots[slot]
    def write(self, slot, data): self.slots[slot] = data

POLICY = {"sum": 8, "squares": 0, "epsilon": 1000, "rules": ("sum",), "experiments": ("e",)}
for line in sys.stdin:
    path, host, port = line.split()
    try:
        settings = load_settings(path)
    except Exception as e:
        print(json.dumps({"refused": str(e)}))
        continue
    answer = {"settings": settings}
    if port != "0":
        slots = Slots()
        provision(slots, consent=True)
        client = Client(POLICY, slots, settings["device_id"], fleet=settings["fleet"])
        def connect():
            user = settings["mqtt_user"], settings["mqtt_password"]
            return MQTTClient(settings["device_id"], host, int(port), *user)
        prefix = settings["mqtt_prefix"]
        reporter = Reporter(client, connect, KeptExperiments(client, None), topic_prefix=prefix)
        reporter.flush(5000)
        answer["connects"] = reporter.connects
        answer["error"] = reporter.error
    print(json.dumps(answer))
"""


@dataclass(frozen=True)
class Typed:
    """A text at a place that accepts it, and the settings that `hushmote provision` makes of it."""

    place: str
    text: str
    settings: DeviceSettings

    @property
    def value(self) -> str:
        return getattr(self.settings, self.place)


def provision(folder: Path, **values: Any) -> DeviceSettings:
    """Provision a device on the command line, as people do; raise AssertionError if that is refused."""
    usual = {"device_id": "d1", "fleet": "home", "wifi_ssid": "garden", "wifi_password": "12345678"}
    usual |= {"mqtt_user": "me", "mqtt_password": "secret", "mqtt_prefix": "a", "mqtt_host": "127.0.0.1"}
    v = usual | values
    path = folder / f"{v['device_id']}.settings.json"
    path.unlink(missing_ok=True)
    broker = f"mqtt://{v['mqtt_user']}@{v['mqtt_host']}?prefix={v['mqtt_prefix']}"
    hushmote(
        *("provision", "device", v["device_id"], "--fleet", v["fleet"], "--open"),
        *("--wifi-ssid", v["wifi_ssid"], "--broker", broker),
        environment={
            "HUSHMOTE_WIFI_PASSWORD": v["wifi_password"],
            "HUSHMOTE_MQTT_PASSWORD": v["mqtt_password"],
        },
        cwd=folder,
    )
    return load_settings(path)


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> list[Typed]:
    """Provision every text at every place that accepts it."""
    folder = tmp_path_factory.mktemp("typed")
    return [
        Typed(place, text, provision(folder, **{place: TEXTS[text]}))
        for place, works in SETTINGS.items()
        for text in TEXTS
        if text in works
    ]


@pytest.fixture
def broker(typed: list[Typed], tmp_path: Path):
    """Run mosquitto, which admits only the typed users with the typed passwords."""
    if shutil.which("mosquitto_passwd") is None:
        pytest.skip("mosquitto_passwd is not installed")
    passwords = tmp_path / "passwords"
    passwords.touch(mode=0o600)
    users = {str(t.settings.mqtt_user) for t in typed if t.place != "mqtt_password"}
    logins = [(user, "secret") for user in users]
    logins += [(f"p{i}", t.value) for i, t in enumerate(typed) if t.place == "mqtt_password"]
    for user, password in logins:
        subprocess.run(["mosquitto_passwd", "-b", passwords, user, password], check=True)
    with MosquittoBroker(password_file=passwords) as broker:
        yield broker


def with_own_user(number: int, typed: Typed) -> dict[str, Any]:
    """Return a device's settings, with the user whose password was typed."""
    values = json.loads(typed.settings.board_json())
    return values | ({"mqtt_user": f"p{number}"} if typed.place == "mqtt_password" else {})


def on_micropython(folder: Path, files: list[bytes], broker: MosquittoBroker | None) -> list[dict[str, Any]]:
    """Read settings files on a board, connect with each to a broker, and return the results."""
    lines = []
    for number, content in enumerate(files):
        path = folder / f"{number}.json"
        path.write_bytes(content)
        lines.append(f"{path} {broker.host} {broker.port}" if broker else f"{path} - 0")
    (folder / "connect.py").write_text(CONNECT)
    done = subprocess.run(
        [*find_runtime(), "-X", "heapsize=128k", folder / "connect.py"],
        input="\n".join(lines) + "\n",
        env=os.environ | {"MICROPYPATH": f"{ROOT / 'device'}{os.pathsep}.frozen"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(files), done.stdout + done.stderr
    return answers


class TestSettings:
    @pytest.mark.parametrize("text", TEXTS)
    @pytest.mark.parametrize("place", SETTINGS)
    def test_text_is_kept_or_refused_where_typed(self, place: str, text: str, tmp_path: Path):
        values: dict[str, Any] = {"fleet": "home", "device_id": "d1", place: TEXTS[text]}
        if text in SETTINGS[place]:
            assert getattr(DeviceSettings(**values), place) == TEXTS[text]
            return
        path = tmp_path / "d1.settings.json"
        path.write_text(json.dumps(json.loads(DeviceSettings("home", "d1").to_json()) | values))
        path.chmod(0o600)
        with pytest.raises(HushmoteError) as caught:
            load_settings(path)
        assert str(caught.value).startswith(f"{path}: {place} ")
        assert str(caught.value).isprintable()
        if text not in ("U+0000", "half a pair"):  # no command line can have these
            with pytest.raises(AssertionError):
                provision(tmp_path, **{place: TEXTS[text]})

    def test_byte_of_another_encoding_is_named(self):
        """A terminal that sends Latin-1 makes `Küche` two characters and a byte."""
        with fails(".*wifi_ssid contains U[+]DCFC .a byte that is not UTF-8.", ProvisionError):
            provision_device(None, "home", "d1", Network(wifi_ssid="K\udcfcche"))

    @pytest.mark.parametrize("text", ["tab", "right to left", "half a pair", "byte-order mark"])
    def test_place_of_consent_is_refused_where_typed(self, text: str, tmp_path: Path):
        with fails("--consent contains U", FolderError):
            make(tmp_path / "f", FleetSpec("home", ("h",), consent=TEXTS[text]), write_master=True)
        assert not (tmp_path / "f").exists()

    @pytest.mark.slow
    def test_micropython_connects_with_them(
        self, typed: list[Typed], broker: MosquittoBroker, tmp_path: Path
    ):
        values = [with_own_user(i, t) for i, t in enumerate(typed)]
        files = [json.dumps(v, ensure_ascii=False).encode() for v in values]
        for t, value, answer in zip(typed, values, on_micropython(tmp_path, files, broker), strict=True):
            assert answer.get("settings") == value, (t.place, t.text, answer)
            assert answer["connects"] == 1, (t.place, t.text, answer["error"])

    @pytest.mark.slow
    def test_c_header_has_the_same_bytes(self, typed: list[Typed], tmp_path: Path):
        if shutil.which("gcc") is None:
            pytest.skip("gcc is not installed")
        macros = {"wifi_ssid": "WIFI_SSID", "wifi_password": "WIFI_PASSWORD", "mqtt_user": "BROKER_USER"}
        macros |= {"mqtt_password": "BROKER_PASSWORD", "mqtt_prefix": "TOPIC_PREFIX", "mqtt_host": "BROKER"}
        macros |= {"device_id": "DEVICE_ID", "fleet": "FLEET"}
        functions, calls = "", ""
        for number, t in enumerate(typed):
            (tmp_path / f"{number}.h").write_text(c_header(t.settings))
            source = f'#include "{number}.h"\n#include <stdio.h>\n'
            source += f"void f{number}(void) {{ puts(HUSHMOTE_{macros[t.place]}); }}\n"
            (tmp_path / f"{number}.c").write_text(source)
            functions, calls = f"{functions}void f{number}(void);", f"{calls}f{number}();"
        (tmp_path / "main.c").write_text(f"{functions} int main(void) {{ {calls} return 0; }}")
        subprocess.run(
            ["gcc", "-Wall", "-Werror", "-o", "show", *tmp_path.glob("*.c")], cwd=tmp_path, check=True
        )
        output = subprocess.run([tmp_path / "show"], capture_output=True, check=True).stdout
        assert output.decode().splitlines() == [t.value for t in typed]

    @needs_gcc
    @pytest.mark.slow
    @pytest.mark.skipif(not LIBRARY.exists(), reason="no libmosquitto: apt-get install libmosquitto-dev")
    @pytest.mark.parametrize("escaped", [False, True], ids=["as provisioned", "with escapes"])
    def test_hushmote_post_connects_with_them(
        self, escaped: bool, typed: list[Typed], broker: MosquittoBroker, tmp_path: Path
    ):
        policy = 'HUSHMOTE_POLICY(policy, 8000000, 0, 4000000, HUSHMOTE_SUM, false, "e");\n'
        program = post_program(tmp_path, policy)
        for number, t in enumerate(typed):
            if t.place not in ("mqtt_user", "mqtt_password", "mqtt_prefix"):
                continue
            values = with_own_user(number, t) | {"mqtt_host": broker.host, "mqtt_port": broker.port}
            folder = tmp_path / f"device-{number}"
            folder.mkdir()
            (folder / "settings.json").write_text(json.dumps(values, ensure_ascii=escaped))
            for command in ("provision", "yes"):
                subprocess.run([program, folder, command], check=True, capture_output=True)
            with subprocess.Popen(
                [program, folder, "run", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as running:
                assert running.stdin
                connected = f"(p2, c1, k60, u'{values['mqtt_user']}')"
                log = Path(str(broker._folder)) / "log"
                try:
                    until(lambda text=connected, log=log: text in log.read_text(), t.text)
                finally:
                    running.kill()

    @pytest.mark.micropython
    def test_javascript_reads_them(self, typed: list[Typed], tmp_path: Path):
        if NODE is None:
            pytest.skip("Node.js is not installed")
        (tmp_path / "all.json").write_text(f"[{','.join(t.settings.to_json().decode() for t in typed)}]")
        script = "console.log(JSON.stringify(JSON.parse(require('fs').readFileSync('all.json', 'utf8'))))"
        output = subprocess.run([NODE, "-e", script], cwd=tmp_path, capture_output=True, check=True).stdout
        assert [values[t.place] for t, values in zip(typed, json.loads(output), strict=True)] == [
            t.value for t in typed
        ]

    def test_esphome_yaml_has_the_same_text(self, typed: list[Typed]):
        fields = {"mqtt_user": "username", "mqtt_password": "password", "mqtt_prefix": "topic_prefix"}
        fields |= {"mqtt_host": "broker", "device_id": "device_id", "fleet": "fleet"}
        for t in typed:
            if t.place in fields:
                assert yaml.safe_load(esphome_yaml(t.settings))[fields[t.place]] == t.value

    @needs_esphome
    @pytest.mark.slow
    def test_esphome_generates_the_same_bytes(self, tmp_path: Path):
        """One device has all typed texts, and C++ prints what ESPHome's code contains."""
        if shutil.which("g++") is None:
            pytest.skip("g++ is not installed")
        texts = [text for name, text in TEXTS.items() if name in READABLE]
        user, password = "".join(texts[:4]), "".join(texts[:4])[::-1]
        settings = DeviceSettings("home", "d1", mqtt_host="127.0.0.1", mqtt_user=user, mqtt_password=password)
        (tmp_path / "d1.esphome.yaml").write_text(esphome_yaml(settings))
        (tmp_path / "d1.yaml").write_text(ESPHOME.format(components=COMPONENTS))
        esphome("compile", "--only-generate", "d1.yaml", folder=tmp_path)
        (code,) = tmp_path.glob("**/src/main.cpp")
        (call,) = [line for line in code.read_text().splitlines() if "->set_broker(" in line]
        arguments = call[call.index("(") + 1 : call.rindex(")")]
        program = "#include <cstdio>\nvoid show(const char *, int, const char *u, const char *p) "
        program += f"{{ puts(u); puts(p); }}\nint main() {{ show({arguments}); }}\n"
        (tmp_path / "show.cpp").write_text(program)
        subprocess.run(["g++", "-o", "show", "show.cpp"], cwd=tmp_path, check=True)
        output = subprocess.run([tmp_path / "show"], capture_output=True, check=True).stdout
        assert output.decode().splitlines() == [user, password]

    @needs_esphome
    @pytest.mark.slow
    def test_esphome_refuses_unseen_characters_typed_by_hand(self, tmp_path: Path):
        (tmp_path / "d1.yaml").write_text(ESPHOME.format(components=COMPONENTS))
        for user in (TEXTS["tab"], TEXTS["byte-order mark"]):
            text = esphome_yaml(DeviceSettings("home", "d1", mqtt_host="127.0.0.1"))
            (tmp_path / "d1.esphome.yaml").write_text(text + f"username: {json.dumps(user)}\n")
            printed = esphome("config", "d1.yaml", folder=tmp_path, status=2)
            assert "must be a text without control characters and byte-order marks" in printed


class TestSettingsTypedByHand:
    """A settings.json that someone writes in an editor and copies to the board."""

    def test_micropython_reads_or_refuses_them(self, tmp_path: Path):
        usual = json.loads(DeviceSettings("home", "d1", wifi_ssid="a", mqtt_host="b").board_json())

        def file(ssid: Any, *, escaped: bool = False, mark: str = "", **values: Any) -> bytes:
            return (mark + json.dumps(usual | {"wifi_ssid": ssid} | values, ensure_ascii=escaped)).encode()

        emoji = "wifi_ssid has an emoji as two \\u escapes: write the emoji itself"
        long = "wifi_ssid has more than 32 bytes in UTF-8: write the network's own name"
        cases = [
            (file(TEXTS["emoji"]), TEXTS["emoji"]),
            (file(TEXTS["umlaut"], escaped=True), TEXTS["umlaut"]),
            (file(TEXTS["quote"], mark="\ufeff"), TEXTS["quote"]),
            (file(TEXTS["emoji"], escaped=True), emoji),
            (file(TEXTS["33 characters"]), long),
            (file(TEXTS["32 umlauts"]), long),
            (file("a", mqtt_password=None, mqtt_port=1884, my_setting=[3]), "a"),
            (file(24), "wifi_ssid must be text in quotes, or null"),
            (file("a", wifi_password=12345678), "wifi_password must be text in quotes, or null"),
            (file("a", mqtt_port="1883"), "mqtt_port must be a number without quotes"),
            (file("a", mqtt_port=True), "mqtt_port must be a number without quotes"),
            (file("a", mqtt_status="false"), "mqtt_status must be true or false without quotes"),
            (b"[1]", "damaged"),
            (b"{}", "fleet is empty"),
        ]
        answers = on_micropython(tmp_path, [content for content, _ in cases], None)
        for (_, expected), answer in zip(cases, answers, strict=True):
            text = answer["settings"]["wifi_ssid"] if "settings" in answer else answer["refused"]
            assert expected in text

    @pytest.mark.slow
    def test_null_passwords_connect(self, tmp_path: Path):
        values = {"mqtt_user": "nobody", "mqtt_password": None, "wifi_password": None}
        usual = json.loads(DeviceSettings("home", "d1", wifi_ssid="a", mqtt_host="b").board_json())
        with MosquittoBroker() as broker:
            (answer,) = on_micropython(tmp_path, [json.dumps(usual | values).encode()], broker)
        assert answer["connects"] == 1, answer["error"]


def experiment_file(**typed: str) -> str:
    """Return an experiment file with texts at these places."""
    fields: dict[str, Any] = {"name": "e", "purpose": "p", "owner": "o", "labels": "l", "salt": "s"}
    fields |= {"group": "g", "groups": "v", "unit": "u"} | typed
    v = {
        name: json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f") for name, text in fields.items()
    }
    lines = [f"name = {v['name']}", f"purpose = {v['purpose']}", f"owner = {v['owner']}"]
    lines += ["expires = 9999-12-31", "epsilon = 2", 'budget = {rule = "sum", cap = 4}']
    lines += [f"group = {v['group']}", f"groups = [{v['groups']}]"]
    if "unit" in typed:
        lines += ['type = "number"', f"unit = {v['unit']}", "low = 0", "high = 4", "bins = 4"]
    elif "salt" in typed:
        lines += ['type = "text"', f"salt = {v['salt']}", "slots = 16"]
    else:
        lines += ['type = "choice"', f'labels = [{v["labels"]}, "b"]']
    return "\n".join(lines) + "\n"


class TestExperiments:
    @pytest.mark.parametrize("text", sorted(TEXTS.keys() - {"half a pair"}))  # TOML cannot have it
    @pytest.mark.parametrize("place", EXPERIMENT_TEXTS)
    def test_text_is_kept_or_refused_where_typed(self, place: str, text: str):
        file = experiment_file(**{place: TEXTS[text]})
        if text in EXPERIMENT_TEXTS[place]:
            assert definition.parse(file).payload()
            return
        with pytest.raises(definition.DefinitionError) as caught:
            definition.parse(file).payload()
        assert place.removesuffix("s") in str(caught.value)
        assert str(caught.value).isprintable()

    @needs_gcc
    @pytest.mark.slow
    @pytest.mark.micropython
    def test_every_client_accepts_what_the_server_publishes(self, tmp_path: Path):
        payloads = [
            definition.parse(experiment_file(**{place: TEXTS[text]})).payload()
            for place, works in EXPERIMENT_TEXTS.items()
            for text in works
        ]
        digests = [Experiment.parse(payload).digest.hex() for payload in payloads]
        (tmp_path / "payloads.json").write_text(json.dumps([payload.hex() for payload in payloads]))
        core = c_experiments.Core(tmp_path)
        core_codes = {core.parse(payload)[0] for payload in payloads}
        assert core_codes <= {0, REFUSED_POLICY}  # the test's policy names only some
        script = "import json, binascii, ldp_client, ldp_text\n"
        script += "for x in json.load(open('payloads.json')):\n"
        script += "    exp = ldp_client.Experiment.parse(binascii.unhexlify(x))\n"
        script += "    print(binascii.hexlify(exp.digest).decode())\n"
        (tmp_path / "parse.py").write_text(script)
        done = subprocess.run(
            [*find_runtime(), "parse.py"],
            cwd=tmp_path,
            env=os.environ | {"MICROPYPATH": str(ROOT / "device")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.split() == digests, done.stderr
        if NODE is not None:
            script = f"import {{ parseExperiment }} from '{ROOT}/clients/js/hushmote.js';\n"
            script += "import { readFileSync } from 'node:fs';\n"
            script += "for (const x of JSON.parse(readFileSync('payloads.json'))) {\n"
            script += "  const { sha256 } = await parseExperiment(Buffer.from(x, 'hex'));\n"
            script += "  console.log(Buffer.from(sha256).toString('hex'));\n}\n"
            (tmp_path / "parse.mjs").write_text(script)
            parsed = subprocess.run(
                [NODE, "parse.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True
            )
            assert [line[:8] for line in parsed.stdout.split()] == digests


class TestByteOrderMarks:
    """Some editors put a byte-order mark before a file's text."""

    def test_are_no_part_of_a_file(self, tmp_path: Path):
        def file(name: str, text: str, mode: int = 0o600) -> str:
            path = tmp_path / name
            path.write_text("\ufeff" + text)
            path.chmod(mode)
            return name

        file("e.toml", experiment_file())
        assert "e" in hushmote("experiment", "show", "e.toml", cwd=tmp_path)
        file("master.key", to_text(FLEET_KEYS))
        loaded = load_keys(tmp_path / "master.key")
        assert loaded
        assert loaded.masters == (MASTER,)
        path = tmp_path / file("d1.settings.json", DeviceSettings("home", "d1").to_json().decode())
        assert load_settings(path).device_id == "d1"
        hushmote("experiment", "add", "e.toml", "--fleet", "home", "--open", cwd=tmp_path)
        file("roster", "d1\nd2\n")
        text = hushmote("provision", "list", "--fleet", "home", "--allow", "@roster", cwd=tmp_path)
        assert "devices allowed: 2" in text
        file("people.csv", "land\nl\nb\n")
        file_arguments = ("--devices", "100", "--population", "file:people.csv:land")
        assert "e: " in hushmote("simulate", "e.toml", *file_arguments, cwd=tmp_path)
