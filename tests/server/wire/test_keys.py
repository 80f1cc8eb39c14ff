"""Derived keys follow RFC 5869; signatures follow RFC 6979 and FIPS 186-5."""

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


class TestDeviceKey:
    def test_is_hkdf_sha256(self):
        def hkdf(info):
            return HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(MASTER)

        assert keys.device_key(MASTER, "home", "k3f9x1") == hkdf(b"hushmote/v1/home/k3f9x1")

    def test_differs_for_every_device_and_fleet(self):
        device_keys = {
            keys.device_key(MASTER, fleet, device) for fleet in ("a", "b") for device in ("a", "b", "c")
        }
        assert len(device_keys) == 6
        with pytest.raises(topics.NameRefused):
            keys.device_key(MASTER, "a", "+announce")
        with pytest.raises(keys.MasterKeyError, match="must have 32"):
            keys.device_key(b"short", "a", "a")


def rfc_6979_nonce(key: bytes, digest: bytes) -> int:
    """Return the nonce from RFC 6979, section 3.2, for P-256 and SHA-256."""
    reduced = (int.from_bytes(digest, "big") % ORDER).to_bytes(32, "big")
    v, k = b"\1" * 32, bytes(32)
    for separator in (b"\0", b"\1"):
        k = hmac.digest(k, v + separator + key + reduced, "sha256")
        v = hmac.digest(k, v, "sha256")
    v = hmac.digest(k, v, "sha256")
    assert 0 < int.from_bytes(v, "big") < ORDER  # otherwise RFC 6979 continues, once in 2**32 times
    return int.from_bytes(v, "big")


class TestSignedElsewhere:
    """A version's two messages, signed on a machine that has the signing key."""

    ANNOUNCE = keys.public_key_bytes(SIGNING)
    BODY = payload_of(experiment())

    def test_messages_equal_those_signed_with_the_key(self):
        pair = keys.sign_version(SIGNING, TOPIC, self.BODY, 7)
        assert keys.signed_messages(self.ANNOUNCE, TOPIC, self.BODY, pair) == (
            keys.sign_experiment(SIGNING, TOPIC, self.BODY, 7),
            keys.sign_experiment(SIGNING, TOPIC, b"", 8),
        )

    def test_rejects_every_other_use_of_the_signatures(self):
        pair = keys.sign_version(SIGNING, TOPIC, self.BODY, 7)
        other = keys.sign_version(SIGNING, TOPIC, self.BODY, 9)
        for key, topic, body, signatures in (
            (keys.public_key_bytes(MASTER), TOPIC, self.BODY, pair),
            (self.ANNOUNCE, topics.experiment_topic("away", "temp"), self.BODY, pair),
            (self.ANNOUNCE, TOPIC, self.BODY + b" ", pair),
            (self.ANNOUNCE, TOPIC, self.BODY, replace(pair, serial=8)),
            (self.ANNOUNCE, TOPIC, self.BODY, replace(pair, withdrawal=other.withdrawal)),
            (self.ANNOUNCE, TOPIC, self.BODY, replace(pair, announcement=pair.withdrawal)),
            (self.ANNOUNCE, TOPIC, self.BODY, replace(pair, announcement=b"")),
        ):
            assert keys.signed_messages(key, topic, body, signatures) is None


class TestSigning:
    def test_experiment_signature_verifies_with_another_library(self):
        body = payload_of(experiment())
        message = keys.sign_experiment(SIGNING, TOPIC, body, 0x01020304)
        assert message[:-64] == body + b"\0\x01\x02\x03\x04"
        announce = keys.public_key_bytes(SIGNING)
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x04" + announce)
        r, s = int.from_bytes(message[-64:-32], "big"), int.from_bytes(message[-32:], "big")
        der = utils.encode_dss_signature(r, s)
        public.verify(der, TOPIC.encode() + b"\0" + message[:-64], ec.ECDSA(SHA256()))
        for other in (
            TOPIC.encode() + b"\0" + body + b"\0\x01\x02\x03\x05",
            topics.experiment_topic("away", "temp").encode() + b"\0" + message[:-64],
        ):
            with pytest.raises(InvalidSignature):
                public.verify(der, other, ec.ECDSA(SHA256()))

    def test_is_deterministic_with_lower_s(self):
        lower = set()
        for serial in range(64):  # all 64 are low by chance once in 2**64 runs
            message = keys.sign_experiment(SIGNING, TOPIC, b"{}", serial)
            assert message == keys.sign_experiment(bytes(SIGNING), TOPIC, b"{}", serial)
            digest = hashlib.sha256(TOPIC.encode() + b"\0" + message[:-64]).digest()
            nonce = rfc_6979_nonce(SIGNING, digest)
            r = ec.derive_private_key(nonce, ec.SECP256R1()).public_key().public_numbers().x % ORDER
            s = (
                (int.from_bytes(digest, "big") + r * int.from_bytes(SIGNING, "big"))
                * pow(nonce, -1, ORDER)
                % ORDER
            )
            lower.add(s <= ORDER // 2)
            assert message[-64:] == r.to_bytes(32, "big") + min(s, ORDER - s).to_bytes(32, "big")
        assert lower == {True, False}

    @pytest.mark.parametrize(
        "key",
        [b"", bytes(31), bytes(32), bytes(33), ORDER.to_bytes(32, "big"), b"\xff" * 32, b"\1" * 31],
        ids=["empty", "31 zeros", "32 zeros", "33 zeros", "order", "above the order", "31 bytes"],
    )
    def test_rejects_invalid_p256_key(self, key):
        for use in (lambda: keys.public_key_bytes(key), lambda: keys.sign_experiment(key, TOPIC, b"{}", 1)):
            with pytest.raises(keys.MasterKeyError, match="signing key must be 32 bytes"):
                use()


class TestFleetKeys:
    def test_must_include_the_stored_master(self):
        old, strange = MASTER, bytes(32)
        check = keys.master_check(old, "home")
        for masters in ((old,), (strange, old)):
            keys.check_masters(keys.FleetKeys(masters, SIGNING), "home", check)
        with pytest.raises(keys.MasterKeyError, match="this is not the master key of fleet home"):
            keys.check_masters(keys.FleetKeys((strange,), SIGNING), "home", check)
        with pytest.raises(keys.MasterKeyError, match="this is not the master key of fleet lab"):
            keys.check_masters(keys.FleetKeys((old,), SIGNING), "lab", check)
        keys.check_masters(None, "home", check)
        keys.check_masters(keys.FleetKeys((strange,), SIGNING), "home", None)

    def test_hide_secrets_in_repr(self):
        text = repr(keys.FleetKeys((MASTER,), SIGNING))
        assert repr(MASTER) not in text
        assert repr(SIGNING) not in text
