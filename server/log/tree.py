"""The Merkle tree of a log (RFC 6962, section 2): its root, and proofs of inclusion and consistency."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

HASH_BYTES = 32


class ProofRefused(ValueError):
    """Raised for a proof that does not verify."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry."""
    return hashlib.sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two neighbouring subtrees."""
    return hashlib.sha256(b"\1" + left + right).digest()


class Tree:
    """A tree that grows at its right end.

    It keeps the hash of each complete subtree, twice as many hashes as leaves, so every root and proof of
    the tree at any earlier size takes O(log size) hashes.

    Args:
        leaves: Leaf hashes to begin with.
    """

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        self._levels: list[list[bytes]] = [[]]  # [k][i]: the subtree of leaves i * 2**k to (i + 1) * 2**k - 1
        for leaf in leaves:
            self.append(leaf)

    def copy(self) -> Tree:
        """Return a tree with the same leaves, which grows on its own."""
        tree = Tree()
        tree._levels = [list(level) for level in self._levels]
        return tree

    @property
    def size(self) -> int:
        """The number of leaves."""
        return len(self._levels[0])

    def append(self, leaf: bytes) -> None:
        """Add a leaf's hash."""
        level = 0
        self._levels[0].append(leaf)
        while len(self._levels[level]) % 2 == 0:
            if level + 1 == len(self._levels):
                self._levels.append([])
            self._levels[level + 1].append(node_hash(*self._levels[level][-2:]))
            level += 1

    def complete(self, level: int, start: int, end: int) -> Sequence[bytes]:
        """Return the hashes of the complete subtrees of 2**level leaves, from start up to end, exclusive."""
        return self._levels[level][start:end] if level < len(self._levels) else []

    def root(self, size: int | None = None) -> bytes:
        """Return the root of the first `size` leaves; None for all."""
        return self._hash(0, self._checked(size))

    def inclusion(self, index: int, size: int | None = None) -> list[bytes]:
        """Return the proof that a leaf is in the tree of the first `size` leaves, lowest hash first.

        Raises:
            IndexError: If that tree does not have the leaf.
        """
        end = self._checked(size)
        if not 0 <= index < end:
            raise IndexError(f"a tree of size {end} has no leaf {index}")
        start, path = 0, []
        while end - start > 1:
            middle = start + _split(end - start)
            if index < middle:
                path.append(self._hash(middle, end))
                end = middle
            else:
                path.append(self._hash(start, middle))
                start = middle
        return path[::-1]

    def consistency(self, old: int, size: int | None = None) -> list[bytes]:
        """Return the proof that the tree of the first `old` leaves is a beginning of that of `size` leaves.

        Raises:
            IndexError: If old is above size.
        """
        end = self._checked(size)
        if not 0 <= old <= end:
            raise IndexError(f"a tree of size {end} does not begin with one of size {old}")
        start, path = 0, []
        while old not in (start, end):
            middle = start + _split(end - start)
            if old <= middle:
                path.append(self._hash(middle, end))
                end = middle
            else:
                path.append(self._hash(start, middle))
                start = middle
        if start and old:  # the old tree is not the subtree itself, whose hash is its root
            path.append(self._hash(start, end))
        return path[::-1]

    def _checked(self, size: int | None) -> int:
        if size is not None and not 0 <= size <= self.size:
            raise IndexError(f"the tree has {self.size} leaves, not {size}")
        return self.size if size is None else size

    def _hash(self, start: int, end: int) -> bytes:
        count = end - start
        if not count:
            return hashlib.sha256().digest()
        if not count & (count - 1):  # RFC 6962 splits only at multiples of such a count
            level = count.bit_length() - 1
            return self._levels[level][start >> level]
        middle = start + _split(count)
        return node_hash(self._hash(start, middle), self._hash(middle, end))


class Edge:
    """The right edge of a tree, which is enough to append leaves and to compute the root.

    Args:
        size: The number of leaves.
        hashes: Those of the complete subtrees at the edge, largest first.

    Raises:
        ValueError: If a tree of this size has another number of them.
    """

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        self.size = size
        self.hashes = list(hashes)
        if size < 0 or len(self.hashes) != size.bit_count():
            raise ValueError(f"a tree of {size} leaves has {size.bit_count()} hashes at its edge")

    def append(self, leaf: bytes) -> None:
        """Add a leaf's hash."""
        self.hashes.append(leaf)
        rest = self.size
        while rest & 1:
            right = self.hashes.pop()
            self.hashes[-1] = node_hash(self.hashes[-1], right)
            rest >>= 1
        self.size += 1

    @property
    def root(self) -> bytes:
        """The tree's root."""
        *lefts, root = self.hashes or [hashlib.sha256().digest()]
        for left in reversed(lefts):
            root = node_hash(left, root)
        return root


def check_consistency(old: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> None:
    """Check a proof that one tree is the beginning of another (RFC 9162, section 2.1.4.2).

    Raises:
        ProofRefused: If it is not, or if the proof does not show it.
    """
    refused = ProofRefused(f"the tree of size {size} does not continue the one of size {old}")
    if not 0 <= old <= size:
        raise refused
    if old in (0, size):
        if proof or (old == size and old_root != root):
            raise refused
        return
    path = list(proof) if old & (old - 1) else [old_root, *proof]
    if not path:
        raise refused
    at, last = old - 1, size - 1
    while at & 1:
        at, last = at >> 1, last >> 1
    first = second = path[0]
    for sibling in path[1:]:
        if not last:
            raise refused
        if at & 1 or at == last:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while at and not at & 1:
                at, last = at >> 1, last >> 1
        else:
            second = node_hash(second, sibling)
        at, last = at >> 1, last >> 1
    if last or (first, second) != (old_root, root):
        raise refused


def _split(count: int) -> int:
    """Return the largest power of two below a count of at least 2."""
    return 1 << (count - 1).bit_length() - 1
