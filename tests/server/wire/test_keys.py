"""Keys: derived as RFC 5869 says, never confused; a master key is kept safe or refused."""

import os

import pytest
from boards import MASTER, client, experiment, payload_of
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hushmote.device import ldp_client
from hushmote.server.provisioning import master_key
from hushmote.server.wire import keys, topics


def test_device_keys_are_hkdf_sha256_as_another_library_computes_it():
    def hkdf(info):
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(MASTER)

    assert keys.device_key(MASTER, "home", "k3f9x1") == hkdf(b"hushmote/v1/home/k3f9x1")
    assert keys.announce_key(MASTER, "home") == hkdf(b"hushmote/v1/home/+announce")


def test_every_device_and_fleet_has_a_key_of_its_own_and_none_is_the_announce_key():
    made = {
        keys.device_key(MASTER, fleet, device) for fleet in ("a", "b") for device in ("a", "b", "announce")
    }
    made |= {keys.announce_key(MASTER, fleet) for fleet in ("a", "b")}
    assert len(made) == 8
    with pytest.raises(topics.NameRefused):
        keys.device_key(MASTER, "a", "+announce")
    with pytest.raises(keys.MasterKeyError, match="must have 32"):
        keys.device_key(b"short", "a", "a")


def test_a_board_enrolls_in_a_signed_experiment_and_refuses_each_flipped_bit_of_the_signature():
    exp = experiment()
    announce = keys.announce_key(MASTER, "home")
    signed = keys.sign_experiment(announce, topics.experiment_topic("home", exp.name), payload_of(exp))
    assert signed[:-17] == payload_of(exp)
    board = client("k3f9x1", exp)
    strict = ldp_client.Client(board._policy, board._storage, "k3f9x1", None, announce, "home")
    assert strict.enroll(signed).digest == exp.digest
    for bit in range(8 * 16):
        flipped = bytearray(signed)
        flipped[-16 + bit // 8] ^= 1 << bit % 8
        with pytest.raises(ldp_client.ExperimentRefused, match="signature"):
            strict.enroll(bytes(flipped))
    elsewhere = keys.sign_experiment(announce, topics.experiment_topic("away", exp.name), payload_of(exp))
    with pytest.raises(ldp_client.ExperimentRefused, match="signature"):
        strict.enroll(elsewhere)


def test_a_new_master_key_is_read_back_and_only_its_owner_can_read_it(tmp_path):
    path = tmp_path / "master.key"
    made = master_key.create_master_key(path)
    assert master_key.load_master_key(path) == made
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(keys.MasterKeyError, match="exists"):
        master_key.create_master_key(path)
    assert master_key.load_master_key(path) == made
    with pytest.raises(keys.MasterKeyError, match="cannot write"):
        master_key.create_master_key(tmp_path / "nowhere" / "master.key")


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o601])
def test_a_master_key_file_that_others_can_open_is_refused(tmp_path, mode):
    path = tmp_path / "master.key"
    master_key.create_master_key(path)
    path.chmod(mode)
    with pytest.raises(keys.MasterKeyError, match="chmod 600"):
        master_key.load_master_key(path)


@pytest.mark.parametrize(
    "text", ["", "00" * 31, "00" * 33, "0g" * 32, "00" * 32 + "\n" + "00" * 32, "é" * 64]
)
def test_anything_but_64_hex_digits_is_refused_without_being_shown(tmp_path, text):
    path = tmp_path / "master.key"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(keys.MasterKeyError, match="64 hex digits") as caught:
        master_key.load_master_key(path)
    assert not text or text not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_environment_is_used_where_no_file_is_named(tmp_path):
    environ = {"HUSHMOTE_MASTER_KEY": MASTER.hex()}
    assert master_key.load_master_key(None, environ) == MASTER
    assert master_key.load_master_key(None, {}) is None
    with pytest.raises(keys.MasterKeyError, match="HUSHMOTE_MASTER_KEY"):
        master_key.load_master_key(None, {"HUSHMOTE_MASTER_KEY": "secret"})
    with pytest.raises(keys.MasterKeyError, match="No such file"):
        master_key.load_master_key(tmp_path / "absent", environ)


def test_during_a_rotation_a_file_holds_several_keys_and_the_first_is_in_force(tmp_path):
    path = tmp_path / "master.key"
    made = [bytes([i]) * 32 for i in range(5)]
    path.touch(0o600)
    path.write_text("\n".join(k.hex() for k in made[:4]) + "\n")
    assert master_key.load_master_keys(path) == tuple(made[:4])
    assert master_key.load_master_key(path) == made[0]
    path.write_text("\n".join(k.hex() for k in made))
    with pytest.raises(keys.MasterKeyError, match="at most 4"):
        master_key.load_master_keys(path)


def test_the_environment_holds_several_keys_with_commas_between():
    text = MASTER.hex() + "," + MASTER[::-1].hex()
    environ = {"HUSHMOTE_MASTER_KEY": text}
    assert master_key.load_master_keys(None, environ) == (MASTER, MASTER[::-1])
    assert master_key.load_master_keys(None, {}) == ()
    with pytest.raises(keys.MasterKeyError, match="64 hex digits") as caught:
        master_key.load_master_keys(None, {"HUSHMOTE_MASTER_KEY": text[:-1]})
    assert text[:10] not in str(caught.value)
