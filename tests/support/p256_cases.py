"""Signatures that expose mistakes in ECDSA P-256 verification, for clients in any language."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256

from hushmote.device import ldp_p256
from hushmote.server.wire import keys

VECTORS = Path(__file__).parents[1] / "data" / "p256_wycheproof.txt"
P = 2**256 - 2**224 + 2**192 + 2**96 - 1
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def vectors() -> Iterator[tuple[bytes, bytes, bytes, bool, set[str]]]:
    """Return every case: public key, digest, signature, Wycheproof's verdict and its flags."""
    key = b""
    for line in VECTORS.read_text(encoding="ascii").splitlines():
        words = line.split()
        if words[0] == "key":
            key = bytes.fromhex(words[1] + words[2])
        elif words[0] != "#":
            message, signature = ("" if w == "-" else w for w in words[3:])
            digest = hashlib.sha256(bytes.fromhex(message)).digest()
            yield key, digest, bytes.fromhex(signature), words[1] == "valid", set(words[2].split(","))


def with_low_s(signature: bytes) -> bytes | None:
    """Return the signature with low s, or None if s is already low or missing."""
    s = int.from_bytes(signature[32:], "big")
    if len(signature) != 64 or not ORDER // 2 < s < ORDER:
        return None
    return signature[:32] + (ORDER - s).to_bytes(32, "big")


def signed_for(x: int, y: int) -> tuple[bytes, bytes] | None:
    """Return a digest and signature for a point with unknown private key, or None if s is high.

    Verifying adds the point to G, once: that gives r, and s and the digest follow from it.
    """
    slope = (y - ldp_p256._G[1]) * pow(x - ldp_p256._G[0], -1, P)
    r = (slope**2 - x - ldp_p256._G[0]) % P % ORDER
    if r > ORDER // 2:
        return None
    return r.to_bytes(32, "big"), r.to_bytes(32, "big") * 2


def judged_by_another_library(key: bytes, digest: bytes, signature: bytes) -> bool:
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    try:
        public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x04" + key)
        scheme = ec.ECDSA(utils.Prehashed(SHA256()))
        public.verify(utils.encode_dss_signature(r, s), digest, scheme)
    except (InvalidSignature, ValueError):
        return False
    return s <= ORDER // 2


def craft_signature(secret: int, u: int, v: int) -> tuple[bytes, bytes, bytes]:
    """Return a public key, digest and signature for which verification computes u * G + v * key."""
    number = (u + v * secret) % ORDER
    r = ec.derive_private_key(number, ec.SECP256R1()).public_key().public_numbers().x % ORDER
    s = r * pow(v, -1, ORDER) % ORDER
    digest = u * s % ORDER
    key = keys.public_key_bytes(secret.to_bytes(32, "big"))
    return key, digest.to_bytes(32, "big"), r.to_bytes(32, "big") + s.to_bytes(32, "big")
