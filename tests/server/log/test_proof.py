"""Proofs made by the server are accepted by the board's code and are the bytes of the wire format."""

import functools
import json
from dataclasses import replace
from pathlib import Path

import pytest
import reference_log
from log_witness import LOG

from hushmote.device import ldp_client, ldp_log
from hushmote.server.log.entry import Entry, experiment_entry
from hushmote.server.log.note import (
    COSIGNATURE,
    ECDSA,
    ED25519,
    Checkpoint,
    NoteRefused,
    PublicKey,
    SecretKey,
    board_keys,
    parse_signatures,
    valid_signatures,
)
from hushmote.server.log.proof import MOST_WITNESSES, encode_proof, signers_of
from hushmote.server.log.tree import Tree

VECTORS = json.loads(Path("tests/vectors_log.json").read_text("utf-8"))
WITNESSES = [SecretKey(f"w{i}.example", bytes([10 + i] * 32), bytes([20 + i] * 32)) for i in range(2)]
KEYS = [key.public(ECDSA) for key in (LOG, *WITNESSES)]
RULE = {"origin": LOG.name, "keys": board_keys(KEYS), "need": 2}
ENTRIES = [experiment_entry("home", f"e{i}", b'{"v":1}') for i in range(9)]


def cosigned(size):
    """Return a checkpoint of the first entries with all signatures."""
    tree = Tree(entry.leaf for entry in ENTRIES[:size])
    own = LOG.sign_tree(size, tree.root())
    lines = (line for key in WITNESSES for line in key.cosign(own.text, 1_800_000_000))
    return replace(own, signatures=(*own.signatures, *lines))


class TestProof:
    @pytest.mark.parametrize("case", VECTORS["proofs"])
    def test_vectors(self, case):
        topic = f"hushmote/v1/{case['fleet']}/experiment/{case['name']}"
        parts = bytes.fromhex(case["payload"]), bytes.fromhex(case["proof"])
        check = functools.partial(ldp_log.verify, VECTORS["logs"][case["log"]], topic, *parts, lambda: None)
        if case["refused"] is None:
            assert check() == case["index"]
        else:
            with pytest.raises(ldp_client.ExperimentRefused, match=f"^{case['refused']}$"):
                check()

    def test_server_makes_what_boards_accept(self):
        for size in range(1, 10):
            tree = Tree(entry.leaf for entry in ENTRIES)
            for index in range(size):
                proof = encode_proof(tree, index, cosigned(size), KEYS)
                entry = ENTRIES[index]
                assert ldp_log.verify(RULE, entry.key, entry.content, proof, lambda: None) == index
                assert len(proof) == 9 + 32 * len(reference_log.path_shape(index, size)) + 64 + 2 * 68

    def test_board_feeds_its_watchdog_before_each_signature(self):
        fed = []
        proof = encode_proof(Tree(entry.leaf for entry in ENTRIES), 0, cosigned(9), KEYS)
        ldp_log.verify(RULE, ENTRIES[0].key, ENTRIES[0].content, proof, lambda: fed.append(1))
        assert len(fed) == 3

    def test_leaves_out_keys_that_have_not_signed(self):
        whole = cosigned(9)
        some = replace(whole, signatures=(*whole.signatures[:2], *whole.signatures[4:]))
        proof = encode_proof(Tree(entry.leaf for entry in ENTRIES), 3, some, KEYS)
        assert signers_of(proof, KEYS) == [KEYS[0], KEYS[2]]
        assert (
            ldp_log.verify(RULE | {"need": 1}, ENTRIES[3].key, ENTRIES[3].content, proof, lambda: None) == 3
        )

    def test_boards_of_different_policies_take_one_proof(self):
        proof = encode_proof(Tree(entry.leaf for entry in ENTRIES), 3, cosigned(9), KEYS)
        other = SecretKey("w9.example", bytes([90] * 32), bytes([91] * 32)).public(ECDSA)
        verify = functools.partial(
            ldp_log.verify, topic=ENTRIES[3].key, payload=ENTRIES[3].content, proof=proof
        )
        log, first, second = KEYS
        for witnesses, need in (
            ([first], 1),
            ([second, first], 2),
            ([second, other], 1),
            ([other, first], 1),
        ):
            rule = {"origin": LOG.name, "keys": board_keys([log, *witnesses]), "need": need}
            assert verify(rule, feed=lambda: None) == 3
        rule = {"origin": LOG.name, "keys": board_keys([log, first, other]), "need": 2}
        with pytest.raises(ldp_client.ExperimentRefused, match="too few witnesses"):
            verify(rule, feed=lambda: None)

    @pytest.mark.parametrize("need", [7, 12])
    def test_board_verifies_no_more_signatures_than_it_needs(self, need):
        many = [SecretKey(f"w{i}.example", bytes([40 + i] * 32), bytes([60 + i] * 32)) for i in range(12)]
        own = LOG.sign_tree(1, Tree([ENTRIES[0].leaf]).root())
        lines = (line for key in many for line in key.cosign(own.text, 1_800_000_000))
        keys = [key.public(ECDSA) for key in (LOG, *many)]
        checkpoint = replace(own, signatures=(*own.signatures, *lines))
        proof = encode_proof(Tree([ENTRIES[0].leaf]), 0, checkpoint, keys)
        rule, fed = {"origin": LOG.name, "keys": board_keys(keys), "need": need}, []
        ldp_log.verify(rule, ENTRIES[0].key, ENTRIES[0].content, proof, lambda: fed.append(1))
        assert (len(proof), len(fed)) == (9 + 64 + 12 * 68, 1 + need)
        rule["keys"][1:] = [f"{n:08x}" + 120 * "0" for n in range(7)]  # none that has signed
        with pytest.raises(ldp_client.ExperimentRefused, match="too few witnesses"):
            ldp_log.verify(rule, ENTRIES[0].key, ENTRIES[0].content, proof, lambda: fed.append(1))
        assert len(fed) == 1 + need + 1

    @pytest.mark.parametrize(("hashes", "count"), [(22, MOST_WITNESSES), (23, 11), (32, 7)])
    def test_has_as_many_witnesses_as_boards_have_room_for(self, hashes, count):
        class HighTree(Tree):
            def inclusion(self, index, size):
                return [bytes(32)] * hashes

        secrets = [SecretKey(f"w{i}.example", bytes([40 + i] * 32), bytes([60 + i] * 32)) for i in range(12)]
        tree = HighTree([ENTRIES[0].leaf])
        own = LOG.sign_tree(1, tree.root())
        lines = (line for key in secrets for line in key.cosign(own.text, 1_800_000_000))
        keys = [key.public(ECDSA) for key in (LOG, *secrets)]
        proof = encode_proof(tree, 0, replace(own, signatures=(*own.signatures, *lines)), keys)
        assert len(proof) <= 1_600
        assert signers_of(proof, keys) == keys[: 1 + count]

    def test_refuses_a_checkpoint_of_another_log(self):
        with pytest.raises(NoteRefused, match="belongs to another log"):
            encode_proof(Tree(entry.leaf for entry in ENTRIES[1:]), 0, cosigned(8), KEYS)


class TestNote:
    def test_example_of_the_specification(self):
        key = PublicKey.parse("example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k")
        (line,) = parse_signatures(
            "— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuw"
            "HjG1Yu72IneyaQM=\n"
        )
        assert str(key) == "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
        assert key.verify("This is an example message.\n", line)
        assert not key.verify("This is another message.\n", line)

    @pytest.mark.parametrize("kind", [ED25519, ECDSA, COSIGNATURE])
    def test_keys_as_text(self, kind):
        key = LOG.public(kind)
        assert PublicKey.parse(str(key)) == key
        for wrong in (
            str(key)[:-4],
            str(key).replace("+", "-", 1),
            str(key)[:-1],
            f"{str(key)[:-8]}AAAAAAA=",
        ):
            with pytest.raises(NoteRefused):
                PublicKey.parse(wrong)

    def test_checkpoint_as_text(self):
        note = cosigned(7)
        assert Checkpoint.parse(str(note)) == note
        trusted = [*KEYS, LOG.public(ED25519), *(key.public(COSIGNATURE) for key in WITNESSES)]
        assert set(valid_signatures(note, trusted)) == set(trusted)

    @pytest.mark.parametrize(
        "note",
        [
            "",
            "a\n1\n\n",
            f"a\n01\n{'A' * 43}=\n\n",
            f"a\n{2**32}\n{'A' * 43}=\n\n",
            f"a b\n1\n{'A' * 43}=\n\n",
            f"a\n1\n{'A' * 42}B=\n\n",
            f"a\n1\n{'A' * 43}=\nextension\n\n",
            f"a\n1\n{'A' * 43}=\n\nno line\n",
            f"a\n1\n{'A' * 43}=\n\n— a AAAA\n",
        ],
    )
    def test_refuses_malformed_checkpoints(self, note):
        with pytest.raises(NoteRefused):
            Checkpoint.parse(note)

    def test_a_trusted_key_with_a_wrong_signature(self):
        note, other = cosigned(7), cosigned(6)
        mixed = replace(note, signatures=other.signatures)
        with pytest.raises(NoteRefused, match="is wrong"):
            valid_signatures(mixed, KEYS)

    def test_secret_key_as_text(self):
        assert SecretKey.parse(str(LOG)) == LOG
        assert "01" * 32 not in repr(LOG)
        for wrong in (
            "",
            "[]",
            '{"name":"a"}',
            str(LOG).replace("02" * 32, "00" * 32),
            str(LOG).replace("ex", " x"),
        ):
            with pytest.raises(NoteRefused):
                SecretKey.parse(wrong)


class TestEntry:
    def test_entries_as_bytes(self):
        for entry in ENTRIES:
            assert Entry.parse(bytes(entry)) == entry
        assert ENTRIES[0].leaf == reference_log.leaf_of(ENTRIES[0].key, ENTRIES[0].content)

    @pytest.mark.parametrize(
        "data", [b"", b"x", b"x\0y", b"hushmote/v1/a/report/b\0", b"\xff\0", b"hushmote/policy/A\0"]
    )
    def test_refuses_other_keys(self, data):
        with pytest.raises(NoteRefused):
            Entry.parse(data)
