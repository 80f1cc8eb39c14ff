"""The proof that boards read from the topic next to an experiment's."""

from __future__ import annotations

from collections.abc import Sequence

from ..wire import topics
from .note import Checkpoint, NoteRefused, PublicKey, board_signature, valid_signatures
from .tree import Tree


def proof_topic(fleet: str, name: str) -> str:
    """Return the topic on which an experiment's proof is retained.

    Raises:
        NameRefused: If a name is invalid.
    """
    return f"{topics.ROOT}/{topics.check_fleet(fleet)}/proof/{topics.check_fleet(name)}"


def encode_proof(tree: Tree, index: int, checkpoint: Checkpoint, keys: Sequence[PublicKey]) -> bytes:
    """Return the proof that a checkpoint has an entry; device/ldp_log.py describes its bytes.

    Args:
        tree: The log's tree, at least as large as the checkpoint.
        index: The entry's index.
        checkpoint: A checkpoint with its signatures.
        keys: The P-256 keys of a policy, the log's first; those that have not signed are left out.

    Raises:
        NoteRefused: If a signature is wrong, or the checkpoint is not of this tree.
        IndexError: If the checkpoint does not have the entry.
    """
    if tree.root(checkpoint.size) != checkpoint.root:
        raise NoteRefused(f"the checkpoint of size {checkpoint.size} belongs to another log")
    lines = valid_signatures(checkpoint, keys)
    path = tree.inclusion(index, checkpoint.size)
    head = index.to_bytes(4, "big") + checkpoint.size.to_bytes(4, "big") + bytes([len(path)])
    signatures = (
        bytes([at]) + board_signature(lines[key].value) for at, key in enumerate(keys) if key in lines
    )
    return head + b"".join(path) + b"".join(signatures)
