"""The Merkle tree agrees with RFC 6962's definitions at every small size, and refuses other proofs."""

import hashlib

import pytest

from hushmote.server.log.tree import ProofRefused, Tree, check_consistency, leaf_hash, node_hash

LEAVES = [leaf_hash(bytes([i])) for i in range(70)]
TREE = Tree(LEAVES)


def head(leaves):
    """Return the root by the RFC's recursion (section 2.1)."""
    if len(leaves) < 2:
        return leaves[0] if leaves else hashlib.sha256().digest()
    k = 1 << (len(leaves) - 1).bit_length() - 1
    return node_hash(head(leaves[:k]), head(leaves[k:]))


def subproof(m, leaves, is_root=True):
    """Return the consistency proof by the RFC's recursion (section 2.1.2)."""
    if m == len(leaves):
        return [] if is_root else [head(leaves)]
    k = 1 << (len(leaves) - 1).bit_length() - 1
    if m <= k:
        return [*subproof(m, leaves[:k], is_root), head(leaves[k:])]
    return [*subproof(m - k, leaves[k:], False), head(leaves[:k])]


class TestTree:
    def test_known_roots(self):
        # From RFC 6962's reference implementation: the empty tree, and leaves "", 00 and 10.
        known = Tree([leaf_hash(b""), leaf_hash(b"\0"), leaf_hash(b"\x10")])
        assert known.root(0).hex().startswith("e3b0c44298fc1c14")
        assert known.root(1).hex().startswith("6e340b9cffb37a98")
        assert known.root(2).hex().startswith("fac54203e7cc696c")
        assert known.root(3).hex().startswith("aeb6bcfe274b70a1")

    def test_every_root_and_consistency_proof(self):
        for size in range(len(LEAVES) + 1):
            assert TREE.root(size) == head(LEAVES[:size])
            for old in range(1, size + 1):
                proof = TREE.consistency(old, size)
                assert proof == subproof(old, LEAVES[:size])
                check_consistency(old, TREE.root(old), size, TREE.root(size), proof)

    def test_refuses_another_history(self):
        for size in range(2, 40):
            other = Tree([leaf_hash(b"other"), *LEAVES[1:size]])
            for old in range(1, size):
                proof = other.consistency(old, size)
                with pytest.raises(ProofRefused):
                    check_consistency(old, TREE.root(old), size, other.root(size), proof)

    def test_refuses_proofs_of_the_wrong_length(self):
        for size in range(2, 40):
            for old in range(1, size):
                proof = TREE.consistency(old, size)
                for wrong in (proof[:-1], [*proof, bytes(32)]):
                    with pytest.raises(ProofRefused):
                        check_consistency(old, TREE.root(old), size, TREE.root(size), wrong)

    def test_refuses_a_smaller_or_changed_tree(self):
        for old, size in ((3, 2), (2, 2)):
            with pytest.raises(ProofRefused):
                check_consistency(old, TREE.root(old), size, bytes(32), [])

    def test_sizes_beyond_the_tree(self):
        for call in (lambda: TREE.root(71), lambda: TREE.inclusion(5, 5), lambda: TREE.consistency(3, 2)):
            with pytest.raises(IndexError):
                call()
