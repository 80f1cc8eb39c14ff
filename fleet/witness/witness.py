"""A witness of one log: reads every new entry, and signs a tree head only if its rule holds.

It speaks C2SP's tlog-witness protocol. Besides the cosignature, which the public ecosystem verifies, it
returns a P-256 signature line, which boards verify.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from ...server.errors import HushmoteError, os_reason
from ...server.log.note import COSIGNATURE, Checkpoint, NoteRefused, SecretKey, Signature, valid_signatures
from ...server.log.tiles import CHECKPOINT, Fetch, read_entries
from ...server.log.tree import Edge, ProofRefused, check_consistency, leaf_hash
from ...server.wire.limits import EARLIEST, LATEST
from .rule import Record, Rule, Verdict, judge
from .state import MAX_HEADS, MAX_REFUSALS, Refusal, State, StateError, StateFile

MAX_PROOF = 63
READ_S = 25.0  # for the entries of one request
AGAIN_S = 60  # after a failure that may end by itself
_OLD = re.compile(r"old (0|[1-9][0-9]{0,18})")
_MAX_READ_BYTES = 2**26
_TWO_HISTORIES = 422
_MAX_REASON = 1000  # characters in the state; a web server's answer can be much longer


class NotSigned(HushmoteError):
    """Raised for a tree head that the witness does not sign.

    Attributes:
        status: The HTTP status of C2SP's tlog-witness protocol; 503 if it may sign it later.
        retry_after_s: For status 503.
    """

    def __init__(self, status: int, text: str, retry_after_s: int = AGAIN_S) -> None:
        super().__init__(text)
        self.status = status
        self.retry_after_s = retry_after_s


class Unproven(NotSigned):
    """Raised for a request that anyone can make, because the log has not signed it or its proof is wrong."""


class OtherSize(NotSigned):
    """Raised if a request does not start from the size that the witness signed last.

    Attributes:
        size: That size.
    """

    def __init__(self, size: int) -> None:
        super().__init__(409, f"{size}")
        self.size = size


@dataclass(frozen=True, slots=True)
class Request:
    """A request to sign.

    Attributes:
        old: The size from which the proof starts.
        proof: The hashes of the consistency proof.
        checkpoint: The tree head with its signatures.
    """

    old: int
    proof: tuple[bytes, ...]
    checkpoint: Checkpoint

    @classmethod
    def parse(cls, body: bytes) -> Request:
        """Read the body of add-checkpoint.

        Raises:
            Unproven: If it is malformed.
        """
        try:
            head, blank, note = body.decode().partition("\n\n")
            first, *lines = head.split("\n")
            old = _OLD.fullmatch(first)
            proof = tuple(base64.b64decode(line, validate=True) for line in lines)
            if not blank or old is None or len(proof) > MAX_PROOF or any(len(node) != 32 for node in proof):
                raise ValueError
            return cls(int(old[1]), proof, Checkpoint.parse(note))
        except NoteRefused as e:
            raise Unproven(400, str(e)) from None
        except (ValueError, binascii.Error):
            text = "the body must be a line `old SIZE`, at most 63 hashes, an empty line and a checkpoint"
            raise Unproven(400, text) from None


class Witness:
    """A witness of one log.

    Args:
        key: The witness's key.
        rule: What it signs.
        fetch: Reads the log's files.
        file: Its state file, which must be held.
        clock: Unix time.
        monotonic: Monotonic seconds.

    Raises:
        StateError: If the state cannot be used.
    """

    def __init__(
        self,
        key: SecretKey,
        rule: Rule,
        fetch: Fetch,
        file: StateFile,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.key = key
        self.rule = rule
        self._fetch = fetch
        self._file = file
        self._clock = clock
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._refused: tuple[str, float, NotSigned] | None = None
        self.state = file.load(str(rule.log), str(key.public(COSIGNATURE)))

    @classmethod
    def begin(cls, key: SecretKey, rule: Rule, file: StateFile) -> None:
        """Create the state of a new witness, which has checked nothing yet.

        The rule applies to the log's whole history at the first check. So no version from before is signed
        beside another one, unless a person accepts them.

        Raises:
            StateError: If there already is a state, or it cannot be written.
        """
        if file.exists():
            raise StateError(f"{file.path} already exists: move it away to begin again")
        _save(file, State(str(rule.log), str(key.public(COSIGNATURE))))

    def add_checkpoint(self, body: bytes) -> tuple[Signature, Signature]:
        """Return the witness's signatures of a tree head; the new state is on disk by then.

        Raises:
            NotSigned: If it does not sign.
        """
        request = Request.parse(body)
        self._check_own(request.checkpoint)
        checkpoint = self._verified(request.checkpoint)
        if request.old > checkpoint.size:
            raise Unproven(400, f"the old size {request.old} is above the size {checkpoint.size}")
        with self._lock:
            if request.old != self.state.size:
                raise OtherSize(self.state.size)
            self._check_proof(checkpoint, request.proof)
            self._check_heads(checkpoint, {checkpoint.size: checkpoint.root})
            return self._sign(checkpoint)

    def check(self) -> tuple[Checkpoint, tuple[Signature, Signature] | None]:
        """Read the log's newest tree head, and sign it if it is new; return it and the signatures.

        Raises:
            NoteRefused: If it cannot be read.
            NotSigned: If it is not signed.
        """
        newest = self._newest()
        self._check_own(newest)
        checkpoint = self._verified(newest)
        with self._lock:
            self._check_is_newer(checkpoint)
            self._check_heads(checkpoint, {checkpoint.size: checkpoint.root})
            is_new = checkpoint.size > self.state.size or not self.state.checkpoint
            return checkpoint, self._sign(checkpoint) if is_new else None

    def accept(self, size: int) -> Mapping[str, int]:
        """Accept all entries up to a size, which a person has read; return how many versions names gained.

        The witness then continues from that size. Nothing is signed until the log asks for it. A remembered
        time that is ahead of the clock is set back to it.

        Args:
            size: The tree's size.

        Raises:
            NoteRefused: If the log cannot be read.
            NotSigned: If the log lies, or has a fleet that is not in the rule.
            StateError: If the state cannot be written.
        """
        newest = self._newest()
        if not self.state.is_new:
            self._check_own(newest)
        checkpoint = self._verified(newest)
        with self._lock:
            now = self._clock_time()
            self._check_is_newer(checkpoint)
            self._check_heads(checkpoint, {checkpoint.size: checkpoint.root})
            if not self.state.size <= size <= checkpoint.size:
                raise NotSigned(
                    400,
                    f"the witness is at size {self.state.size} and the log at {checkpoint.size}: accept a "
                    "size from the one to the other",
                )
            entries = self._read(checkpoint, None)
            sizes = [head.size for head in self._heads()]
            if size not in sizes and max(sizes, default=0) > checkpoint.size:
                raise NotSigned(
                    503,
                    f"the log has shown this witness size {max(sizes)}, but its files end at "
                    f"{checkpoint.size}: try again when they are complete",
                )
            count = size - self.state.size
            records = {name: _until(record, now) for name, record in self.state.records.items()}
            verdict = judge(self.rule, records, entries[:count], now, is_accepted=True)
            self._check_problems(checkpoint, verdict)
            begun = size if count else self.state.begun
            state = self._state_after(entries[:count], verdict)
            state = replace(state, begun=begun, time=now, checkpoint="")
            _save(self._file, state)
            self.state, self._refused = state, None
        return verdict.changed

    def _newest(self) -> Checkpoint:
        return Checkpoint.parse(self._fetch(CHECKPOINT).decode("utf-8", "replace"))

    def _now(self) -> int:
        """Return the time for the rule, which never goes back behind the last signature."""
        return max(self.state.time, self._clock_time())

    def _clock_time(self) -> int:
        now = int(self._clock())
        if not EARLIEST.timestamp() <= now < LATEST.timestamp():
            raise NotSigned(503, "the witness's clock is wrong: it shows a year before 2025 or after 2055")
        return now

    def _verified(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return a checkpoint with the log's signature only; refuse it if the log has not signed it."""
        if checkpoint.origin != self.rule.origin:
            text = f"this witness watches {self.rule.origin}, not {checkpoint.origin}"
            raise Unproven(404, text)
        try:
            lines = valid_signatures(checkpoint, [self.rule.log])
        except NoteRefused as e:
            raise Unproven(403, str(e)) from None
        if not lines:
            raise Unproven(403, f"it is not signed by {self.rule.log}")
        return replace(checkpoint, signatures=tuple(lines.values()))

    def _check_own(self, checkpoint: Checkpoint) -> None:
        """Refuse to go on if the witness signed this checkpoint, but its state is older."""
        own = self.key.public(COSIGNATURE)
        if checkpoint.size > self.state.size and any(
            own.verify(checkpoint.text, s) for s in checkpoint.signatures
        ):
            text = f"this witness has signed size {checkpoint.size}, but its state has {self.state.size}: "
            if self.state.is_new:
                text += f"restore the newest state, or accept the entries with --accept {checkpoint.size}"
            else:
                text += "the state is an old copy; restore the newest one, or begin again with --new-state"
            raise NotSigned(403, text)  # not recorded: the state is wrong

    def _check_is_newer(self, checkpoint: Checkpoint) -> None:
        size = self.state.size
        if checkpoint.size < size:
            if self._has_begun_with(checkpoint):  # anyone on the way can show an old copy
                text = f"the log shows an old copy, of size {checkpoint.size}: size {size} is signed"
                raise NotSigned(503, text)
            self._refuse(
                checkpoint, NotSigned(403, f"the log went back from size {size} to {checkpoint.size}")
            )
        if checkpoint.size == size and checkpoint.root != self.state.root:
            self._refuse(checkpoint, NotSigned(_TWO_HISTORIES, _two_histories(size)))

    def _has_begun_with(self, checkpoint: Checkpoint) -> bool:
        """Return whether a smaller tree is the beginning of the one that was signed last."""
        try:
            entries = list(read_entries(self._limited(self._monotonic() + READ_S), 0, self.state.size))
        except NoteRefused:
            return False
        edge, sizes = Edge(), {checkpoint.size, self.state.size}
        roots = {0: edge.root} | _roots(edge, entries, sizes)
        return (roots[checkpoint.size], edge.root) == (checkpoint.root, self.state.root)

    def _heads(self) -> list[Checkpoint]:
        return [Checkpoint.parse(note) for note in self.state.heads]

    def _state_after(self, entries: Sequence[bytes], verdict: Verdict) -> State:
        """Return the state after further entries, without the heads that their tree contains."""
        edge = Edge(self.state.size, self.state.edge)
        _roots(edge, entries)
        return replace(
            self.state,
            size=edge.size,
            edge=tuple(edge.hashes),
            records=verdict.records,
            heads=tuple(str(head) for head in self._heads() if head.size > edge.size),
        )

    def _check_heads(self, checkpoint: Checkpoint, roots: Mapping[int, bytes]) -> None:
        """Refuse a checkpoint if the roots of its tree, by size, are not those of heads refused before."""
        for head in self._heads():
            if roots.get(head.size, head.root) != head.root:
                self._refuse(checkpoint, NotSigned(_TWO_HISTORIES, _two_histories(head.size)))

    def _check_proof(self, checkpoint: Checkpoint, proof: Sequence[bytes]) -> None:
        state = self.state
        if checkpoint.size == state.size:
            self._check_is_newer(checkpoint)
        try:
            check_consistency(state.size, state.root, checkpoint.size, checkpoint.root, proof)
        except ProofRefused as e:
            # Not recorded, because anyone can send a wrong proof with the log's checkpoint.
            raise Unproven(422, f"{e}, or its proof is wrong") from None

    def _sign(self, checkpoint: Checkpoint) -> tuple[Signature, Signature]:
        """Sign a verified checkpoint, at least as large as the state's tree, if the rule allows it."""
        state = self.state
        self._now()  # before reading, in case the clock is wrong
        if checkpoint.size > state.size:
            if self._refused and self._refused[0] == checkpoint.text and self._monotonic() < self._refused[1]:
                raise self._refused[2]
            try:
                entries = self._read(checkpoint, self._monotonic() + READ_S)
            except NoteRefused as e:
                self._refuse(checkpoint, NotSigned(503, f"the log's files cannot be read: {e}"))
            verdict = judge(self.rule, state.records, entries, self._now())
            self._check_problems(checkpoint, verdict)
            state = self._state_after(entries, verdict)
        lines = self.key.cosign(checkpoint.text, int(self._clock()))
        note = str(replace(checkpoint, signatures=(*checkpoint.signatures, *lines)))
        state = replace(state, time=self._now(), checkpoint=note)
        if state.size > self.state.size or not self.state.checkpoint:
            try:
                _save(self._file, state)
            except StateError as e:
                raise NotSigned(503, str(e)) from None
        self.state = state
        return lines

    def _read(self, checkpoint: Checkpoint, end: float | None) -> list[bytes]:
        """Return the entries after the state's tree, which hash to a checkpoint's root.

        Args:
            checkpoint: The checkpoint.
            end: Monotonic time at which to give up; None for never.

        Raises:
            NoteRefused: If they cannot be read.
            NotSigned: If they are not those of the checkpoint, or of the heads refused before.
        """
        entries = list(read_entries(self._limited(end), self.state.size, checkpoint.size))
        edge = Edge(self.state.size, self.state.edge)
        roots = _roots(edge, entries, {head.size for head in self._heads()})
        if edge.root != checkpoint.root:
            text = f"the log's entries are not those of the tree of size {checkpoint.size} that it signed"
            self._refuse(checkpoint, NotSigned(403, text))
        self._check_heads(checkpoint, roots)
        return entries

    def _limited(self, end: float | None) -> Fetch:
        """Return the function that reads files, until a monotonic time."""
        count = 0

        def fetch(path: str) -> bytes:
            nonlocal count
            if end is not None and (self._monotonic() > end or count > _MAX_READ_BYTES):
                raise NoteRefused(f"there is more than {READ_S:g} s or 64 MB to read: use --accept")
            data = self._fetch(path)
            count += len(data)
            return data

        return fetch

    def _check_problems(self, checkpoint: Checkpoint, verdict: Verdict) -> None:
        """Refuse a checkpoint for a verdict's problems; those that need a person come first."""
        if not verdict.problems:
            return
        waits = [problem.wait_s for problem in verdict.problems if problem.wait_s is not None]
        lasting = [problem for problem in verdict.problems if problem.wait_s is None]
        # Those that need a change of the rule first.
        problems = sorted(lasting or verdict.problems, key=lambda problem: problem.is_acceptable)
        text = problems[0].text + (f" (and {len(problems) - 1} more)" if len(problems) > 1 else "")
        if lasting and problems[0].is_acceptable:
            text += f"; someone who has read the entries can accept them with --accept {checkpoint.size}"
        refusal = NotSigned(403, text) if lasting else NotSigned(503, text, max(waits))
        self._refuse(checkpoint, refusal, is_read=True)

    def _refuse(self, checkpoint: Checkpoint, refusal: NotSigned, *, is_read: bool = False) -> NoReturn:
        """Remember a refusal, and a tree head that the log must not replace, and raise the refusal.

        Args:
            checkpoint: The tree head.
            refusal: Why it is not signed.
            is_read: Whether its entries were read, and contain the heads refused before.
        """
        self._refused = (checkpoint.text, self._monotonic() + min(AGAIN_S, refusal.retry_after_s), refusal)
        record = Refusal(int(self._clock()), checkpoint.size, str(refusal)[:_MAX_REASON], str(checkpoint))
        same = (record.size, record.reason, record.checkpoint)
        others = [r for r in self.state.refusals if (r.size, r.reason, r.checkpoint) != same]
        before = self.state
        is_new = len(others) == len(before.refusals)
        heads = before.heads
        if checkpoint.size > before.size and refusal.status != _TWO_HISTORIES:
            heads = _with_head(self._heads(), checkpoint, is_read)
        self.state = replace(before, refusals=(*others, record)[-MAX_REFUSALS:], heads=heads)
        if is_new or heads != before.heads:
            with contextlib.suppress(OSError):  # it is refused in any case, and saved with the next one
                self._file.save(self.state)
        raise refusal


def _save(file: StateFile, state: State) -> None:
    try:
        file.save(state)
    except OSError as e:
        raise StateError(f"cannot write {file.path}: {os_reason(e)}") from None


def _with_head(heads: list[Checkpoint], head: Checkpoint, is_read: bool) -> tuple[str, ...]:
    """Return the refused heads with another one; if there are too many, it replaces one that it contains."""
    notes = [str(each) for each in heads]
    if any(each.size == head.size for each in heads):
        return tuple(notes)
    if len(heads) >= MAX_HEADS:
        smallest = min(heads, key=lambda each: each.size)
        if not is_read or smallest.size > head.size:
            return tuple(notes)
        notes.remove(str(smallest))
    return (*notes, str(head))


def _roots(edge: Edge, entries: Sequence[bytes], sizes: Container[int] = ()) -> dict[int, bytes]:
    """Append entries to an edge, and return the roots at these sizes."""
    roots = {}
    for entry in entries:
        edge.append(leaf_hash(entry))
        if edge.size in sizes:
            roots[edge.size] = edge.root
    return roots


def _until(record: Record, now: int) -> Record:
    """Return a record without times in the future."""
    return replace(
        record,
        changes=tuple(min(time, now) for time in record.changes),
        additions=tuple(min(time, now) for time in record.additions),
    )


def _two_histories(size: int) -> str:
    return f"the log has shown two histories of size {size}: keep both signed checkpoints as evidence"
