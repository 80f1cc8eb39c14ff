"""Proofs of a log's entries, written from the wire format with recursion; it must not import the product."""

import base64
import hashlib
from collections.abc import Sequence

import reference_board as ref
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature


def leaf_of(topic: str, payload: bytes) -> bytes:
    """Return the hash of an experiment's entry."""
    return hashlib.sha256(b"\0" + topic.encode() + b"\0" + payload).digest()


def path_shape(index: int, size: int) -> list[bool]:
    """Return for each hash of a leaf's path, lowest first, whether it is to the right of the leaf."""
    if size == 1:
        return []
    left = 1
    while 2 * left < size:
        left *= 2
    if index < left:
        return [*path_shape(index, left), True]
    return [*path_shape(index - left, size - left), False]


def root_of(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Return the root that a path of this length leads to."""
    node = leaf
    for sibling, is_right in zip(path, path_shape(index, size), strict=True):
        node = hashlib.sha256(b"\1" + (node + sibling if is_right else sibling + node)).digest()
    return node


def body_of(origin: str, size: int, root: bytes) -> bytes:
    """Return the text of a checkpoint."""
    return f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n".encode()


def signature_of(private: int, body: bytes) -> bytes:
    """Return r and s of a checkpoint's signature, with s in its lower half."""
    algorithm = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
    r, s = decode_dss_signature(ec.derive_private_key(private, ec.SECP256R1()).sign(body, algorithm))
    return r.to_bytes(32, "big") + min(s, ref.P256_ORDER - s).to_bytes(32, "big")


def packed(index: int, size: int, path: Sequence[bytes], log: bytes, witnesses: dict[bytes, bytes]) -> bytes:
    """Return a proof's bytes.

    Args:
        index: The entry's index.
        size: The tree's size.
        path: The hashes, lowest first.
        log: The log's signature.
        witnesses: The signatures of witnesses, by the first bytes of their keys.
    """
    head = index.to_bytes(4, "big") + size.to_bytes(4, "big") + bytes([len(path)]) + b"".join(path)
    return head + log + b"".join(start + signature for start, signature in witnesses.items())


def proof_of(
    origin: str,
    private: Sequence[int],
    signers: Sequence[int],
    topic: str,
    payload: bytes,
    index: int,
    size: int,
) -> bytes:
    """Return a valid proof in a tree of any size, whose other hashes are made up.

    Args:
        origin: The log's origin.
        private: The private keys of the log and the witnesses.
        signers: Which of them sign; the first one in place of the log.
        topic: The experiment's topic.
        payload: The message on it.
        index: The entry's index.
        size: The tree's size.
    """
    path = [
        hashlib.sha256(b"%d/%d/%d" % (index, size, at)).digest() for at in range(len(path_shape(index, size)))
    ]
    body = body_of(origin, size, root_of(leaf_of(topic, payload), index, size, path))
    log, *witnesses = (signature_of(private[key], body) for key in signers)
    starts = (ref.public_key(private[key])[:4] for key in signers[1:])
    return packed(index, size, path, log, dict(zip(starts, witnesses, strict=True)))
