"""Ask witnesses to sign the log's checkpoints (C2SP tlog-witness), each in a thread of its own."""

from __future__ import annotations

import base64
import hashlib
import http.client
import logging
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ..errors import HushmoteError, os_reason, request_reason
from ..log.note import (
    ECDSA,
    ED25519,
    Checkpoint,
    NoteRefused,
    PublicKey,
    SecretKey,
    parse_signatures,
    valid_signatures,
)
from ..log.proof import MOST_WITNESSES, start_of
from ..log.tiles import CHECKPOINT, TIMEOUT_S, open_url, read_body, reader
from ..plain_text import one_line
from ..store.database import StoreError
from ..store.log import StoredLog

log = logging.getLogger(__name__)

GONE = "-"  # instead of the URL of a witness that no longer exists
_SIZE = re.compile(r"[0-9]{1,10}")
_MOST_BYTES = 1 << 16
_FIRST_S, _MOST_S = 2.0, 300.0  # between two attempts
_MOST_RETRY_AFTER_S = 3600.0
_LEAST_TURN_S = 2.0  # between two looks at the store, for entries that another aggregator added


class WitnessesRefused(HushmoteError):
    """Raised for a file of witnesses that is malformed; the message says what was expected."""


class WitnessFailed(HushmoteError):
    """Raised when a witness does not sign.

    Attributes:
        after_s: When it says that it might, in seconds; None if it does not say.
        stops: Whether the log must not grow: the witness has signed what this store does not have.
        is_dispute: Whether the witness says that it has, but does not show it.
    """

    def __init__(
        self, text: str, after_s: float | None = None, *, stops: bool = False, is_dispute: bool = False
    ) -> None:
        super().__init__(text)
        self.after_s, self.stops, self.is_dispute = after_s, stops, is_dispute


@dataclass(frozen=True)
class Witness:
    """A witness.

    Attributes:
        url: Where it answers, without add-checkpoint; GONE if it is neither asked nor waited for.
        keys: Its public keys: the one for cosignatures, the one for boards, or both.
    """

    url: str
    keys: tuple[PublicKey, ...]

    @property
    def name(self) -> str:
        """The name of its keys."""
        return self.keys[0].name

    @property
    def is_gone(self) -> bool:
        """Whether only its earlier signatures are left."""
        return self.url == GONE

    @property
    def board_key(self) -> PublicKey | None:
        """The key that boards verify; None for a witness that only the public ecosystem knows."""
        return next((key for key in self.keys if key.kind == ECDSA), None)


def load_witnesses(file: Path) -> tuple[Witness, ...]:
    """Read a file of witnesses: a line for each, with its address and its keys.

    Raises:
        WitnessesRefused: If it cannot be read or a line is malformed.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        why = os_reason(e) if isinstance(e, OSError) else "it is not text"
        raise WitnessesRefused(f"cannot read {file}: {why}") from None
    return tuple(
        _witness(f"{file}, line {number}", line.split())
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    )


def _witness(where: str, words: list[str]) -> Witness:
    url, *texts = words
    if not (url == GONE or url.startswith(("http://", "https://"))) or not 1 <= len(texts) <= 2:
        raise WitnessesRefused(
            f"{where} must be the witness's URL, or - if it is gone, and its one or two public keys"
        )
    try:
        public = tuple(map(PublicKey.parse, texts))
    except NoteRefused as e:
        raise WitnessesRefused(f"{where}: {e}") from None
    if len({key.name for key in public}) > 1 or len({key.kind for key in public}) < len(public):
        raise WitnessesRefused(f"{where} must have keys of one witness, of different types")
    return Witness(url.rstrip("/"), public)


def board_keys_of(secret: SecretKey, witnesses: Sequence[Witness]) -> tuple[PublicKey, ...]:
    """Return the keys that boards verify: the log's, then the witnesses'.

    Raises:
        WitnessesRefused: If a key appears twice, or is the log's own, or a proof could not name them all.
    """
    values = {secret.public(kind).value for kind in (ED25519, ECDSA)}
    for key in (key for witness in witnesses for key in witness.keys):
        if key.value in values:
            is_own = key.value in (secret.public(ED25519).value, secret.public(ECDSA).value)
            why = "is the log's own" if is_own else "appears twice"
            raise WitnessesRefused(
                f"a witness's key {why}: list each witness once, with its own keys ({key})"
            )
        values.add(key.value)
    keys = [secret.public(ECDSA), *(w.board_key for w in witnesses if w.board_key is not None)]
    if len(keys) > 1 + MOST_WITNESSES:
        raise WitnessesRefused(
            f"a proof has room for {MOST_WITNESSES} witnesses with a key for boards, and there are "
            f"{len(keys) - 1}: remove those that no board's policy has"
        )
    for number, key in enumerate(keys):
        if start_of(key) in map(start_of, keys[:number]):
            raise WitnessesRefused(
                f"two keys for boards start with the same 4 bytes: ask the witness for another ({key})"
            )
    return tuple(keys)


def request_signatures(stored: StoredLog, secret: SecretKey, witness: Witness, now: int) -> None:
    """Have a witness sign the newest checkpoint, and keep its lines.

    Even a checkpoint that it has signed is sent again: its answer shows whether it has signed a larger one.

    Only its signatures or the size that it has signed confirm that this store lacks nothing: another status,
    also of a proxy, says nothing about that, even if there is nothing to sign yet.

    Raises:
        WitnessFailed: If it does not sign.
        StoreError: If the store fails.
    """
    stored.begin(secret, now)
    checkpoint, tree = stored.checkpoint, stored.tree
    assert checkpoint is not None  # ensured by begin()
    old = max((size for size in stored.cosigned if stored.cosigned_by(size, witness.keys)), default=0)
    own = secret.sign_tree(checkpoint.size, checkpoint.root)
    for _ in range(2):
        status, text, after_s = _post(witness, old, tree.consistency(old, own.size), own)
        if status != http.client.CONFLICT:
            break
        signed_size = int(text) if _SIZE.fullmatch(text.strip()) else -1
        _check_conflict(stored, secret, witness, own, old, signed_size)
        old = signed_size
    if status == http.client.UNPROCESSABLE_ENTITY:
        raise _dispute(stored, secret, witness)
    if status != http.client.OK:
        _refuse(status, text, after_s, witness, own)
    try:
        lines = parse_signatures(text)
        signed = Checkpoint(own.origin, own.size, own.root, lines)
        good = valid_signatures(signed, witness.keys)
    except NoteRefused as e:
        raise WitnessFailed(f"witness {witness.name} answers with a wrong signature: {e}") from None
    if len(good) < len(witness.keys):
        missing = next(key for key in witness.keys if key not in good)
        raise WitnessFailed(f"witness {witness.name} has not signed with its key {missing}: correct the key")
    stored.add_signatures(own.size, list(good.values()), now)


def _check_conflict(
    stored: StoredLog, secret: SecretKey, witness: Witness, own: Checkpoint, old: int, signed_size: int
) -> None:
    """Raise WitnessFailed unless another attempt with the size that the witness has signed may succeed."""
    if signed_size < 0:
        raise WitnessFailed(f"witness {witness.name} does not say which checkpoint it has signed")
    if signed_size > own.size:
        stored.refresh()  # another aggregator may have added what the witness has signed
        if stored.tree.size >= signed_size:
            raise WitnessFailed(f"witness {witness.name} has signed a newer checkpoint already", 0.0)
    if signed_size > own.size or signed_size == old:
        raise _dispute(stored, secret, witness)


def _dispute(stored: StoredLog, secret: SecretKey, witness: Witness) -> WitnessFailed:
    """Return the failure of a witness that says it has signed what this store does not have.

    Only a checkpoint with the log's own signature shows that: anyone can name a size.
    """
    path = f"{hashlib.sha256(secret.name.encode()).hexdigest()}/{CHECKPOINT}"
    try:
        shown = Checkpoint.parse(reader(witness.url)(path).decode("utf-8", "replace"))
        is_signed = bool(valid_signatures(shown, [secret.public(ED25519)])) and shown.origin == secret.name
    except NoteRefused:
        shown, is_signed = Checkpoint(secret.name, 0, b""), False
    stored.refresh()
    size = stored.tree.size
    if is_signed and shown.size > size:
        return WitnessFailed(
            f"witness {witness.name} has signed {secret.name} at size {shown.size:,}, but this store has it "
            f"at size {size:,}, as after a restored backup: no change is announced until `hushmote log "
            "restore URL|FOLDER` has added the missing entries from an export",
            stops=True,
        )
    if is_signed and stored.tree.root(shown.size) != shown.root:
        return WitnessFailed(
            f"witness {witness.name} has signed other entries of {secret.name} than this store has: no "
            "change is announced; is another store serving with the same log key?",
            stops=True,
        )
    return WitnessFailed(
        f"witness {witness.name} says that it has signed what this store does not have, but shows no "
        f"checkpoint of it that {secret.name} has signed: while more than half of the witnesses sign, "
        "changes do not wait for it; ask its operator",
        is_dispute=True,
    )


def _refuse(status: int, text: str, after_s: float | None, witness: Witness, own: Checkpoint) -> NoReturn:
    line = one_line(text.strip() or f"HTTP status {status}")[:300]
    if status == http.client.NOT_FOUND:
        raise WitnessFailed(
            f"witness {witness.name} does not know the log {own.origin}: its operator must add the log's key"
        )
    if status == http.client.SERVICE_UNAVAILABLE:
        raise WitnessFailed(f"witness {witness.name} does not sign yet: {line}", after_s)
    raise WitnessFailed(f"witness {witness.name} does not sign: {line}", after_s)


def _post(
    witness: Witness, old: int, proof: list[bytes], checkpoint: Checkpoint
) -> tuple[int, str, float | None]:
    """Return the answer's status, text and Retry-After, in seconds."""
    hashes = "".join(base64.b64encode(part).decode() + "\n" for part in proof)
    body = f"old {old}\n{hashes}\n{checkpoint}".encode()
    request = urllib.request.Request(f"{witness.url}/add-checkpoint", body, method="POST")
    request.add_header("Content-Type", "text/plain; charset=utf-8")
    end = time.monotonic() + TIMEOUT_S
    try:
        with open_url(request, TIMEOUT_S) as answer:
            return answer.status, read_body(answer, _MOST_BYTES, end).decode("utf-8", "replace"), None
    except urllib.error.HTTPError as e:
        with e:
            after = e.headers.get("Retry-After", "")
            after_s = min(float(after), _MOST_RETRY_AFTER_S) if after.isdecimal() else None
            try:
                text = read_body(e.fp, _MOST_BYTES, end).decode("utf-8", "replace")
            except (OSError, http.client.HTTPException):
                text = ""
            return e.code, text, after_s
    except (OSError, http.client.HTTPException, ValueError) as e:
        raise WitnessFailed(
            f"witness {witness.name} cannot be reached at {witness.url}: {request_reason(e)}"
        ) from None


class WitnessThread(threading.Thread):
    """Has one witness sign each checkpoint, in the background.

    Args:
        stored: The log.
        secret: The log's key.
        witness: The witness.

    Attributes:
        confirmed: Whether it has signed since the start, so that it has seen no larger tree than ours.
        problem: Why it does not sign, or "".
        stopped: Whether nothing may be added to the log, until it has signed again.
        is_disputed: Whether it says, without showing it, that it has signed what this store does not have;
            until it has signed again.
        answered: Set after the first attempt.
    """

    def __init__(self, stored: StoredLog, secret: SecretKey, witness: Witness) -> None:
        super().__init__(name=f"witness {witness.name}", daemon=True)
        self.witness = witness
        self.confirmed = self.stopped = self.is_disputed = False
        self.problem = ""
        self.answered = threading.Event()
        self._stored, self._secret = stored, secret
        self._wake, self._ending = threading.Event(), False

    def run(self) -> None:
        """Ask until stop()."""
        pause_s = _FIRST_S
        while not self._ending:
            self._wake.clear()
            wait_s = self._turn()
            self.answered.set()
            if not self.problem:
                pause_s = _FIRST_S
            elif wait_s is None:
                wait_s, pause_s = pause_s, min(2 * pause_s, _MOST_S)
            self._wake.wait(wait_s)

    def wake(self) -> None:
        """Ask soon, because there is a new checkpoint."""
        self._wake.set()

    def stop(self) -> None:
        """Make run() return after the current attempt."""
        self._ending = True
        self._wake.set()

    def _turn(self) -> float | None:
        """Ask if needed; return the seconds until the next turn, or None if the pause should grow."""
        try:
            if not (self.confirmed and self._is_signed()):
                request_signatures(self._stored, self._secret, self.witness, int(time.time()))
        except WitnessFailed as e:
            self.stopped |= e.stops
            self.is_disputed |= e.is_dispute
            self._note(str(e), logging.ERROR if e.stops else logging.WARNING)
            return None if e.after_s is None else max(e.after_s, 0.1)
        except StoreError as e:
            self._note(str(e), logging.WARNING)
            return None
        except Exception as e:  # a thread that ended would stop every change without a word
            self._note(f"witness {self.witness.name} cannot be asked: {e!r}", logging.ERROR)
            return None
        self.confirmed, self.stopped, self.is_disputed = True, False, False
        if self.problem:
            self.problem = ""
            log.info("witness %s has signed the log", self.witness.name)
        return _LEAST_TURN_S

    def _is_signed(self) -> bool:
        self._stored.refresh()
        size = self._stored.tree.size
        return not size or self._stored.cosigned_by(size, self.witness.keys)

    def _note(self, text: str, level: int) -> None:
        if text != self.problem and not self._ending:
            log.log(level, "%s", text)
        self.problem = text
