"""Random proofs of a log, made by the reference, and mutants of each that no client may accept."""

from __future__ import annotations

import functools
import itertools
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import reference_board as ref
import reference_log

from hushmote.device import ldp_client, ldp_log

COUNT = 2_000 if os.environ.get("LONG") else 100
MUTANTS = 4
FLEET, NAME = "home", "e"
TOPIC = f"hushmote/v1/{FLEET}/experiment/{NAME}"
_PRIVATE = [7**40 + 1_000 * i for i in range(9)]  # the last one's is a stranger's


@dataclass(frozen=True)
class Case:
    """A proof and what it is about.

    Attributes:
        log: The policy's "log".
        payload: The message on the experiment's topic.
        proof: The proof's bytes.
    """

    log: dict[str, Any]
    payload: bytes
    proof: bytes

    def answer(self) -> int | str:
        """Return the entry's index, or why ldp_log refuses the proof."""
        try:
            return ldp_log.verify(self.log, TOPIC, self.payload, self.proof, lambda: None)
        except ldp_client.ExperimentRefused as e:
            return str(e)


def message_orders(seed: int) -> Iterator[tuple[str, ...]]:
    """Yield orders of "v1" to "v3", versions of an experiment, and "p1" to "p3", their proofs.

    On both topics, the last message is that of the newest version. These are all orders of up to five
    messages about two versions, and random ones of up to twelve about three.
    """
    rng = random.Random(seed)  # noqa: S311 (test data)
    messages = ("v1", "p1", "v2", "p2")
    exhaustive = (order for count in range(2, 6) for order in itertools.product(messages, repeat=count))
    more = (*messages, "v3", "p3")
    drawn = (tuple(rng.choices(more, k=rng.randint(4, 12))) for _ in range(20 * COUNT))
    for order in itertools.chain(exhaustive, drawn):
        newest = {message[0]: message for message in order}
        if set(newest.values()) in ({"v2", "p2"}, {"v3", "p3"}) and max(order)[1] == newest["v"][1]:
            yield order


@functools.cache
def _public(private: int) -> str:
    return ref.public_key(private).hex()


def _flipped(data: bytes, bit: int) -> bytes:
    return (int.from_bytes(data, "big") ^ (1 << bit)).to_bytes(len(data), "big")


def _split(proof: bytes) -> tuple[bytes, list[bytes]]:
    """Return a proof's beginning, and its signatures."""
    end = 9 + 32 * proof[8]
    return proof[:end], [proof[at : at + 65] for at in range(end, len(proof), 65)]


def _mutants(rng: random.Random, case: Case) -> Iterator[Case]:
    """Yield changes of a valid case, each of which must make it invalid."""
    log, payload, proof = case.log, case.payload, case.proof
    head, signatures = _split(proof)
    spare = rng.randrange(len(signatures))
    other = [key for key in log["keys"] if key != log["keys"][0]]

    def with_proof(data: bytes) -> Case:
        return Case(log, payload, data)

    yield with_proof(_flipped(proof, rng.randrange(8 * len(proof))))
    yield with_proof(proof[: rng.randrange(len(proof) - 65 * (len(signatures) - log["need"] - 1))])
    yield with_proof(proof + rng.randbytes(rng.choice((1, 32, 65, 1_000))))
    yield with_proof(head + b"".join(signatures[1:]))
    yield with_proof(head + b"".join([*signatures, signatures[spare]]))
    yield with_proof(head + b"".join(signatures[: log["need"]]))
    yield with_proof(head + b"".join(s[:1] + rng.choice(signatures)[1:] for s in signatures[:-1]) + bytes(65))
    if len(head) > 9:
        at = rng.randrange(9, len(head), 32)
        yield with_proof(head[:at] + rng.randbytes(32) + head[at + 32 :] + proof[len(head) :])
        yield with_proof(head[:8] + bytes([head[8] - 1]) + proof[9 : len(head) - 32] + proof[len(head) :])
    yield with_proof(head[:8] + bytes([head[8] + 1]) + head[9:] + rng.randbytes(32) + proof[len(head) :])
    yield Case(log, _flipped(payload, rng.randrange(8 * len(payload))), proof)
    yield Case(log, payload + b"\0", proof)
    yield Case(log | {"origin": log["origin"] + "2"}, payload, proof)
    yield Case(log | {"keys": [_public(_PRIVATE[8]), *other]}, payload, proof)


def _valid(rng: random.Random) -> Case:
    size = min(max(1, 2 ** rng.randrange(33) + rng.choice((-1, 0, 0, 1))), 2**32 - 1)
    if rng.random() < 0.5:
        size = rng.randint(1, size)
    index = rng.choice((0, size - 1, rng.randrange(size)))
    keys = rng.randint(2, 8)
    need = rng.randint((keys + 1) // 2, keys - 1)
    signers = [0, *sorted(rng.sample(range(1, keys), rng.randint(need, keys - 1)))]
    origin = rng.choice(("example.org/questions", "x", "a" * 255, "[fd00::1]:80/!~"))
    log = {"origin": origin, "keys": [_public(key) for key in _PRIVATE[:keys]], "need": need}
    payload = b'{"v":1}\0' + rng.randbytes(68)
    return Case(log, payload, reference_log.proof_of(origin, _PRIVATE, signers, TOPIC, payload, index, size))


def check(answer: Callable[[list[Case]], list[int | str]], seed: int) -> None:
    """Assert that a client answers random proofs and mutants as ldp_log does, and accepts no mutant.

    Args:
        answer: Returns the client's answers to cases: each an index, or the reason of a refusal.
        seed: The seed.
    """
    rng = random.Random(seed)  # noqa: S311 (test data)
    for _ in range(0, COUNT, 50):
        valid = [_valid(rng) for _ in range(50)]
        mutants = [m for case in valid for m in rng.sample(list(_mutants(rng, case)), MUTANTS)]
        expected = [case.answer() for case in valid]
        assert expected == [int.from_bytes(case.proof[:4], "big") for case in valid]
        refused = [case.answer() for case in mutants]
        assert not [case for case, why in zip(mutants, refused, strict=True) if isinstance(why, int)]
        assert answer(valid + mutants) == expected + refused
