"""The proof that boards read from the topic next to an experiment's."""

from __future__ import annotations

from collections.abc import Sequence

from ..wire import topics
from .note import Checkpoint, NoteRefused, PublicKey, board_signature, valid_signatures
from .tree import Tree

MOST_WITNESSES = 12  # their signatures fit into a proof from a log of up to 4 million entries
_MOST_BYTES = 1_600  # of a proof that boards read
_HASH_BYTES = 32
_SIGNATURE_BYTES = 64
_START_BYTES = 4  # of a witness's key, by which boards know whose signature follows


def proof_topic(fleet: str, name: str) -> str:
    """Return the topic on which an experiment's proof is retained.

    Raises:
        NameRefused: If a name is invalid.
    """
    return f"{topics.ROOT}/{topics.check_fleet(fleet)}/proof/{topics.check_fleet(name)}"


def start_of(key: PublicKey) -> bytes:
    """Return the bytes by which a proof names a witness."""
    return key.value[:_START_BYTES]


def encode_proof(tree: Tree, index: int, checkpoint: Checkpoint, keys: Sequence[PublicKey]) -> bytes:
    """Return the proof that a checkpoint has an entry; device/ldp_log.py describes its bytes.

    Args:
        tree: The log's tree, at least as large as the checkpoint.
        index: The entry's index.
        checkpoint: A checkpoint with its signatures.
        keys: The log's P-256 key, then those of witnesses; those that have not signed are left out, and the
            last ones that do not fit.

    Raises:
        NoteRefused: If a signature is wrong, or the checkpoint is not of this tree.
        IndexError: If the checkpoint does not have the entry.
    """
    if tree.root(checkpoint.size) != checkpoint.root:
        raise NoteRefused(f"the checkpoint of size {checkpoint.size} belongs to another log")
    lines = valid_signatures(checkpoint, keys)
    path = tree.inclusion(index, checkpoint.size)
    head = index.to_bytes(4, "big") + checkpoint.size.to_bytes(4, "big") + bytes([len(path)])
    head += b"".join(path) + board_signature(lines[keys[0]].value)
    most = (_MOST_BYTES - len(head)) // (_START_BYTES + _SIGNATURE_BYTES)
    signers = [key for key in keys[1:] if key in lines][:most]
    return head + b"".join(start_of(key) + board_signature(lines[key].value) for key in signers)


def signers_of(proof: bytes, keys: Sequence[PublicKey]) -> list[PublicKey]:
    """Return the keys that have signed a proof, without a check; the log's is the first of `keys`."""
    first = 9 + _HASH_BYTES * proof[8] + _SIGNATURE_BYTES
    ends = range(first, len(proof), _START_BYTES + _SIGNATURE_BYTES)
    starts = {proof[at : at + _START_BYTES] for at in ends}
    return [keys[0], *(key for key in keys[1:] if start_of(key) in starts)]
