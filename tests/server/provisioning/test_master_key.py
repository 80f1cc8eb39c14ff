"""A master key is kept safe or refused, and is never part of a message."""

import os

import pytest
from boards import MASTER

from hushmote.server.provisioning.master_key import create_master_key, load_master_key, load_master_keys
from hushmote.server.wire.keys import MasterKeyError


def test_a_new_master_key_is_read_back_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "master.key"
    made = create_master_key(path)
    assert load_master_key(path) == made
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(MasterKeyError, match="exists"):
        create_master_key(path)
    assert load_master_key(path) == made
    with pytest.raises(MasterKeyError, match="cannot write"):
        create_master_key(tmp_path / "nowhere" / "master.key")


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601])
def test_a_master_key_file_that_others_can_open_is_refused(tmp_path, mode):
    path = tmp_path / "master.key"
    create_master_key(path)
    path.chmod(mode)
    with pytest.raises(MasterKeyError, match="chmod 600"):
        load_master_key(path)


@pytest.mark.parametrize(
    "text", ["", "00" * 31, "00" * 33, "0g" * 32, "00" * 32 + "\n" + "00" * 32, "é" * 64]
)
def test_anything_but_64_hex_digits_is_refused_without_being_shown(tmp_path, text):
    path = tmp_path / "master.key"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(MasterKeyError, match="64 hex digits") as caught:
        load_master_key(path)
    assert not text or text not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_environment_is_used_where_no_file_is_named(tmp_path):
    environ = {"HUSHMOTE_MASTER_KEY": MASTER.hex()}
    assert load_master_key(None, environ) == MASTER
    assert load_master_key(None, {}) is None
    with pytest.raises(MasterKeyError, match="HUSHMOTE_MASTER_KEY"):
        load_master_key(None, {"HUSHMOTE_MASTER_KEY": "secret"})
    with pytest.raises(MasterKeyError, match="No such file"):
        load_master_key(tmp_path / "absent", environ)


def test_during_a_rotation_a_file_holds_several_keys_and_the_first_is_in_force(tmp_path):
    path = tmp_path / "master.key"
    made = [bytes([i]) * 32 for i in range(5)]
    path.touch(0o600)
    path.write_text("\n".join(k.hex() for k in made[:4]) + "\n")
    assert load_master_keys(path) == tuple(made[:4])
    assert load_master_key(path) == made[0]
    path.write_text("\n".join(k.hex() for k in made))
    with pytest.raises(MasterKeyError, match="at most 4"):
        load_master_keys(path)


def test_the_environment_holds_several_keys_with_commas_between():
    text = MASTER.hex() + "," + MASTER[::-1].hex()
    environ = {"HUSHMOTE_MASTER_KEY": text}
    assert load_master_keys(None, environ) == (MASTER, MASTER[::-1])
    assert load_master_keys(None, {}) == ()
    with pytest.raises(MasterKeyError, match="64 hex digits") as caught:
        load_master_keys(None, {"HUSHMOTE_MASTER_KEY": text[:-1]})
    assert text[:10] not in str(caught.value)
