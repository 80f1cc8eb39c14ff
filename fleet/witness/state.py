"""A witness's memory: the tree that it signed last, and when each question changed.

One small JSON file, which is replaced atomically and is on disk before a signature leaves the witness. A
witness that forgot it could sign a second history, or a second version on one day. A lock beside the file
keeps two processes from using it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...server import private_file
from ...server.errors import HushmoteError, os_reason, refusing
from ...server.log.tree import Edge
from .rule import Record

_FORMAT = 1
_MAX_BYTES = 2**23
MAX_REFUSALS = 8
MAX_HEADS = 100


class StateError(HushmoteError):
    """Raised for a state file that is missing, damaged, in use or of another witness."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A tree head that the witness did not sign.

    Attributes:
        time: When, unix time.
        size: Of the tree.
        reason: One line.
        checkpoint: The signed note, which may prove that the log lied.
    """

    time: int
    size: int
    reason: str
    checkpoint: str


@dataclass(frozen=True, slots=True)
class State:
    """A witness's memory.

    Attributes:
        log: The log's public key, as text.
        witness: The witness's own, as text.
        begun: The size from which the witness has checked every change; what came before was accepted.
        size: Of the tree that it signed or accepted last.
        edge: That tree's right edge.
        time: The latest time by its clock at which it signed or accepted a tree; 0 before.
        checkpoint: The newest signed checkpoint with the witness's own signatures, or "".
        records: What it remembers of each question, by (fleet, name).
        refusals: The newest refusals, oldest first.
        heads: Signed tree heads beyond this tree that were refused: the log must not replace them.
    """

    log: str
    witness: str
    begun: int = 0
    size: int = 0
    edge: tuple[bytes, ...] = ()
    time: int = 0
    checkpoint: str = ""
    records: Mapping[tuple[str, str], Record] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    heads: tuple[str, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether the witness has neither signed nor accepted a tree."""
        return not (self.size or self.checkpoint)

    @property
    def root(self) -> bytes:
        """The root of the tree."""
        return Edge(self.size, self.edge).root


class StateFile:
    """A state file, held until the context ends.

    Args:
        path: The file.

    Raises:
        StateError: On entering, if another process holds it, or its folder cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._held = contextlib.ExitStack()

    def __enter__(self) -> StateFile:
        with refusing(StateError, f"use {self.path}"):
            self.path = self.path.resolve()
            lock = self.path.with_name(self.path.name + ".lock")
            lock.touch(0o600)
        try:
            self._held.enter_context(private_file.locked(lock, wait=False))
        except BlockingIOError:
            raise StateError(f"another witness uses {self.path}: stop it first") from None
        except OSError as e:
            raise StateError(f"cannot lock {lock}: {os_reason(e)}") from None
        return self

    def __exit__(self, *exc: object) -> None:
        self._held.close()

    def exists(self) -> bool:
        """Return whether there is a state."""
        return self.path.exists()

    def load(self, log: str, witness: str) -> State:
        """Read the state.

        Args:
            log: The public key of the log that it must be of.
            witness: The public key of the witness that it must be of.

        Raises:
            StateError: If it is missing, damaged, or of another log or witness.
        """
        again = "begin again with --new-state, after which the log could show a second history"
        try:
            with self.path.open("rb") as file:
                state = _decode(file.read(_MAX_BYTES + 1))
        except FileNotFoundError:
            raise StateError(
                f"there is no state {self.path}: create it with --new-state if the witness is new. If it was "
                f"lost, {again}"
            ) from None
        except OSError as e:
            raise StateError(f"cannot read {self.path}: {os_reason(e)}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise StateError(f"{self.path} is damaged: move it away, and {again}") from None
        for name, expected, actual in (("log", log, state.log), ("witness", witness, state.witness)):
            if expected != actual:
                raise StateError(f"{self.path} is of the {name} {actual}, not {expected}: use its own file")
        return state

    def save(self, state: State) -> None:
        """Replace the file; it is on disk when this returns.

        Raises:
            OSError: If that fails; the file then has the old state or the new one.
        """
        private_file.replace(self.path, _encode(state))


def _encode(state: State) -> bytes:
    values = {
        "format": _FORMAT,
        "log": state.log,
        "witness": state.witness,
        "begun": state.begun,
        "size": state.size,
        "edge": [node.hex() for node in state.edge],
        "time": state.time,
        "checkpoint": state.checkpoint,
        "questions": {"/".join(key): _record_values(record) for key, record in state.records.items()},
        "refusals": [[r.time, r.size, r.reason, r.checkpoint] for r in state.refusals],
        "heads": list(state.heads),
    }
    return json.dumps({"sha256": _digest(values), **values}, indent=1).encode() + b"\n"


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _record_values(record: Record) -> dict[str, Any]:
    return {
        "json": record.question.decode(),
        "withdrawn": record.is_withdrawn,
        "versions": record.versions,
        "changes": record.changes,
        "additions": record.additions,
        "serial": record.serial,
    }


def _decode(data: bytes) -> State:
    """Read a state; raises ValueError, KeyError, TypeError or AttributeError if it is malformed."""
    values = json.loads(data)
    if values.pop("sha256") != _digest(values) or values["format"] != _FORMAT:
        raise ValueError("damaged, or of another version")
    edge = Edge(_whole(values["size"]), map(bytes.fromhex, values["edge"]))
    if any(len(node) != 32 for node in edge.hashes):
        raise ValueError("a hash has 32 bytes")
    return State(
        _text(values["log"]),
        _text(values["witness"]),
        _whole(values["begun"]),
        edge.size,
        tuple(edge.hashes),
        _whole(values["time"]),
        _text(values["checkpoint"]),
        dict(_records(values["questions"])),
        tuple(Refusal(_whole(a), _whole(b), _text(c), _text(d)) for a, b, c, d in values["refusals"]),
        tuple(map(_text, values["heads"])),
    )


def _records(values: dict[str, Any]) -> Iterator[tuple[tuple[str, str], Record]]:
    for key, record in values.items():
        fleet, name = key.split("/")
        if not isinstance(record["withdrawn"], bool):
            raise TypeError("not true or false")
        yield (
            (fleet, name),
            Record(
                _text(record["json"]).encode(),
                record["withdrawn"],
                _whole(record["versions"]),
                tuple(map(_whole, record["changes"])),
                tuple(map(_whole, record["additions"])),
                _whole(record["serial"]),
            ),
        )


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a whole number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
