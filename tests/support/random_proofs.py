"""Random proofs and mutants of them, in the form of vectors_log.json."""

import json
import random
from collections.abc import Iterator
from typing import Any

import reference_board as ref
import reference_log

ORIGIN = "example.org/questions"
_FLEET = "home"


def _size(rng: random.Random) -> int:
    """Return a tree's size: often at or next to a power of 2, up to the largest that proofs can state."""
    power = 1 << rng.randrange(33)
    near = power + rng.randrange(-2, 3)
    return min(max(rng.choice([near, rng.randrange(1, power + 1), 2**32 - 1]), 1), 2**32 - 1)


def _flipped(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]


def _high_s(signature: bytes) -> bytes:
    return signature[:32] + (ref.P256_ORDER - int.from_bytes(signature[32:], "big")).to_bytes(32, "big")


def mutants(rng: random.Random, proof: bytes, payload: bytes) -> Iterator[tuple[bytes, bytes, str]]:
    """Yield (proof, payload, name) of everything that must be refused.

    Args:
        rng: The random source.
        proof: A valid proof without signatures beyond those needed.
        payload: The message that it is for.
    """
    end = 9 + 32 * proof[8]
    head, path, tail = proof[:9], proof[9:end], proof[end:]
    signatures = [tail[at : at + 65] for at in range(0, len(tail), 65)]
    name = "e"
    yield _flipped(rng, proof), payload, name
    yield proof, _flipped(rng, payload), name
    yield proof, payload, "f"
    yield proof[: rng.randrange(len(proof))], payload, name
    yield proof + rng.randbytes(rng.choice([1, 32, 64, 65])), payload, name
    yield head + path + b"".join(signatures[:-1]), payload, name
    yield head + path + b"".join(signatures[1:]), payload, name
    yield head + path + tail + signatures[rng.randrange(len(signatures))], payload, name
    yield head + path + b"".join(reversed(signatures)), payload, name
    at = rng.randrange(len(signatures))
    high = signatures[at][:1] + _high_s(signatures[at][1:])
    yield head + path + b"".join([*signatures[:at], high, *signatures[at + 1 :]]), payload, name
    for part in (slice(0, 4), slice(4, 8)):  # another index, another size
        for step in (-1, 1):
            number = (int.from_bytes(proof[part], "big") + step) % 2**32
            yield proof[: part.start] + number.to_bytes(4, "big") + proof[part.stop :], payload, name
    if proof[8]:
        yield head[:8] + bytes((proof[8] - 1,)) + path[32:] + tail, payload, name
        yield head + _flipped(rng, path) + tail, payload, name
    yield head[:8] + bytes((proof[8] + 1,)) + path + rng.randbytes(32) + tail, payload, name


def write(path: Any, count: int, each: int, seed: int = 1) -> None:
    """Write a file with this many proofs in random trees, and so many mutants of each.

    Args:
        path: The file's path.
        count: The number of proofs.
        each: The number of mutants.
        seed: The random source's.
    """
    rng = random.Random(seed)  # noqa: S311 - test data
    with path.open("w") as out:
        private = [[rng.randrange(1, ref.P256_ORDER) for _ in range(2 + n % 4)] for n in range(8)]
        logs = []
        for keys in private:
            points = [ref.public_key(key).hex() for key in keys]
            logs.append(
                {"origin": ORIGIN, "keys": points, "need": rng.randrange((len(keys) + 1) // 2, len(keys))}
            )
        print('"logs":[', *(json.dumps(log) + "," for log in logs), '],\n"proofs":[', sep="\n", file=out)
        for n in range(count):
            size = _size(rng)
            index = rng.choice([0, size - 1, rng.randrange(size)])
            which = n % len(logs)
            log, keys = logs[which], private[which]
            signers = [0, *sorted(rng.sample(range(1, len(keys)), log["need"]))]
            payload = b'{"v":1,"name":"e"}\0' + rng.randbytes(68)
            topic = f"hushmote/v1/{_FLEET}/experiment/e"
            proof = reference_log.proof_of(ORIGIN, keys, signers, topic, payload, index, size)
            cases = [(proof, payload, "e", None)]
            wrong = list(mutants(rng, proof, payload))
            cases += [(*mutant, "") for mutant in rng.sample(wrong, min(each, len(wrong)))]
            for data, message, name, refused in cases:
                case = {"log": which, "fleet": _FLEET, "name": name, "payload": message.hex()}
                case |= {"proof": data.hex(), "index": index, "refused": refused}
                print(json.dumps(case) + ",", file=out)
        print("]", file=out)
