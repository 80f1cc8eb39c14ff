"""Master keys and the signing key are kept safe or refused, and are never part of a message."""

import os

import pytest
from boards import FLEET_KEYS, MASTER, SIGNING

from hushmote.server.provisioning.master_key import create_keys, load_keys, load_unsigned, to_text
from hushmote.server.wire.keys import FleetKeys, MasterKeyError, public_key_bytes

SIGNING_LINE = "signing:" + SIGNING.hex()


def write(path, text):
    path.touch(0o600)
    path.write_text(text, encoding="utf-8")
    return path


def test_new_keys_are_read_back_and_only_their_owner_can_read_them(tmp_path):
    path = tmp_path / "master.key"
    made = create_keys(path)
    assert load_keys(path) == made
    assert len(public_key_bytes(made.signing)) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(MasterKeyError, match="exists"):
        create_keys(path)
    assert load_keys(path) == made
    other = create_keys(tmp_path / "other.key")
    assert len({*made.masters, made.signing, *other.masters, other.signing}) == 4
    with pytest.raises(MasterKeyError, match="cannot write"):
        create_keys(tmp_path / "nowhere" / "master.key")


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601])
def test_a_key_file_that_others_can_open_is_refused(tmp_path, mode):
    path = tmp_path / "master.key"
    create_keys(path)
    path.chmod(mode)
    with pytest.raises(MasterKeyError, match="chmod 600"):
        load_keys(path)


@pytest.mark.parametrize(
    "text", ["", "00" * 31, "00" * 33, "0g" * 32, "00" * 32 + "\n" + "00" * 32, "é" * 64]
)
@pytest.mark.parametrize("more", ["", "\n" + SIGNING_LINE])
def test_anything_but_64_hex_digits_is_refused_without_being_shown(tmp_path, text, more):
    path = write(tmp_path / "master.key", text + more)
    with pytest.raises(MasterKeyError, match="64 hex digits") as caught:
        load_keys(path)
    assert not text or text not in str(caught.value)
    assert SIGNING.hex() not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("signing", ["", "00" * 32, "ff" * 32, "11" * 31, "11" * 33, "1g" * 32])
def test_a_signing_key_that_is_none_is_refused_without_being_shown(tmp_path, signing):
    path = write(tmp_path / "master.key", f"{MASTER.hex()}\nsigning:{signing}\n")
    with pytest.raises(MasterKeyError, match="a P-256 key of exactly 64 hex digits after signing:") as caught:
        load_keys(path)
    assert not signing or signing not in str(caught.value)


def test_keys_of_before_there_was_a_signing_key_are_one_line_that_says_how_to_get_one(tmp_path):
    path = write(tmp_path / "master.key", MASTER.hex() + "\n")
    assert load_unsigned(path) == (MASTER,)
    with pytest.raises(MasterKeyError, match=r"no signing key.* `hushmote provision upgrade`") as caught:
        load_keys(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(MasterKeyError, match="put a comma, signing: and 64 random hex digits after"):
        load_keys(None, {"HUSHMOTE_MASTER_KEY": MASTER.hex()})
    path.write_text(to_text(FLEET_KEYS))
    assert load_unsigned(path) is None


def test_the_environment_is_used_where_no_file_is_named(tmp_path):
    environ = {"HUSHMOTE_MASTER_KEY": f"{MASTER.hex()},{SIGNING_LINE}"}
    assert load_keys(None, environ) == FLEET_KEYS
    assert load_keys(None, {"HUSHMOTE_MASTER_KEY": to_text(FLEET_KEYS)}) == FLEET_KEYS
    assert load_keys(None, {}) is None
    with pytest.raises(MasterKeyError, match="HUSHMOTE_MASTER_KEY"):
        load_keys(None, {"HUSHMOTE_MASTER_KEY": "secret"})
    with pytest.raises(MasterKeyError, match="No such file"):
        load_keys(tmp_path / "absent", environ)


def test_during_a_rotation_a_file_holds_several_master_keys_in_their_order(tmp_path):
    made = tuple(bytes([i]) * 32 for i in range(5))
    path = write(tmp_path / "master.key", to_text(FleetKeys(made[:4], SIGNING)))
    assert load_keys(path) == FleetKeys(made[:4], SIGNING)
    path.write_text(to_text(FleetKeys(made, SIGNING)))
    with pytest.raises(MasterKeyError, match="at most 4"):
        load_keys(path)


def test_the_environment_holds_several_master_keys_with_commas_between():
    text = f"{MASTER.hex()},{MASTER[::-1].hex()},{SIGNING_LINE}"
    environ = {"HUSHMOTE_MASTER_KEY": text}
    assert load_keys(None, environ) == FleetKeys((MASTER, MASTER[::-1]), SIGNING)
    with pytest.raises(MasterKeyError, match="64 hex digits") as caught:
        load_keys(None, {"HUSHMOTE_MASTER_KEY": text[:-1]})
    assert text[:10] not in str(caught.value)
