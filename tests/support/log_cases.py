"""Random proofs of a log, made by the reference, and mutants of each that no client may accept."""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import reference_board as ref
import reference_log

from hushmote.device import ldp_client, ldp_log

COUNT = 2_000 if os.environ.get("LONG") else 100
MUTANTS = 5
FLEET, NAME = "home", "e"
_KEYS = 8  # a policy's most
_PRIVATE = [7**40 + 1_000 * i for i in range(_KEYS + 5)]  # the last ones are of witnesses that no policy has
_ORIGINS = ("example.org/questions", "x", "a" * 255, "[fd00::1]:80/!~")


@dataclass(frozen=True)
class Case:
    """A proof and what it is about.

    Attributes:
        log: The policy's "log".
        name: The experiment's name, by which the message's topic ends.
        payload: The message on the experiment's topic.
        proof: The proof's bytes.
    """

    log: dict[str, Any]
    name: str
    payload: bytes
    proof: bytes

    def answer(self) -> int | str:
        """Return the entry's index, or why ldp_log refuses the proof."""
        try:
            return ldp_log.verify(self.log, _topic(self.name), self.payload, self.proof, lambda: None)
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


def _topic(name: str) -> str:
    return f"hushmote/v1/{FLEET}/experiment/{name}"


def _flipped(data: bytes, bit: int) -> bytes:
    return (int.from_bytes(data, "big") ^ (1 << bit)).to_bytes(len(data), "big")


def _high_s(signature: bytes) -> bytes:
    """Return the other signature of the same message, which is valid in ECDSA without a rule against it."""
    s = ref.P256_ORDER - int.from_bytes(signature[-32:], "big")
    return signature[:-32] + s.to_bytes(32, "big")


def _witnesses(case: Case) -> tuple[bytes, list[bytes], list[bytes]]:
    """Return a proof without its witnesses, what it has of each, and those that a board verifies."""
    end = 9 + 32 * case.proof[8] + 64
    each = [case.proof[at : at + 68] for at in range(end, len(case.proof), 68)]
    starts = [bytes.fromhex(key[:8]) for key in case.log["keys"][1:]]
    return (
        case.proof[:end],
        each,
        [one for start in starts for one in each if one[:4] == start][: case.log["need"]],
    )


def _equals(rng: random.Random, case: Case) -> Iterator[Case]:
    """Yield changes of a valid case that leave it valid: boards skip the signatures that they do not need."""
    head, each, verified = _witnesses(case)
    some = rng.choice(each)
    changes = [
        verified,
        each[::-1],
        [one if one in verified else one[:4] + rng.randbytes(64) for one in each],
        [rng.randbytes(68), *each],
        [*each, some],
        [*each, some[:4] + rng.randbytes(64)],
    ]
    for changed in changes:
        proof = head + b"".join(changed)
        if len(proof) <= 1_600:
            yield replace(case, proof=proof)


def _mutants(rng: random.Random, case: Case) -> Iterator[Case]:
    """Yield changes of a valid case, each of which must make it invalid."""
    log, payload, proof = case.log, case.payload, case.proof
    end = 9 + 32 * proof[8]
    start, path, tail = proof[:8], proof[9:end], proof[end:]
    head, each, verified = _witnesses(case)
    one = rng.choice(verified)

    def resigned(changed: list[bytes], need: int = log["need"]) -> Case:
        return replace(case, proof=head + b"".join(changed), log=log | {"need": need})

    def instead(changed: bytes) -> Case:
        return resigned([changed if old == one else old for old in each])

    def with_path(changed: bytes) -> Case:
        return replace(case, proof=start + bytes([len(changed) // 32]) + changed + tail)

    yield replace(case, proof=_flipped(head, rng.randrange(8 * len(head))) + b"".join(each))
    yield replace(case, proof=(head + b"".join(verified))[: rng.randrange(len(head) + 68 * len(verified))])
    yield replace(case, proof=proof + rng.randbytes(rng.choice((1, 32, 64, 65, 1_000))))
    yield replace(case, proof=proof[:end] + b"".join(each))
    yield instead(one[:4] + _flipped(one[4:], rng.randrange(512)))
    yield instead(_high_s(one))
    yield instead(one[:4] + head[-64:])
    yield resigned([old for old in verified if old != one])
    yield resigned([one[:4] + rng.randbytes(64), *each])
    yield resigned([rng.randbytes(4) + old[4:] if old == one else old for old in each], len(log["keys"]) - 1)
    yield replace(case, proof=_high_s(head) + b"".join(each))
    yield replace(case, proof=head[:-64] + one[4:] + b"".join(each))
    for part in (slice(0, 4), slice(4, 8)):  # another index, another size
        number = (int.from_bytes(proof[part], "big") + rng.choice((-1, 1))) % 2**32
        yield replace(case, proof=proof[: part.start] + number.to_bytes(4, "big") + proof[part.stop :])
    if path:
        hash_at = rng.randrange(0, len(path), 32)
        yield with_path(path[:hash_at] + rng.randbytes(32) + path[hash_at + 32 :])
        yield with_path(path[:-32])
        yield with_path(path[32:])
    yield with_path(path + rng.randbytes(32))
    yield replace(case, payload=_flipped(payload, rng.randrange(8 * len(payload))))
    yield replace(case, payload=payload + b"\0")
    yield replace(case, name="f")
    yield replace(case, log=log | {"origin": log["origin"] + "2"})
    yield replace(case, log=log | {"keys": [_public(_PRIVATE[_KEYS]), *log["keys"][1:]]})


def _logs(rng: random.Random) -> list[dict[str, Any]]:
    """Return few logs, so that a file with many proofs needs little memory to read."""
    logs = []
    for n in range(8):
        count = rng.randint(2, _KEYS)
        keys = [_public(key) for key in _PRIVATE[:count]]
        need = rng.randint((count + 1) // 2, count - 1)
        logs.append({"origin": _ORIGINS[n % len(_ORIGINS)], "keys": keys, "need": need})
    return logs


def _valid(rng: random.Random, log: dict[str, Any]) -> Case:
    size = min(max(1, 2 ** rng.randrange(33) + rng.choice((-1, 0, 0, 1))), 2**32 - 1)
    if rng.random() < 0.5:
        size = rng.randint(1, size)
    index = rng.choice((0, size - 1, rng.randrange(size)))
    count, need = len(log["keys"]), log["need"]
    signers = rng.sample(range(1, count), rng.randint(need, count - 1))
    room = (1_600 - 9 - 32 * len(reference_log.path_shape(index, size)) - 64) // 68 - len(signers)
    others = range(_KEYS, len(_PRIVATE))  # of witnesses that other boards' policies have
    signers += rng.sample(others, rng.randint(0, min(room, len(others))))
    payload = b'{"v":1}\0' + rng.randbytes(68)
    args = ([0, *signers], _topic(NAME), payload, index, size)
    return Case(log, NAME, payload, reference_log.proof_of(log["origin"], _PRIVATE, *args))


def _batches(seed: int) -> Iterator[tuple[list[Case], list[Case]]]:
    """Yield valid cases, and as many mutants of each as MUTANTS."""
    rng = random.Random(seed)  # noqa: S311 (test data)
    logs = _logs(rng)
    for _ in range(0, COUNT, 50):
        valid = [_valid(rng, rng.choice(logs)) for _ in range(50)]
        mutants = [m for case in valid for m in rng.sample(list(_mutants(rng, case)), MUTANTS)]
        yield valid + [rng.choice(list(_equals(rng, case))) for case in valid], mutants


def check(answer: Callable[[list[Case]], list[int | str]], seed: int) -> None:
    """Assert that a client answers random proofs and mutants as ldp_log does, and accepts no mutant.

    Args:
        answer: Returns the client's answers to cases: each an index, or the reason of a refusal.
        seed: The seed.
    """
    for valid, mutants in _batches(seed):
        expected = [case.answer() for case in valid]
        assert expected == [int.from_bytes(case.proof[:4], "big") for case in valid]
        refused = [case.answer() for case in mutants]
        assert not [case for case, why in zip(mutants, refused, strict=True) if isinstance(why, int)]
        assert answer(valid + mutants) == expected + refused


def write(path: Path, seed: int) -> None:
    """Write a file with random proofs and their mutants, in the form of vectors_log.json."""
    lines: dict[str, list[str]] = {"logs": [], "proofs": []}
    for valid, mutants in _batches(seed):
        for refused, cases in ((None, valid), ("", mutants)):
            for case in cases:
                if (log := json.dumps(case.log)) not in lines["logs"]:
                    lines["logs"].append(log)
                content = {
                    "log": lines["logs"].index(log),
                    "fleet": FLEET,
                    "name": case.name,
                    "payload": case.payload.hex(),
                    "proof": case.proof.hex(),
                    "index": int.from_bytes(case.proof[:4], "big"),
                    "refused": refused,
                }
                lines["proofs"].append(json.dumps(content))
    sections = (f'"{name}":[\n' + ",\n".join(cases) for name, cases in lines.items())
    path.write_text("\n],\n".join(sections) + "\n]\n")
