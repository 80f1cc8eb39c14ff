"""A fleet folder and its commands: it is created once, never overwritten, and rotated with an overlap."""

import base64
import dataclasses
import functools
import getpass
import itertools
import json
import os
import shutil
import stat
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from boards import experiment_payload
from command_line import Run, runner
from cryptography import x509
from fleet_broker import context, make_fleet, running, visit
from fleet_servers import make_nats_fleet
from refusals import Refusal, fails, refusals

from hushmote.fleet.provisioning import authority, fleet_folder, master_key, rotation
from hushmote.fleet.provisioning import settings as provision
from hushmote.fleet.provisioning.fleet_folder import FleetFolder, FolderError, now_utc
from hushmote.server.store import Store
from hushmote.server.store.number_set import NumberSet
from hushmote.server.wire import keys

PASSPHRASE = "correct horse"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("HUSHMOTE_MASTER_KEY", "HUSHMOTE_FOLDER", "HUSHMOTE_CA_PASSPHRASE", "HUSHMOTE_STORE"):
        monkeypatch.delenv(name, raising=False)
    return runner("provision", tmp_path, monkeypatch)


def make_folder(run: Run, *arguments: str) -> FleetFolder:
    user = ("--set", f"broker_user={getpass.getuser()}")
    run("fleet", "fl", "--host", "localhost", *user, "--json", *arguments)
    return fleet_folder.find(Path("fl"))


def settings(device: str) -> provision.DeviceSettings:
    return provision.load_settings(Path(f"fl/devices/{device}.settings.json"))


def keys_of(folder: FleetFolder) -> keys.FleetKeys:
    fleet_keys = master_key.load_keys(folder.master_file(), signing=folder.signing_file())
    assert fleet_keys is not None
    return fleet_keys


def root_of(board: provision.DeviceSettings) -> x509.Certificate:
    assert board.mqtt_ca is not None
    return x509.load_der_x509_certificate(base64.b64decode(board.mqtt_ca.split()[0]))  # the newest


class TestNewFolder:
    def test_files_are_private_whatever_the_umask(self, run: Run):
        old = os.umask(0)
        try:
            make_folder(run, "--set", "password_port=8884")
            run("device", "k3f9", "--folder", "fl")
        finally:
            os.umask(old)
        for path in [Path("fl"), *Path("fl").rglob("*")]:
            wanted = 0o700 if path.is_dir() else 0o600
            assert stat.S_IMODE(path.stat().st_mode) == wanted, path

    def test_each_part_has_only_its_machines_files(self, run: Run):
        folder = make_folder(run)
        secrets = {
            "authority": folder.signer().key,
            "broker": authority.parse((folder.path / "broker/broker.pem").read_bytes(), "x").key,
            "aggregator": authority.parse(
                (folder.path / "aggregator/aggregator_1.pem").read_bytes(), "x"
            ).key,
        }
        for part in secrets:
            text = b"".join(p.read_bytes() for p in (folder.path / part).rglob("*") if p.is_file())
            assert text.count(b"PRIVATE KEY-----") == 2  # one key: BEGIN and END
            fleet_keys = keys_of(folder)
            assert fleet_keys.signing is not None
            assert (fleet_keys.masters[0].hex().encode() in text) == (part == "aggregator")
            assert (fleet_keys.signing.hex().encode() in text) == (part == "authority")
            assert (fleet_keys.announce_key.hex().encode() in text) == (part == "aggregator")

    def test_existing_folder_is_unchanged(self, run: Run):
        make_folder(run)
        before = {p: p.read_bytes() for p in Path("fl").rglob("*") if p.is_file()}
        assert "is not empty" in run("fleet", "fl", "--host", "localhost", expect=1)
        assert {p: p.read_bytes() for p in Path("fl").rglob("*") if p.is_file()} == before

    @refusals(
        ("--host broker:8883", "without a port"),
        ("--host b --fleet Home", "1 to 32 of a-z"),
        ("--host b --set password_port=8883", "must differ"),
        ("--host b --set 'broker_user=a\nlistener 1883'", "one line"),
        ("--host b --broker-folder etc/mosquitto", "must start with /"),
        command="provision fleet fl",
    )
    def test_rejects_invalid_fleet(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)

    @pytest.mark.parametrize(
        ("make", "count", "is_shared"),
        [(make_fleet, 1, False), (make_fleet, 2, True), (make_nats_fleet, 2, False)],
        ids=["mosquitto, one", "mosquitto, two", "NATS, two"],
    )
    def test_aggregators_share_reports_only_at_mosquitto(
        self, make: Callable[[Path], FleetFolder], count: int, is_shared: bool, tmp_path: Path
    ):
        folder = make(tmp_path / "fl")
        for _ in range(count - 1):
            rotation.add_aggregator(folder, now_utc())
        names = [f"aggregator_{number}" for number in range(1, count + 1)]
        for name in names:
            connection = tomllib.loads((folder.path / f"aggregator/{name}.toml").read_text())
            more = {"client_id": name, "share": folder.share()} if is_shared else {}
            assert connection == {"url": folder.fleet.url(), "ca": "ca.pem", "cert": f"{name}.pem"} | more

    def test_does_not_write_master_key_from_environment(self, run: Run, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("HUSHMOTE_MASTER_KEY", "ab" * 32 + ",signing:" + "cd" * 32)
        result = json.loads(run("fleet", "fl", "--host", "localhost", "--broker-folder", "/b", "--json"))
        assert result["master_key"] is False
        assert not Path("fl/aggregator/master.key").exists()
        run("device", "k3f9", "--folder", "fl")
        assert settings("k3f9").key == keys.device_key(bytes.fromhex("ab" * 32), "home", "k3f9").hex()
        assert "HUSHMOTE_MASTER_KEY" in run("rotate", "master", "--folder", "fl", expect=1)

    def test_passphrase_is_required_for_every_signature(self, run: Run, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("HUSHMOTE_CA_PASSPHRASE", PASSPHRASE)
        make_folder(run, "--passphrase")
        assert b"ENCRYPTED" in Path("fl/authority/ca.key").read_bytes()
        run("device", "k3f9", "--folder", "fl")
        assert list(json.loads(run("rotate", "ca", "--folder", "fl", "--json"))) == ["done", "left"]
        assert b"ENCRYPTED" in Path("fl/authority/ca.key").read_bytes()
        monkeypatch.setenv("HUSHMOTE_CA_PASSPHRASE", "wrong horse")
        assert "wrong passphrase for" in run("device", "k3f8", "--folder", "fl", expect=1)
        monkeypatch.delenv("HUSHMOTE_CA_PASSPHRASE")
        assert "set HUSHMOTE_CA_PASSPHRASE" in run(
            "revoke", "k3f9", "--folder", "fl", "--only-folder", expect=1
        )
        run("list", "--folder", "fl")  # needs no key
        monkeypatch.setenv("HUSHMOTE_CA_PASSPHRASE", "short")
        assert "8 characters" in run("fleet", "f2", "--host", "b", "--passphrase", expect=1)


class TestIssue:
    def test_folder_supplies_broker_ca_keys_and_certificate(self, run: Run):
        folder = make_folder(run)
        run("device", "k3f9", "--folder", "fl")
        board = settings("k3f9")
        assert (board.mqtt_host, board.mqtt_port, board.fleet) == ("localhost", 8883, "home")
        assert root_of(board) == folder.root()
        assert board.mqtt_cert is not None
        assert board.mqtt_key is not None
        certificate = authority.parse_board_fields(board.mqtt_cert, board.mqtt_key)
        certificate.certificate.verify_directly_issued_by(folder.root())
        fleet_keys = keys_of(folder)
        assert board.key == keys.device_key(fleet_keys.masters[0], "home", "k3f9").hex()
        assert board.announce_key == fleet_keys.announce_key.hex()

    def test_board_without_certificate_gets_login_if_broker_allows(self, run: Run):
        folder = make_folder(run, "--set", "password_port=8884")
        assert "SIGHUP" in run("device", "k3f9", "--folder", "fl", "--password")
        board = settings("k3f9")
        assert (board.mqtt_port, board.mqtt_user, board.mqtt_cert) == (8884, "k3f9", None)
        assert board.mqtt_password is not None
        hashed = Path("fl/broker/passwords").read_text()
        assert hashed.startswith("k3f9:$7$")
        assert board.mqtt_password not in hashed
        others = [f"d{i}" for i in range(10)]
        with ThreadPoolExecutor(10) as several:  # a printed login exists despite concurrent requests
            list(several.map(folder.issue_login, others))
        lines = Path("fl/broker/passwords").read_text().splitlines()
        assert {line.partition(":")[0] for line in lines} == {"k3f9", *others}

    def test_issues_board_once_and_nothing_for_refused_requests(self, run: Run):
        make_folder(run)
        run("device", "k3f9", "--folder", "fl")
        issued = Path("fl/authority/issued.jsonl").read_bytes()
        for arguments, reason in (
            (("k3f9", "--folder", "fl"), "rotate devices"),
            (("K3F9", "--folder", "fl"), "a-z"),
            (("k3f8", "--folder", "fl", "--fleet", "away"), "omit --fleet"),
            (("k3f8", "--folder", "fl", "--broker", "other"), "boards would reject it"),
            (("k3f8", "--folder", "fl", "--broker", "mqtt://u@localhost"), "the folder defines port"),
            (("k3f8", "--folder", "fl", "--ca", "ca.pem"), "omit --ca"),
            (("k3f8", "--folder", "fl", "--password"), "only certificates"),
            (("k3f8", "--password"), "give --folder"),
            (("k3f8", "--folder", "none"), "not a fleet's folder"),
        ):
            assert reason in run("device", *arguments, expect=1)
        assert Path("fl/authority/issued.jsonl").read_bytes() == issued

    def test_deletes_only_this_boards_files(self, run: Run):
        folder = make_folder(run)
        for device in ("k3f9", "k3f90"):
            run("device", device, "--folder", "fl")
            run("device", device, "--folder", "fl", "--for", "c")
        assert folder.delete_files("k3f9") == 2
        names = [path.name for path in Path("fl/devices").iterdir()]
        assert {name.partition(".")[0] for name in names} == {"k3f90"}
        assert folder.delete_files("k3f9") == 0

    def test_works_without_a_folder(self, run: Run):
        run("device", "k3f9", "--fleet", "away", "--open", "--broker", "h")
        board = provision.load_settings(Path("k3f9.settings.json"))
        assert (board.fleet, board.key, board.mqtt_port, board.mqtt_cert) == ("away", None, 1883, None)
        assert "--master-key" in run("device", expect=1)

    @pytest.mark.parametrize(
        ("broker", "host", "port", "user"),
        [
            ("mqtt://board@10.0.0.5:1884", "10.0.0.5", 1884, "board"),
            ("mqtt://[fd00::5]:1884", "fd00::5", 1884, None),
            ("fd00::5", "fd00::5", 1883, None),
            ("mqtt://a,b:1884", "a,b:1884", 1883, None),
            ("mqtt://b?prefix=tenants/acme", "b", 1883, None),
            ("[fd00::5]", "fd00::5", 1883, None),
            ("mqtt://[fd00::5]:1884,[fd00::6]", "[fd00::5]:1884,[fd00::6]", 1883, None),
            ("", "", 1883, None),
        ],
    )
    def test_boards_broker_is_a_single_url(
        self, run: Run, monkeypatch, broker: str, host: str, port: int, user: str | None
    ):
        monkeypatch.setenv("HUSHMOTE_MQTT_PASSWORD", "a secret")
        run("device", "k3f9", "--open", "--broker", broker)
        board = provision.load_settings(Path("k3f9.settings.json"))
        assert (board.mqtt_host, board.mqtt_port, board.mqtt_user) == (host, port, user)
        assert board.mqtt_prefix == ("tenants/acme" if "?" in broker else "")
        assert board.mqtt_password == "a secret"

    @refusals(
        ("wss://b/mqtt", "send the reports to a `hushmote door`"),
        ("mqtts://b", "TLS requires both"),
        ("mqtt://b --ca ca.pem", "TLS requires both"),
        ("nats://b", "broker as mqtt://"),
        ("mqtt://b?prefix=+", "a topic prefix must be at most 64 of"),
        ("mqtt://b?path=/mqtt", "has no path: only ?prefix=LEVELS"),
        ("mqtt://u:secret@b", "set HUSHMOTE_MQTT_PASSWORD"),
        ("mqtt://b:1884/x", "mqtt_host must be host or host:port in ASCII"),
        command="provision device k3f9 --open --broker",
    )
    def test_rejects_broker_unreachable_by_boards(self, refusal: Refusal, tmp_path: Path):
        refusal.check(tmp_path)


@pytest.fixture
def store(tmp_path: Path):
    with Store(f"sqlite:///{tmp_path}/hushmote.sqlite") as store:
        store.add_fleet("home", keyed=True)
        yield store


class TestRevoke:
    def test_ends_board_in_store_and_at_broker(self, run: Run, store: Store):
        folder = make_folder(run, "--set", "password_port=8884")
        run("device", "k3f9", "--folder", "fl")
        run("device", "k3f8", "--folder", "fl", "--password")
        result = json.loads(run("revoke", "k3f9", "k3f8", "--folder", "fl", "--json"))
        assert len(result["credentials_ended"]) == 2
        assert store.revoked_devices("home") == {"k3f8", "k3f9"}
        crl = x509.load_pem_x509_crl(Path("fl/broker/crl.pem").read_bytes())
        assert [f"{entry.serial_number:x}" for entry in crl] == [
            c.serial for c in folder.journal().credentials if c.name == "k3f9"
        ]
        assert Path("fl/broker/passwords").read_text() == ""
        for again in (
            ("device", "k3f9", "--out", "."),
            ("rotate", "devices", "k3f9"),
            ("device", "k3f8", "--password", "--out", "."),
        ):
            assert "is permanently revoked" in run(*again, "--folder", "fl", expect=1)
        assert "revoked" in run("list", "--allow", "k3f9", expect=1)
        assert not Path("k3f9.settings.json").exists()

    def test_revokes_unknown_id_only_on_request(self, run: Run, store: Store):
        store.allow_devices("home", ["k3f7"])
        (version,) = [store.add_experiment("home", experiment_payload())]
        with store.ingest() as transaction:
            transaction.write({("home", version.name, "k3f6"): NumberSet(1)}, {}, {})
        message = run("revoke", "k3f7", "k3f6", "k3f0", expect=1)
        assert "device k3f0 is unknown; correct the id, or add --unknown-too" in message
        assert store.revoked_devices("home") == frozenset()
        run("revoke", "k3f7", "k3f6")
        run("revoke", "k3f7")  # repeating it changes nothing
        run("revoke", "k3f0", "--unknown-too")
        assert store.revoked_devices("home") == {"k3f0", "k3f6", "k3f7"}
        make_folder(run)
        run("device", "k3f9", "--folder", "fl")
        assert "device k3g9" in run("revoke", "k3g9", "--folder", "fl", expect=1)
        assert "device k3g9" in run("revoke", "k3g9", "--folder", "fl", "--only-folder", expect=1)
        run("revoke", "k3f9", "--folder", "fl")  # it has never reported, but its folder knows it

    def test_names_remaining_steps_if_partial(self, run: Run, store: Store):
        store.close()
        make_folder(run)
        run("device", "k3f9", "--folder", "fl")
        assert "--store" in run("revoke", "k3f9", "--folder", "fl", "--only-folder")
        assert "the broker still accepts the certificate" in run("revoke", "k3f9", "--unknown-too")
        Path("hushmote.sqlite").unlink()
        assert "no store" in run("revoke", "k3f9", "--folder", "fl", expect=1)
        assert "--folder" in run("revoke", "k3f9", "--only-folder", expect=1)


class TestRoster:
    def test_allows_boards_and_enforces_the_list(self, run: Run, store: Store, tmp_path: Path):
        (tmp_path / "ids").write_text("k3f9\nk3f8\n")
        run("list", "--allow", "k3f7", "--allow", "@ids")
        assert store.roster("home") == {"k3f7": "allowed", "k3f8": "allowed", "k3f9": "allowed"}
        assert store.listed_fleets() == frozenset()
        assert json.loads(run("list", "--listed", "--json"))["allowed"] == 3
        assert store.listed_fleets() == {"home"}
        run("list", "--not-listed")
        assert store.listed_fleets() == frozenset()

    def test_fleet_name_is_optional_for_single_fleet(self, run: Run, store: Store):
        assert json.loads(run("list", "--allow", "k3f9", "--json"))["fleet"] == "home"
        store.add_fleet("lab", keyed=False)
        for arguments in (("list", "--allow", "k3f8"), ("revoke", "k3f9"), ("list",)):
            assert "its fleets: home, lab" in run(*arguments, expect=1)
        assert json.loads(run("list", "--allow", "k3f9", "--fleet", "lab", "--json"))["fleet"] == "lab"

    def test_shows_boards_certificates_and_expiry(self, run: Run, store: Store):
        make_folder(run, "--set", "device_days=30")
        run("device", "k3f9", "--folder", "fl")
        run("list", "--allow", "k3f7")
        result = json.loads(run("list", "--folder", "fl", "--store", str(store.engine.url), "--json"))
        assert [c["what"] for c in result["certificates"]] == ["ca", "broker", "aggregator"]
        assert [(b["device"], b["state"], b["opens"]) for b in result["devices"]] == [
            ("k3f7", "allowed", "-"),
            ("k3f9", "-", "certificate"),
        ]
        assert "days" in run("list", "--folder", "fl")
        assert "k3f7" in run("list")


class TestRotateKeys:
    def test_master_overlaps_and_signing_key_is_replaced(self, run: Run):
        folder = make_folder(run)
        run("device", "k3f9", "--folder", "fl")
        path = Path("fl/devices/k3f9.settings.json")
        provision.mark_ledger(path, settings("k3f9"), True)
        before = keys_of(folder)
        (old,) = before.masters
        run("rotate", "master", "--folder", "fl")
        new, second = keys_of(folder).masters
        assert second == old != new
        assert settings("k3f9").key == keys.device_key(old, "home", "k3f9").hex()
        run("rotate", "devices", "--folder", "fl")
        assert settings("k3f9").key == keys.device_key(new, "home", "k3f9").hex()
        assert settings("k3f9").announce_key == before.announce_key.hex()
        assert settings("k3f9").ledger_made
        run("rotate", "master", "--finish", "--folder", "fl")
        assert keys_of(folder) == keys.FleetKeys((new,), before.signing)
        assert "no rotation" in run("rotate", "master", "--finish", "--folder", "fl", expect=1)
        board = settings("k3f9")
        assert "flash" in run("rotate", "signing", "--folder", "fl")
        after = keys_of(folder)
        assert after.masters == (new,)
        assert after.signing != before.signing
        run("rotate", "devices", "--folder", "fl")
        assert settings("k3f9").key == board.key
        assert settings("k3f9").announce_key == after.announce_key.hex() != board.announce_key


class TestSeparateSigningKey:
    def test_json_lists_steps_done_and_left(self, run: Run):
        make_folder(run)
        document = json.loads(run("rotate", "signing", "--folder", "fl", "--json"))
        assert document.keys() == {"done", "left"}
        assert any("hushmote experiment sign" in step for step in document["left"])

    def test_rotates_in_both_files(self, run: Run):
        folder = make_folder(run)
        before = keys_of(folder)
        text = " ".join(run("rotate", "signing", "--folder", "fl").split())
        assert "fl/authority/signing.key: a new signing key" in text
        assert "sign every experiment again and add it" in text
        after = keys_of(folder)  # keys_of() checks that the two files belong together
        assert (after.masters == before.masters, after.signing == before.signing) == (True, False)

    def test_upgrade_removes_it_from_a_combined_file(self, run: Run):
        folder = make_folder(run)
        before = keys_of(folder)
        (folder.path / "authority/signing.key").unlink()
        (folder.path / "aggregator/master.key").write_text(master_key.to_text(before))
        text = " ".join(run("upgrade", "--folder", "fl").split())
        assert "fl/authority/signing.key: the signing key" in text
        assert "`hushmote serve` with --signing-key" in text
        assert keys_of(folder) == before
        counting = master_key.load_keys(folder.master_file())
        assert counting == master_key.without_signing(before)
        after = contents(Path("fl"))
        run("upgrade", "--folder", "fl")
        assert contents(Path("fl")) == after

    def test_upgrade_never_overwrites_another_signing_key(self, run: Run):
        folder = make_folder(run)
        before = (folder.path / "authority/signing.key").read_text()
        other = keys.FleetKeys(keys_of(folder).masters, bytes(31) + b"\x05")
        (folder.path / "aggregator/master.key").write_text(master_key.to_text(other))
        assert "different signing keys: keep the right one" in run("upgrade", "--folder", "fl", expect=1)
        assert (folder.path / "authority/signing.key").read_text() == before


def as_before(path: Path) -> None:
    """Convert a folder to the old format, in which the announce key was a 32-byte HMAC key."""
    key = path / "aggregator/master.key"
    key.write_text(key.read_text().splitlines()[0] + "\n")
    (path / "authority/signing.key").unlink()
    for board in path.glob("devices/*.settings.json"):
        values = json.loads(board.read_text())
        values["announce_key"] = values["key"] and "ab" * 32
        board.write_text(json.dumps(values))


def contents(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def killed(
    monkeypatch: pytest.MonkeyPatch, names: Sequence[str], step: int, act: Callable[[], object]
) -> bool:
    """Return whether an action reached call number `step` (from 0) of these os functions and died there."""
    left = step

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def run_concurrently(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                raise KeyboardInterrupt
            return call(*arguments, **options)

        return run_concurrently

    with monkeypatch.context() as patch:
        for name in names:
            patch.setattr(os, name, dying(getattr(os, name)))
        try:
            act()
        except KeyboardInterrupt:
            return True
    return False


class TestUpgrade:
    def test_older_folder_names_the_command(self, run: Run):
        folder = make_folder(run)
        for device in ("k3f9", "k3f8"):
            run("device", device, "--folder", "fl")
        run("device", "open", "--folder", "fl", "--open")
        run("device", "far", "--folder", "fl", "--out", ".")
        provision.mark_ledger(Path("fl/devices/k3f9.settings.json"), settings("k3f9"), True)
        old, before = keys_of(folder), settings("k3f9")
        as_before(Path("fl"))
        for command in (("device", "k3f7"), ("rotate", "devices", "k3f9"), ("rotate", "master")):
            assert "`hushmote provision upgrade`" in run(*command, "--folder", "fl", expect=1)
        with fails("`hushmote provision upgrade`", provision.ProvisionError):
            settings("k3f9")
        output = run("upgrade", "far.settings.json", "--folder", "fl")
        assert "settings with a new announce key: 3 of 4" in output
        assert "refuses every experiment" in " ".join(output.split())
        new = keys_of(folder)
        assert new.masters == old.masters
        announce_key = new.announce_key.hex()
        assert settings("k3f9") == dataclasses.replace(before, announce_key=announce_key)
        assert provision.load_settings(Path("far.settings.json")).announce_key == announce_key
        assert settings("open").announce_key is None
        after = contents(Path("fl"))
        output = " ".join(run("upgrade", "--folder", "fl").split())
        assert "0 of 3" in output
        assert "continues with withdrawn experiments" in output
        assert contents(Path("fl")) == after
        assert all(p.stat().st_mode & 0o077 == 0 for p in Path("fl").rglob("*"))

    def test_replaces_key_files_and_explains_environment_keys(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ):
        key = Path("master.key")
        old = master_key.create_keys(key)
        run("device", "k3f9", "--master-key", "master.key", "--out", ".")
        text = old.masters[0].hex()
        key.write_text(text)
        run("upgrade", "k3f9.settings.json", "--master-key", "master.key")
        new, signing = master_key.load_keys(key), master_key.load_signing_key(Path("signing.key"))
        assert new is not None
        assert new.masters == old.masters
        assert new.announce_key == keys.public_key_bytes(signing)
        board = provision.load_settings(Path("k3f9.settings.json"))
        assert board.announce_key == new.announce_key.hex()
        make_folder(run)
        Path("fl/aggregator/master.key").unlink()
        assert "there are no keys" in run("upgrade", "--folder", "fl", expect=1)
        monkeypatch.setenv("HUSHMOTE_MASTER_KEY", text)
        assert "64 random hex digits" in run("upgrade", "--folder", "fl", expect=1)
        monkeypatch.setenv("HUSHMOTE_MASTER_KEY", f"{text},signing:{signing.hex()}")
        assert "0 of 1" in run("upgrade", "k3f9.settings.json", "--folder", "fl")

    @pytest.mark.slow
    def test_next_run_completes_a_killed_run(self, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """Kill the command before each system call that opens, syncs, removes or replaces a file."""
        folder = make_folder(run)
        for device in ("k3f9", "k3f8"):
            run("device", device, "--folder", "fl")
        old = keys_of(folder).masters
        as_before(Path("fl"))
        for step in itertools.count():
            trial = tmp_path / f"trial{step}"
            shutil.copytree("fl", trial)
            paths = sorted(trial.glob("devices/*.settings.json"))
            files = trial / "aggregator/master.key", paths, trial / "authority/signing.key"
            upgrade = functools.partial(rotation.upgrade, *files)
            died = killed(monkeypatch, ("open", "replace", "fsync", "unlink"), step, upgrade)
            upgrade()
            new = keys_of(FleetFolder(trial, folder.fleet))
            assert new.masters == old
            wanted = {new.announce_key.hex()}
            assert {provision.load_settings(path).announce_key for path in paths} == wanted
            if not died:
                break
        assert step > 9


class TestRotateCertificates:
    def test_keeps_old_ca_while_boards_know_no_other(self, run: Run):
        folder = make_folder(run)
        run("device", "k3f9", "--folder", "fl")
        old = folder.root()
        assert "no rotation" in run("rotate", "ca", "--finish", "--folder", "fl", expect=1)
        run("rotate", "ca", "--folder", "fl")
        assert "in progress" in run("rotate", "ca", "--folder", "fl", expect=1)
        assert folder.root() != old
        trusted = x509.load_pem_x509_certificates(Path("fl/broker/ca.pem").read_bytes())
        assert trusted == [folder.root(), old]
        assert "such as k3f9" in run("rotate", "ca", "--finish", "--folder", "fl", expect=1)
        run("rotate", "devices", "k3f9", "--folder", "fl")
        assert root_of(settings("k3f9")) == folder.root()
        run("rotate", "ca", "--finish", "--folder", "fl")
        assert x509.load_pem_x509_certificates(Path("fl/broker/ca.pem").read_bytes()) == [folder.root()]
        assert not Path("fl/authority/ca-old.key").exists()

    @pytest.mark.slow
    @pytest.mark.parametrize("make", [make_fleet, make_nats_fleet])
    @pytest.mark.parametrize("finish", [False, True])
    def test_resumes_killed_ca_rotation(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        make: Callable[[Path], FleetFolder],
        finish: bool,
    ):
        rotate = functools.partial(rotation.finish_ca, cut_off=False) if finish else rotation.rotate_ca
        folder = make(tmp_path / "fl")
        if finish:
            rotation.rotate_ca(folder, now_utc())
        for step in itertools.count():
            trial = FleetFolder(tmp_path / f"trial{step}", folder.fleet)
            shutil.copytree(folder.path, trial.path)
            if not killed(monkeypatch, ("replace",), step, functools.partial(rotate, trial, now_utc())):
                break
            rotate(trial, now_utc())
            roots = [authority.common_name(c) for c in trial.certificates("broker/ca.pem")]
            assert roots == [s.name for s in trial.signers()]
            assert len(roots) == (1 if finish else 2)
            valid = trial.journal().valid("aggregator", now_utc())
            assert {c.name: c.authority for c in valid} == {"aggregator_1": trial.signer().name}
            if folder.fleet.broker == "nats":
                users = (trial.path / "broker/1/users.conf").read_text()
                assert all(f"urn:hushmote:aggregator_1:{c.serial}" in users for c in valid)
        assert step > 2

    def test_broker_gets_new_certificate_and_names(self, run: Run):
        folder = make_folder(run)
        before = folder.certificate("broker/broker.pem")
        run("rotate", "broker", "other.example", "--folder", "fl")
        after = folder.certificate("broker/broker.pem")
        assert after.public_key() != before.public_key()
        assert "other.example" in Path("fl/fleet.json").read_text()
        run("device", "k3f9", "--folder", "fl")
        assert settings("k3f9").mqtt_host == "other.example"
        before, after = after, folder.certificate("broker/broker.pem")
        message = run("rotate", "broker", "third.example", "--folder", "fl", expect=1)
        assert "k3f9.settings.json has the broker other.example" in " ".join(message.split())
        assert folder.certificate("broker/broker.pem") == after
        run("rotate", "broker", "other.example", "third.example", "--folder", "fl")
        after = folder.certificate("broker/broker.pem")
        assert "without a port" in run("rotate", "broker", "x:1", "--folder", "fl", expect=1)
        assert folder.certificate("broker/broker.pem") == after

    def test_aggregator_keeps_old_authority_until_finish(
        self,
        tmp_path: Path,
    ):
        folder = make_fleet(tmp_path / "fl")
        pem = folder.path / "aggregator/aggregator_1.pem"
        with running(folder) as broker:
            old = context(folder, pem)
            rotation.rotate_aggregator(folder, now_utc())
            new = context(folder, pem)
            broker.reload()
            for tls in (old, new):
                with visit(folder.fleet.port, tls) as aggregator:
                    assert aggregator.connected()
            rotation.finish_aggregator(folder, now_utc())
            rotation.add_aggregator(folder, now_utc())
            broker.reload()
            with visit(folder.fleet.port, old) as aggregator:
                assert not aggregator.connected()
            second = context(folder, folder.path / "aggregator/aggregator_2.pem")
            with visit(folder.fleet.port, new) as first, visit(folder.fleet.port, second) as two:
                topic = f"hushmote/v1/{folder.fleet.fleet}/experiment/temp"
                assert first.subscribe(topic) == "Granted QoS 1"
                two.publish(topic, b"e")
                assert two.acknowledged == ["Success"]


class TestDamage:
    @pytest.mark.parametrize(
        "name", ["fleet.json", "authority/ca.key", "authority/issued.jsonl", "broker/ca.pem"]
    )
    def test_damaged_or_missing_file_is_one_line(self, run: Run, name: str):
        make_folder(run)
        path = Path("fl") / name
        absent = "fl is not a fleet's folder" if name == "fleet.json" else name
        for damage, named in ((lambda: path.write_bytes(b"rubbish"), name), (path.unlink, absent)):
            damage()
            assert named in run("device", "--folder", "fl", expect=1)
            if name != "broker/ca.pem":  # which the command would rewrite
                assert named in run("rotate", "ca", "--folder", "fl", expect=1)

    def test_file_without_a_certificate_is_named(self, run: Run):
        folder = make_folder(run)
        Path("fl/broker/broker.pem").write_text("rubbish")
        with fails(r"fl/broker/broker\.pem has no certificate: restore it from a backup", FolderError):
            folder.certificate("broker/broker.pem")

    def test_missing_ca_key_blocks_certificates_but_not_logins(self, run: Run):
        make_folder(run, "--set", "password_port=8884")
        Path("fl/authority/ca.key").rename("elsewhere")
        assert "this needs the complete folder in which the fleet was created" in run(
            "device", "--folder", "fl", expect=1
        )
        run("device", "k3f9", "--folder", "fl", "--password")

    def test_rejects_other_kinds_of_folder(self, tmp_path: Path):
        with fails("provision fleet", FolderError):
            fleet_folder.find(tmp_path)
        for name, more in (("home", ', "pin": 1'), ("home/#", ""), ("home", r', "broker_folder": "/x\ny"')):
            (tmp_path / "fleet.json").write_text(
                f'{{"fleet": "{name}", "hosts": [], "aggregators": []{more}}}'
            )
            with fails("damaged", FolderError):
                fleet_folder.find(tmp_path)
