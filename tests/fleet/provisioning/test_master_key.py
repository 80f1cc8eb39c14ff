"""Master keys and the signing key: stored safely or refused, and never part of a message."""

import os

import pytest
from boards import FLEET_KEYS, MASTER, SIGNING
from command_line import unchanged
from refusals import fails

from hushmote.fleet.provisioning.master_key import (
    create_keys,
    load_keys,
    load_signing_key,
    load_unsigned,
    to_text,
)
from hushmote.server.wire.keys import FleetKeys, MasterKeyError

SIGNING_LINE = "signing:" + SIGNING.hex()


def write(path, text):
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    return path


class TestSeparateFiles:
    """One file can count but not sign, and the other can sign but not count."""

    @pytest.fixture
    def files(self, tmp_path):
        keys = create_keys(tmp_path / "master.key", tmp_path / "signing.key")
        return tmp_path / "master.key", tmp_path / "signing.key", keys

    def test_counting_file_cannot_sign(self, files):
        counting, _, keys = files
        loaded = load_keys(counting)
        assert loaded == FleetKeys(keys.masters, announce=keys.announce_key)
        assert keys.signing.hex() not in counting.read_text()
        with fails(r"master\.key has no signing key: give the file that has", MasterKeyError):
            load_signing_key(counting)

    def test_signing_file_cannot_check_tags(self, files):
        _, signing, keys = files
        assert load_signing_key(signing) == keys.signing
        assert signing.read_text() == f"signing:{keys.signing.hex()}\n"
        with fails(r"signing\.key has only a signing key: give the master key's file", MasterKeyError):
            load_keys(signing)

    def test_both_together_hold_the_original_keys(self, files):
        counting, signing, keys = files
        assert load_keys(counting, signing=signing) == keys
        assert {path.stat().st_mode & 0o777 for path in (counting, signing)} == {0o600}

    def test_rejects_another_servers_signing_key(self, files, tmp_path):
        create_keys(tmp_path / "b.key", tmp_path / "b.signing.key")
        with fails("is not the signing key for", MasterKeyError):
            load_keys(files[0], signing=tmp_path / "b.signing.key")

    def test_creates_no_file_if_either_exists(self, files, tmp_path):
        for pair in ((tmp_path / "new.key", files[1]), (files[0], tmp_path / "new.key")):
            with unchanged(tmp_path), fails("exists", MasterKeyError):
                create_keys(*pair)

    @pytest.mark.parametrize("announce", ["", "00" * 63, "0g" * 64], ids=["empty", "63 bytes", "not hex"])
    def test_rejects_malformed_announce_key_unquoted(self, announce, tmp_path):
        path = write(tmp_path / "master.key", f"{MASTER.hex()}\nannounce:{announce}\n")
        with pytest.raises(MasterKeyError, match="128 hex digits after announce:") as caught:
            load_keys(path)
        assert not announce or announce not in str(caught.value)

    def test_environment_may_hold_counting_keys(self):
        announce = FLEET_KEYS.announce_key
        environ = {"HUSHMOTE_MASTER_KEY": f"{MASTER.hex()},announce:{announce.hex()}"}
        assert load_keys(None, environ) == FleetKeys((MASTER,), announce=announce)

    def test_older_combined_file_loads_and_signs(self, tmp_path):
        path = write(tmp_path / "master.key", f"{MASTER.hex()}\n{SIGNING_LINE}\n")
        assert load_keys(path) == FLEET_KEYS
        assert load_signing_key(path) == SIGNING


class TestKeyFile:
    def test_new_keys_are_private_and_round_trip(self, tmp_path):
        path = tmp_path / "master.key"
        keys = create_keys(path)
        assert load_keys(path) == keys
        assert len(keys.announce_key) == 64
        assert path.stat().st_mode & 0o777 == 0o600
        with fails("exists", MasterKeyError):
            create_keys(path)
        assert load_keys(path) == keys
        other = create_keys(tmp_path / "other.key")
        assert len({*keys.masters, keys.signing, *other.masters, other.signing}) == 4
        with fails("cannot write", MasterKeyError):
            create_keys(tmp_path / "nowhere" / "master.key")

    @pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601], ids=oct)
    def test_rejects_file_that_others_can_open(self, tmp_path, mode):
        path = tmp_path / "master.key"
        create_keys(path)
        path.chmod(mode)
        with fails("chmod 600", MasterKeyError):
            load_keys(path)

    @pytest.mark.parametrize(
        "text",
        ["", "00" * 31, "00" * 33, "0g" * 32, "00" * 32 + "\n" + "00" * 32, "é" * 64],
        ids=["empty", "31 bytes", "33 bytes", "not hex", "two keys", "not ASCII"],
    )
    @pytest.mark.parametrize("more", ["", "\n" + SIGNING_LINE], ids=["alone", "with signing key"])
    def test_rejects_malformed_key_without_showing_it(self, tmp_path, text, more):
        path = write(tmp_path / "master.key", text + more)
        with pytest.raises(MasterKeyError, match="64 hex digits") as caught:
            load_keys(path)
        assert not text or text not in str(caught.value)
        assert SIGNING.hex() not in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        "signing",
        ["", "00" * 32, "ff" * 32, "11" * 31, "11" * 33, "1g" * 32],
        ids=["empty", "zero", "above the order", "31 bytes", "33 bytes", "not hex"],
    )
    def test_rejects_malformed_signing_key_without_showing_it(self, tmp_path, signing):
        path = write(tmp_path / "master.key", f"{MASTER.hex()}\nsigning:{signing}\n")
        with pytest.raises(
            MasterKeyError, match="a P-256 key of exactly 64 hex digits after signing:"
        ) as caught:
            load_keys(path)
        assert not signing or signing not in str(caught.value)

    def test_explains_how_to_get_missing_signing_key(self, tmp_path):
        path = write(tmp_path / "master.key", MASTER.hex() + "\n")
        assert load_unsigned(path) == (MASTER,)
        with fails(r"or signing key.* `hushmote provision upgrade`", MasterKeyError):
            load_keys(path)
        with fails("put a comma, signing: and 64 random hex digits after", MasterKeyError):
            load_keys(None, {"HUSHMOTE_MASTER_KEY": MASTER.hex()})
        path.write_text(to_text(FLEET_KEYS))
        assert load_unsigned(path) is None

    def test_keeps_several_master_keys_in_order(self, tmp_path):
        keys = tuple(bytes([i]) * 32 for i in range(5))
        path = write(tmp_path / "master.key", to_text(FleetKeys(keys[:4], SIGNING)))
        assert load_keys(path) == FleetKeys(keys[:4], SIGNING)
        path.write_text(to_text(FleetKeys(keys, SIGNING)))
        with fails("at most 4", MasterKeyError):
            load_keys(path)


class TestEnvironment:
    def test_is_used_without_a_file(self, tmp_path):
        environ = {"HUSHMOTE_MASTER_KEY": f"{MASTER.hex()},{SIGNING_LINE}"}
        assert load_keys(None, environ) == FLEET_KEYS
        assert load_keys(None, {"HUSHMOTE_MASTER_KEY": to_text(FLEET_KEYS)}) == FLEET_KEYS
        assert load_keys(None, {}) is None
        with fails("HUSHMOTE_MASTER_KEY", MasterKeyError):
            load_keys(None, {"HUSHMOTE_MASTER_KEY": "secret"})
        with fails("No such file", MasterKeyError):
            load_keys(tmp_path / "absent", environ)

    def test_may_hold_several_comma_separated_keys(self):
        text = f"{MASTER.hex()},{MASTER[::-1].hex()},{SIGNING_LINE}"
        environ = {"HUSHMOTE_MASTER_KEY": text}
        assert load_keys(None, environ) == FleetKeys((MASTER, MASTER[::-1]), SIGNING)
        with pytest.raises(MasterKeyError, match="64 hex digits") as caught:
            load_keys(None, {"HUSHMOTE_MASTER_KEY": text[:-1]})
        assert text[:10] not in str(caught.value)
