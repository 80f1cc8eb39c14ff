"""A board's settings: keys, ids and their file."""

import dataclasses
import datetime
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import Refusal, fails, refusals
from settings_mistakes import MISTAKES, Mistake

from hushmote.fleet.provisioning import authority
from hushmote.fleet.provisioning import settings as provision
from hushmote.fleet.provisioning.settings import (
    Network,
    ProvisionError,
    check_complete,
    load_settings,
    provision_device,
)
from hushmote.server.wire.keys import FleetKeys, MasterKeyError, device_key
from hushmote.server.wire.topics import NameRefused

MASTER = bytes(range(32))
KEYS = FleetKeys((MASTER,), MASTER[::-1])
DEVICE_FOLDER = Path(__file__).resolve().parents[3] / "device"


def with_network(**fields: Any) -> Callable[[Path], object]:
    def provision_into(folder: Path) -> object:
        return provision_device(KEYS, "garden", network=Network(**fields), path=folder / "s.json")

    return provision_into


class TestNewSettings:
    def test_have_no_keys_in_open_fleet(self):
        settings = provision_device(None, "garden")
        assert settings.key is None
        assert settings.announce_key is None
        assert json.loads(settings.board_json())["key"] is None

    def test_record_no_consent_by_default(self):
        assert provision_device(None, "garden").consent_given is False
        assert provision_device(None, "garden", consent_given=True).consent_given is True

    def test_ids_are_random_and_not_mac_addresses(self):
        # In 2,000 draws of 64 bits, two are equal in 1 of 10^13 runs.
        ids = {provision_device(None, "garden").device_id for _ in range(2000)}
        assert len(ids) == 2000
        assert all(re.fullmatch(r"[0-9a-f]{16}", i) for i in ids)  # a MAC address has 12
        # Of 2,000 x 64 bits half are ones; outside 62,400 to 65,600 (9 sigma) in fewer than 1 of 10^18 runs.
        ones = sum(int(i, 16).bit_count() for i in ids)
        assert 62_400 < ones < 65_600

    def test_never_overwrite_existing_file_or_link(self, tmp_path: Path):
        (tmp_path / "s.json").write_bytes(b"someone's")
        (tmp_path / "link.json").symlink_to(tmp_path / "elsewhere")
        for name in ("s.json", "link.json"):
            with fails("exists", ProvisionError):
                provision_device(KEYS, "garden", "d1", path=tmp_path / name)
        assert (tmp_path / "s.json").read_bytes() == b"someone's"
        assert not (tmp_path / "elsewhere").exists()

    @refusals(
        *(
            (
                lambda folder, n=names: provision_device(KEYS, *n, path=folder / "s.json"),
                "must be 1 to 32 of a-z",
            )
            for names in (("garden", "A"), ("garden", "a/b"), ("garden", ""), ("Garden", "d1"), ("+", "d1"))
        ),
        error=NameRefused,
    )
    def test_reject_invalid_name(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)

    @pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
    def test_reject_master_key_of_wrong_length(self, length: int):
        with pytest.raises(MasterKeyError):
            provision_device(FleetKeys((bytes(length),), KEYS.signing), "garden")

    @refusals(
        (lambda folder: provision_device(None, "garden", path=folder / "none" / "s.json"), "cannot write"),
        (with_network(wifi_ssid="x" * 33), "at most 32 bytes"),
        (with_network(wifi_password="short"), "8 to 63 bytes"),
        (with_network(wifi_country="de"), "two capital letters"),
        (with_network(mqtt_port=0), "mqtt_port must be 1 to 65535"),
        (with_network(mqtt_host="a, b"), "several separated by commas"),
        (with_network(mqtt_host="a,,b"), "several separated by commas"),
        (with_network(mqtt_host="a:0,b"), "host or host:port"),
        (with_network(mqtt_host="mqtt://a"), "host or host:port"),
        (with_network(mqtt_host="[fd00::5"), "host or host:port"),
        (with_network(mqtt_host="[a]:1884"), "host or host:port"),
        (with_network(mqtt_port=True), "mqtt_port must be a whole number"),
        (
            lambda folder: provision_device(KEYS, "garden", network=Network(mqtt_ca=folder / "ca.pem")),
            "must be a PEM file",
            {"ca.pem": "no certificate"},
        ),
        (with_network(mqtt_ca=Path("missing.pem")), "must be a PEM file"),
        (
            lambda folder: provision_device(KEYS, "garden", network=Network(mqtt_ca=folder / "ca.pem")),
            "damaged certificate",
            {"ca.pem": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
        ),
        (lambda folder: load_settings(folder / "s.json"), "hushmote provision"),
        (lambda folder: load_settings(folder / "s.json"), "is not JSON", {"s.json": ""}),
        (lambda folder: load_settings(folder / "s.json"), "is not JSON", {"s.json": "{"}),
        (lambda folder: load_settings(folder / "s.json"), "is not JSON", {"s.json": b"\xff\xfe"}),
        (lambda folder: load_settings(folder / "s.json"), "is not a JSON object", {"s.json": "[]"}),
        error=ProvisionError,
    )
    def test_refusal_is_one_line(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)

    def test_do_not_show_secrets(self):
        settings = provision_device(
            KEYS, "garden", network=Network(wifi_password="hunter22", mqtt_password="hunter33")
        )
        shown = repr(settings) + provision.describe(settings, Path("s.json"))
        assert "fill in wifi_ssid and mqtt_host" in shown
        for secret in (settings.key, settings.announce_key, "hunter22", "hunter33"):
            assert secret is not None
            assert secret not in shown


NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)


@pytest.fixture(scope="module")
def root() -> authority.CertifiedKey:
    return authority.new_authority("garden", NOW)


@pytest.fixture
def certified(root: authority.CertifiedKey, tmp_path: Path) -> Path:
    """Provide board d1's settings with a certificate."""
    (tmp_path / "ca.pem").write_bytes(root.to_pem())
    certificate = authority.issue_client(root, "d1", NOW, 30)
    path = tmp_path / "s.json"
    network = Network(mqtt_ca=tmp_path / "ca.pem", certificate=certificate)
    provision_device(KEYS, "garden", "d1", network, path=path)
    return path


class TestCertificate:
    def test_round_trips_and_shows_only_its_expiry(self, certified: Path):
        settings = load_settings(certified)
        assert settings.mqtt_port == 8883
        shown = repr(settings) + provision.describe(settings, certified)
        assert f"certificate until {NOW + datetime.timedelta(days=30):%Y-%m-%d}" in shown
        assert settings.mqtt_key is not None
        assert settings.mqtt_key not in shown
        assert json.loads(settings.board_json())["mqtt_cert"] == settings.mqtt_cert

    def test_key_in_ca_file_is_never_copied(self, certified: Path, root):
        ca = load_settings(certified).mqtt_ca
        assert ca == authority.der_text(root.certificate)

    def test_every_root_in_ca_file_is_trusted(self, root, tmp_path: Path):
        roots = [root, *(authority.new_authority("garden", NOW) for _ in range(2))]
        first, second, third = (each.to_pem().replace(b"\n", b"\r\n") for each in roots)
        path = tmp_path / "ca.pem"
        path.write_bytes(b"\xef\xbb\xbfSubject: O=\xdcbung\n" + first + second + b"\xff\n" + third + first)
        settings = provision_device(KEYS, "garden", network=Network(mqtt_ca=path))
        assert settings.mqtt_ca == " ".join(authority.der_text(each.certificate) for each in roots)

    def test_too_many_roots_are_refused(self, tmp_path: Path):
        path = tmp_path / "ca.pem"
        path.write_bytes(b"".join(authority.new_authority("garden", NOW).to_pem() for _ in range(9)))
        with fails("contains 9 certificates: a board has memory for 8", ProvisionError):
            provision_device(KEYS, "garden", network=Network(mqtt_ca=path))

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"mqtt_key": None}, "belong together"),
            ({"mqtt_cert": None}, "belong together"),
            ({"mqtt_ca": None}, "mqtt_ca is missing"),
            ({"mqtt_cert": "AAAA"}, "base64 of DER"),
            ({"mqtt_key": "?"}, "base64 of DER"),
            ({"device_id": "d2"}, "another device's"),
            ({"mqtt_cert": 5}, "must be a text or null"),
        ],
        ids=[
            "no key",
            "no certificate",
            "no CA",
            "malformed certificate",
            "malformed key",
            "another device",
            "integer",
        ],
    )
    def test_rejects_unusable_credentials(self, certified: Path, changes: dict, reason: str):
        values = json.loads(certified.read_text())
        certified.write_text(json.dumps(values | changes))
        with pytest.raises(ProvisionError, match=reason) as caught:
            load_settings(certified)
        assert "\n" not in str(caught.value)
        assert values["mqtt_key"] not in str(caught.value)

    def test_renewal_changes_only_keys_and_certificate(self, certified: Path, root: authority.CertifiedKey):
        settings = provision.mark_ledger(certified, load_settings(certified), True)
        certificate = authority.issue_client(root, "d1", NOW, 30)
        written = provision.renew_settings(
            settings, FleetKeys((MASTER[::-1],), KEYS.signing), certified.with_name("ca.pem"), certificate
        )
        changed = {
            f.name
            for f in dataclasses.fields(written)
            if getattr(written, f.name) != getattr(settings, f.name)
        }
        assert changed == {"key", "mqtt_cert", "mqtt_key"}
        assert written.key == device_key(MASTER[::-1], "garden", "d1").hex()


class TestFile:
    def test_round_trips(self, tmp_path: Path):
        written = provision_device(
            KEYS, "garden", network=Network("café", mqtt_host="h"), path=tmp_path / "s.json"
        )
        assert load_settings(tmp_path / "s.json") == written

    def test_rejects_file_that_others_can_read(self, tmp_path: Path):
        path = tmp_path / "s.json"
        provision_device(KEYS, "garden", path=path)
        path.chmod(0o640)
        with fails("chmod 600", ProvisionError):
            load_settings(path)

    @pytest.mark.parametrize(
        ("name", "value", "reason"),
        [
            ("key", "00", "64 hex digits"),
            ("key", 5, "key must be a text or null"),
            ("device_id", "A", "device_id"),
            ("fleet", None, "fleet must be a text$"),
            ("pin", 1, "unknown field pin"),
            ("mqtt_host", ..., "mqtt_host is missing"),
            ("mqtt_ca", "?", "base64"),
            ("wifi_address", "10.0.0.9", "address,mask,gateway,name server"),
        ],
        ids=[
            "short key",
            "integer key",
            "device_id",
            "no fleet",
            "unknown field",
            "mqtt_host missing",
            "mqtt_ca",
            "wifi_address",
        ],
    )
    def test_rejects_mistakes(self, name: str, value: object, reason: str, tmp_path: Path):
        path = tmp_path / "s.json"
        provision_device(KEYS, "garden", path=path)
        values = json.loads(path.read_text())
        path.write_text(json.dumps({k: v for k, v in {**values, name: value}.items() if v is not ...}))
        with pytest.raises(ProvisionError, match=reason) as caught:
            load_settings(path)
        assert "\n" not in str(caught.value)
        assert values["key"] not in str(caught.value)

    @pytest.mark.parametrize("mistake", MISTAKES, ids=str)
    def test_mistake_is_named(self, mistake: Mistake, tmp_path: Path):
        path = tmp_path / "s.json"
        path.touch(0o600)
        path.write_text(json.dumps(mistake.settings))
        with pytest.raises(ProvisionError) as caught:
            check_complete(load_settings(path), path)
        mistake.assert_explained_by(str(caught.value).removeprefix(f"{path}: "))

    def test_marking_ledger_as_made_keeps_the_mode(self, tmp_path: Path):
        path = tmp_path / "s.json"
        settings = provision_device(KEYS, "garden", path=path)
        marked = provision.mark_ledger(path, settings, True)
        assert load_settings(path) == marked == dataclasses.replace(settings, ledger_made=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "ledger_made" not in json.loads(marked.board_json())

    def test_example_has_every_field_and_no_secret(self):
        values = json.loads((DEVICE_FOLDER / "settings_example.json").read_text())
        assert list(values) == [f.name for f in dataclasses.fields(provision.DeviceSettings)]
        assert not any(values[n] for n in values if "key" in n or "password" in n or "ssid" in n)

    def test_may_lack_certificate_and_address_fields(self, tmp_path: Path):
        path = tmp_path / "s.json"
        written = provision_device(KEYS, "garden", "d1", path=path)
        values = json.loads(path.read_text())
        del values["mqtt_cert"], values["mqtt_key"], values["wifi_address"]
        path.write_text(json.dumps(values))
        assert load_settings(path) == written

    def test_does_not_read_a_port(self, tmp_path: Path):
        """Reading a terminal waits for input, so `hushmote flash` with swapped arguments used to hang."""
        master, terminal = os.openpty()
        try:
            (tmp_path / "port").symlink_to(os.ttyname(terminal))
            with fails("port is not a settings file", ProvisionError):
                load_settings(tmp_path / "port")
        finally:
            os.close(master)
            os.close(terminal)
