"""Keys: derived as RFC 5869 says, never confused."""

import pytest
from boards import MASTER, client, experiment, payload_of
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hushmote.device import ldp_client
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
