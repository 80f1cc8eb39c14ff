"""A witness's memory: the tree that it signed last, and when each question changed.

One small JSON file, which is replaced atomically and is on disk before a signature leaves the witness. A
witness that forgot it could sign a second history, or a second version on one day. A lock beside the file
keeps two processes from using it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter

from ...server import private_file
from ...server.errors import HushmoteError, os_reason, refusing
from ...server.log.tree import Edge
from .rule import Count, Record

_FORMAT = 1
_MAX_BYTES = 2**23
MAX_REFUSALS = 8
MAX_HEADS = 100


_Hash = Annotated[
    bytes, BeforeValidator(bytes.fromhex), Field(min_length=32, max_length=32), PlainSerializer(bytes.hex)
]
_Records = Annotated[
    Mapping[tuple[str, str], Record],
    # pydantic writes a key as FLEET,NAME.
    BeforeValidator(lambda values: {tuple(key.split(",")): record for key, record in values.items()}),
]


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

    time: Count
    size: Count
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
    begun: Count = 0
    size: Count = 0
    edge: tuple[_Hash, ...] = ()
    time: Count = 0
    checkpoint: str = ""
    records: _Records = field(default_factory=dict)
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


_STATE = TypeAdapter(State)


def _encode(state: State) -> bytes:
    values = {"format": _FORMAT, **_STATE.dump_python(state, mode="json")}
    return json.dumps({"sha256": _digest(values), **values}, indent=1).encode() + b"\n"


def _digest(values: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _decode(data: bytes) -> State:
    """Read a state; raises ValueError, KeyError, TypeError or AttributeError if it is malformed."""
    values = json.loads(data)
    if values.pop("sha256") != _digest(values) or values.pop("format") != _FORMAT:
        raise ValueError("damaged, or of another version")
    state = _STATE.validate_python(values)
    Edge(state.size, state.edge)  # raises ValueError if the size and the number of hashes do not fit
    return state
