"""`hushmote provision` without a terminal."""

import base64
import json
import re
import shutil
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
import yaml
from command_line import hushmote
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from refusals import Refusal, refusals

from hushmote.fleet.provisioning.settings import load_settings
from hushmote.server.store import Store

DEVICE = ("provision", "device", "desk", "--open", "--wifi-ssid", "any", "--broker", "localhost")


def test_asks_for_wifi_password_only_at_terminal(tmp_path: Path):
    message = (
        "hushmote: the password of any is read from a terminal; use one, or set HUSHMOTE_WIFI_PASSWORD\n"
    )
    assert hushmote(*DEVICE, cwd=tmp_path, expect=1) == message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("password", ["correct horse", ""])
def test_reads_wifi_password_from_environment(tmp_path: Path, password: str):
    hushmote(*DEVICE, cwd=tmp_path, environment={"HUSHMOTE_WIFI_PASSWORD": password})
    assert load_settings(tmp_path / "desk.settings.json").wifi_password == password


def test_steps_copy_the_brokers_files_to_their_folder(tmp_path: Path):
    fleet = ("provision", "fleet", "fleet", "--host", "localhost")
    there = hushmote(*fleet, "--broker-folder", "/etc/mosquitto/hush mote", cwd=tmp_path)
    copy = "mkdir -p '/etc/mosquitto/hush mote' && cp -r fleet/broker/. '/etc/mosquitto/hush mote'"
    assert copy in " ".join(there.split())
    assert "mosquitto -c '/etc/mosquitto/hush mote/mosquitto.conf'" in there


HARD_TO_QUOTE = 'a "\\?? é😀1'  # must be escaped in both C and YAML


def test_c_header_has_all_settings(tmp_path: Path):
    hushmote("provision", "fleet", "fleet", "--host", "localhost", cwd=tmp_path)
    secret = {"HUSHMOTE_WIFI_PASSWORD": HARD_TO_QUOTE}
    device = ("provision", "device", "desk", "--folder", "fleet", "--for", "c")
    output = hushmote(*device, "--wifi-ssid", HARD_TO_QUOTE, cwd=tmp_path, environment=secret)
    header = tmp_path / "fleet/devices/desk.h"
    assert "flash" not in output
    assert output.replace("\n", " ").endswith(
        "desk.h: the same settings for firmware in C; only you can read it "
    )
    settings = load_settings(tmp_path / "fleet/devices/desk.settings.json")
    assert stat.S_IMODE(header.stat().st_mode) == 0o600
    assert "SECRET" in header.read_text()
    printed = read_by_c(tmp_path, header)
    assert printed[:2] == [settings.key, settings.announce_key]
    assert printed[2:6] == ["home", "desk", "localhost", "8883"]
    assert [bytes.fromhex(line).decode() for line in printed[6:8]] == [HARD_TO_QUOTE, HARD_TO_QUOTE]
    ders = [ssl.PEM_cert_to_DER_cert(bytes.fromhex(line).decode()) for line in printed[8:10]]
    assert [base64.b64encode(der).decode() for der in ders] == [settings.mqtt_ca, settings.mqtt_cert]
    key = load_pem_private_key(bytes.fromhex(printed[10]), None)
    der = key.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    assert base64.b64encode(der).decode() == settings.mqtt_key
    # For an existing device, only the header is written again, with the same bytes.
    before = header.read_bytes(), (tmp_path / "fleet/devices/desk.settings.json").read_bytes()
    header.unlink()
    hushmote(*device, cwd=tmp_path)
    assert (header.read_bytes(), (tmp_path / "fleet/devices/desk.settings.json").read_bytes()) == before
    assert stat.S_IMODE(header.stat().st_mode) == 0o600


def read_by_c(folder: Path, header: Path) -> list[str]:
    """Return the values that a C99 program reads from a header, with keys and texts in hex."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no C compiler (gcc)")
    (folder / "read.c").write_text(READER_PROGRAM.replace("HEADER", str(header)))
    warnings = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
    subprocess.run(["gcc", *warnings, "-o", "read", "read.c"], cwd=folder, check=True)
    return subprocess.run([folder / "read"], capture_output=True, text=True, check=True).stdout.split("\n")


READER_PROGRAM = """
#include "HEADER"
#include <stdio.h>
static const unsigned char key[32] = HUSHMOTE_KEY, announce[64] = HUSHMOTE_ANNOUNCE_KEY;
static void hex(const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        printf("%02x", ((const unsigned char *)data)[i]);
    puts("");
}
#define TEXT(text) hex(text, sizeof text - 1)
int main(void) {
    hex(key, sizeof key);
    hex(announce, sizeof announce);
    puts(HUSHMOTE_FLEET);
    puts(HUSHMOTE_DEVICE_ID);
    puts(HUSHMOTE_BROKER);
    printf("%d\\n", HUSHMOTE_BROKER_PORT);
    TEXT(HUSHMOTE_WIFI_SSID);
    TEXT(HUSHMOTE_WIFI_PASSWORD);
    TEXT(HUSHMOTE_BROKER_CA);
    TEXT(HUSHMOTE_CERTIFICATE);
    TEXT(HUSHMOTE_CERTIFICATE_KEY);
    return HUSHMOTE_CONSENT_GIVEN;
}
"""


@pytest.mark.parametrize("more", [(), ("--password",)])
def test_esphome_yaml_has_all_settings(tmp_path: Path, more: tuple[str, ...]):
    spec = ("--set", "password_port=8884", "--consent", "signed") if more else ()
    hushmote("provision", "fleet", "fleet", "--host", "localhost", *spec, cwd=tmp_path)
    device = ("provision", "device", "desk", "--folder", "fleet", "--for", "esphome", *more)
    hushmote(*device, cwd=tmp_path)
    settings = load_settings(tmp_path / "fleet/devices/desk.settings.json")
    file = tmp_path / "fleet/devices/desk.esphome.yaml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    said = yaml.safe_load(file.read_text())
    named = {"fleet": "fleet", "device_id": "device_id", "key": "key", "announce_key": "announce_key"}
    named |= {
        "broker": "mqtt_host",
        "port": "mqtt_port",
        "username": "mqtt_user",
        "password": "mqtt_password",
    }
    values = {name: getattr(settings, field) for name, field in named.items()}
    values |= {"consent_given": True} if more else {}
    pems = {name: said.pop(name) for name in ("ca", "certificate", "certificate_key") if name in said}
    assert said == {name: value for name, value in values.items() if value is not None}
    assert pems.keys() == ({"ca"} if more else {"ca", "certificate", "certificate_key"})
    assert base64.b64encode(ssl.PEM_cert_to_DER_cert(pems["ca"])).decode() == settings.mqtt_ca


PASSPHRASE = {"HUSHMOTE_CA_PASSPHRASE": "long enough"}


@pytest.fixture(scope="module")
def locked_fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder with a fleet whose authority's key has a passphrase, and with its board desk."""
    folder = tmp_path_factory.mktemp("locked")
    fleet = ("provision", "fleet", "fleet", "--host", "localhost", "--passphrase")
    hushmote(*fleet, cwd=folder, environment=PASSPHRASE)
    hushmote("provision", "device", "desk", "--folder", "fleet", cwd=folder, environment=PASSPHRASE)
    return folder


class TestPassphrase:
    @pytest.mark.parametrize("what", ["aggregator", "devices", "door"])
    def test_is_needed_for_certificates(self, what: str, locked_fleet: Path):
        error = hushmote("provision", "rotate", what, "--folder", "fleet", cwd=locked_fleet, expect=1)
        assert error.startswith("hushmote: the passphrase of the authority's key is read from a terminal")

    @pytest.mark.parametrize("what", ["master", "signing"])
    def test_is_not_needed_for_keys(self, what: str, locked_fleet: Path):
        hushmote("provision", "rotate", what, "--folder", "fleet", cwd=locked_fleet)


class TestRevoke:
    def test_ends_the_certificate_in_the_folder(self, tmp_path: Path):
        hushmote("provision", "fleet", "fleet", "--host", "localhost", cwd=tmp_path)
        hushmote("provision", "device", "desk", "--folder", "fleet", cwd=tmp_path)
        output = hushmote("provision", "revoke", "desk", "--folder", "fleet", "--only-folder", cwd=tmp_path)
        assert output.startswith("ended: 1 certificate, 0 logins\n")


class TestList:
    def test_of_a_store_needs_no_folder(self, tmp_path: Path):
        url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
        with Store(url) as store:
            store.add_fleet("home", keyed=True)
            store.allow_devices("home", ["desk"])
        output = hushmote("provision", "list", cwd=tmp_path)
        assert re.search(r"^desk +allowed +- +- *$", output, re.M)

    def test_changes_the_store_in_another_fleets_folder(self, tmp_path: Path):
        hushmote("provision", "fleet", "fleet", "--host", "localhost", "--fleet", "shed", cwd=tmp_path)
        url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
        with Store(url) as store:
            store.add_fleet("home", keyed=True)
        output = hushmote("provision", "list", "--allow", "desk", "--store", url, cwd=tmp_path / "fleet")
        assert output.startswith("fleet home: devices allowed: 1; ")


class TestDevices:
    OPEN = ("provision", "devices", "--open", "--broker", "mqtt://localhost", "--count", "3", "--out", "out")

    def test_are_on_the_stores_list(self, tmp_path: Path):
        url = f"sqlite:///{tmp_path}/store.sqlite"
        with Store(url) as store:
            store.add_fleet("home", keyed=False)
            store.set_listed("home", True)
            printed = hushmote(*self.OPEN, "--for", "page", "--store", url, "--json", cwd=tmp_path)
            assert json.loads(printed) == {
                "fleet": "home",
                "roster": "out/roster.csv",
                "devices": 3,
                "new": 3,
            }
            rows = (tmp_path / "out/roster.csv").read_text().splitlines()[1:]
            assert store.roster("home") == {row.split(",")[0]: "allowed" for row in rows}

    def test_nvs_files_for_one_and_for_all_are_equal(self, tmp_path: Path):
        hushmote(*self.OPEN, "--for", "nvs", "--first", "b-9", cwd=tmp_path)
        out = tmp_path / "out"
        (config, values) = (out / f"mfg_{name}.csv" for name in ("config", "values"))
        assert config.read_text() == "hushmote,namespace,\nidentity,data,base64\n"
        heading, *rows = values.read_text().splitlines()
        assert heading == "id,identity"
        assert [row.split(",")[0] for row in rows] == ["b-9", "b-10", "b-11"]
        for row in rows:
            device, value = row.split(",")
            single = (out / f"{device}.nvs.csv").read_text().splitlines()
            assert single == [
                "key,type,encoding,value",
                "hushmote,namespace,,",
                f"identity,data,base64,{value}",
            ]

    def test_continues_and_says_what_to_do_next(self, tmp_path: Path):
        hushmote("provision", "fleet", "f", "--host", "a", "--broker", "nats", cwd=tmp_path)
        command = ("provision", "devices", "--folder", "f", "--for", "page", "--out", "out")
        printed = hushmote(*command, "--count", "2", cwd=tmp_path)
        assert "out: 2 devices of fleet home, 2 of them new; only you can read the files" in printed
        assert "the files have no Wi-Fi (--wifi-ssid): the firmware must provide what it needs" in printed
        assert "send every nats-server SIGHUP" in " ".join(printed.split())
        assert hushmote(*command, "--count", "2", cwd=tmp_path).splitlines() == [
            "out: 2 devices of fleet home, 0 of them new; only you can read the files",
            "out/roster.csv: their ids, files and SHA-256; no keys",
        ]
        device = (tmp_path / "out/roster.csv").read_text().splitlines()[1].split(",")[0]
        hushmote("provision", "device", device, "--folder", "f", "--for", "page", cwd=tmp_path)
        again = tmp_path / "f/devices" / f"{device}.page.bin"
        assert again.read_bytes() == (tmp_path / "out" / again.name).read_bytes()

    def test_missing_network_is_stated(self, tmp_path: Path):
        command = ("provision", "devices", "--open", "--for", "page", "--count", "2")
        printed = hushmote(*command, "--out", "a", cwd=tmp_path)
        assert "the files have no Wi-Fi (--wifi-ssid) and no broker (--broker or --folder): " in printed
        network = ("--wifi-ssid", "garden", "--broker", "mqtt://localhost")
        assert "have no" not in hushmote(
            *command, "--out", "b", *network, cwd=tmp_path, environment={"HUSHMOTE_WIFI_PASSWORD": "12345678"}
        )

    @refusals(
        ("--for page --count 3 --out o", "give --master-key FILE for a keyed fleet, or --open"),
        ("--for page --count 3 --out o --open --password", "--password requires the fleet's folder"),
        ("--for nvs --count 3 --out no/o --open", "cannot create the folder no/o: No such file"),
        (
            "--for nvs --count 3 --out o --open --first desk",
            "--first desk: must end in digits, as in desk-0001",
        ),
        ("--for nvs --count 3 --out o --open --store sqlite:///s", "no store"),
        command="provision devices",
    )
    def test_refusal_is_one_line(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)


class TestRefusals:
    @refusals(
        ("device desk --open --password", "--password requires the fleet's folder; give --folder"),
        ("revoke desk --only-folder", "--only-folder requires the fleet's folder; give --folder"),
        command="provision",
    )
    def test_is_one_line(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)
