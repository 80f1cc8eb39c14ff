"""Keys: derived as RFC 5869 says, signatures as RFC 6979 and FIPS 186-5 say; never confused."""

import hashlib
import hmac
from dataclasses import replace

import pytest
from boards import MASTER, SIGNING, experiment, payload_of
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hushmote.server.wire import keys, topics

TOPIC = topics.experiment_topic("home", "temp")
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def test_device_keys_are_hkdf_sha256_as_another_library_computes_it():
    def hkdf(info):
        return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(MASTER)

    assert keys.device_key(MASTER, "home", "k3f9x1") == hkdf(b"hushmote/v1/home/k3f9x1")


def test_every_device_of_every_fleet_has_a_key_of_its_own():
    made = {keys.device_key(MASTER, fleet, device) for fleet in ("a", "b") for device in ("a", "b", "c")}
    assert len(made) == 6
    with pytest.raises(topics.NameRefused):
        keys.device_key(MASTER, "a", "+announce")
    with pytest.raises(keys.MasterKeyError, match="must have 32"):
        keys.device_key(b"short", "a", "a")


def test_what_is_retained_is_json_zero_byte_serial_and_a_signature_that_another_library_accepts():
    body = payload_of(experiment())
    signed = keys.sign_experiment(SIGNING, TOPIC, body, 0x01020304)
    assert signed[:-64] == body + b"\0\x01\x02\x03\x04"
    announce = keys.public_key_bytes(SIGNING)
    public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x04" + announce)
    r, s = int.from_bytes(signed[-64:-32], "big"), int.from_bytes(signed[-32:], "big")
    der = utils.encode_dss_signature(r, s)
    public.verify(der, TOPIC.encode() + b"\0" + signed[:-64], ec.ECDSA(SHA256()))
    for other in (
        TOPIC.encode() + b"\0" + body + b"\0\x01\x02\x03\x05",
        topics.experiment_topic("away", "temp").encode() + b"\0" + signed[:-64],
    ):
        with pytest.raises(InvalidSignature):
            public.verify(der, other, ec.ECDSA(SHA256()))


def rfc_6979_nonce(key: bytes, digest: bytes) -> int:
    """RFC 6979, 3.2, for P-256 and SHA-256, by its text."""
    reduced = (int.from_bytes(digest, "big") % ORDER).to_bytes(32, "big")
    v, k = b"\1" * 32, bytes(32)
    for separator in (b"\0", b"\1"):
        k = hmac.digest(k, v + separator + key + reduced, "sha256")
        v = hmac.digest(k, v, "sha256")
    v = hmac.digest(k, v, "sha256")
    assert 0 < int.from_bytes(v, "big") < ORDER  # else it would go on; once in 2**32 times
    return int.from_bytes(v, "big")


def test_two_aggregators_sign_with_the_same_bytes_and_always_with_the_lower_s():
    lower = set()
    for serial in range(64):  # all 64 low by chance: once in 2**64 runs
        signed = keys.sign_experiment(SIGNING, TOPIC, b"{}", serial)
        assert signed == keys.sign_experiment(bytes(SIGNING), TOPIC, b"{}", serial)
        digest = hashlib.sha256(TOPIC.encode() + b"\0" + signed[:-64]).digest()
        nonce = rfc_6979_nonce(SIGNING, digest)
        r = ec.derive_private_key(nonce, ec.SECP256R1()).public_key().public_numbers().x % ORDER
        s = (
            (int.from_bytes(digest, "big") + r * int.from_bytes(SIGNING, "big"))
            * pow(nonce, -1, ORDER)
            % ORDER
        )
        lower.add(s <= ORDER // 2)
        assert signed[-64:] == r.to_bytes(32, "big") + min(s, ORDER - s).to_bytes(32, "big")
    assert lower == {True, False}


class TestSignedElsewhere:
    """Both messages of a version, made by somebody who has the signing key."""

    ANNOUNCE = keys.public_key_bytes(SIGNING)
    BODY = payload_of(experiment())

    def test_messages_are_those_that_the_signing_key_makes(self):
        made = keys.sign_version(SIGNING, TOPIC, self.BODY, 7)
        assert keys.signed_messages(self.ANNOUNCE, TOPIC, self.BODY, made) == (
            keys.sign_experiment(SIGNING, TOPIC, self.BODY, 7),
            keys.sign_experiment(SIGNING, TOPIC, b"", 8),
        )

    def test_rejects_every_other_use_of_the_signatures(self):
        made = keys.sign_version(SIGNING, TOPIC, self.BODY, 7)
        other = keys.sign_version(SIGNING, TOPIC, self.BODY, 9)
        for key, topic, body, signatures in (
            (keys.public_key_bytes(MASTER), TOPIC, self.BODY, made),
            (self.ANNOUNCE, topics.experiment_topic("away", "temp"), self.BODY, made),
            (self.ANNOUNCE, TOPIC, self.BODY + b" ", made),
            (self.ANNOUNCE, TOPIC, self.BODY, replace(made, serial=8)),
            (self.ANNOUNCE, TOPIC, self.BODY, replace(made, withdrawal=other.withdrawal)),
            (self.ANNOUNCE, TOPIC, self.BODY, replace(made, announcement=made.withdrawal)),
            (self.ANNOUNCE, TOPIC, self.BODY, replace(made, announcement=b"")),
        ):
            assert keys.signed_messages(key, topic, body, signatures) is None


@pytest.mark.parametrize(
    "key", [b"", bytes(31), bytes(32), bytes(33), ORDER.to_bytes(32, "big"), b"\xff" * 32, b"\1" * 31]
)
def test_a_signing_key_that_is_no_p_256_key_is_refused(key):
    for use in (lambda: keys.public_key_bytes(key), lambda: keys.sign_experiment(key, TOPIC, b"{}", 1)):
        with pytest.raises(keys.MasterKeyError, match="signing key must be 32 bytes"):
            use()


def test_keys_are_not_shown():
    shown = repr(keys.FleetKeys((MASTER,), SIGNING))
    assert repr(MASTER) not in shown
    assert repr(SIGNING) not in shown
