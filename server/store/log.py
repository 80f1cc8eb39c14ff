"""The log of questions in a store: append-only, and signed in the transaction that adds to it."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlalchemy import Connection, func, select

from ..log.change import DAY_S, compare
from ..log.entry import MAX_BYTES, Entry
from ..log.note import (
    ECDSA,
    ED25519,
    Checkpoint,
    NoteRefused,
    PublicKey,
    SecretKey,
    Signature,
    parse_signatures,
)
from ..log.pace import changes_of_names, wait
from ..log.tree import Tree
from . import schema
from .database import COUNTING_LOCK, StoreDamaged, StoreError, insert_new
from .store import Store

_LOCK = COUNTING_LOCK + 1  # PostgreSQL's advisory lock for adding to the log
_GONE_AFTER_S = 30 * DAY_S
_entries, _checkpoints, _cosignatures = schema.log_entry, schema.log_checkpoint, schema.log_cosignature


def waiting_questions(connection: Connection, questions: Mapping[str, bytes], now: int) -> dict[str, str]:
    """Return what questions wait for, by topic: their day, the log, or witnesses; nothing without a log.

    Args:
        connection: A connection to the store.
        questions: The JSON that devices should get, by topic.
        now: Unix seconds.
    """
    if not _has_log(connection):
        return {}
    newest = select(func.max(_entries.c.number)).group_by(_entries.c.key)
    query = select(_entries).where(_entries.c.number.in_(newest))
    last = {
        key: (number, Entry(key, bytes(content)), at)
        for number, key, content, at in connection.execute(query)
    }
    signed = _last_signed(connection)
    waiting = dict[str, str]()
    for topic, question in questions.items():
        if topic in last and last[topic][1].question == question:
            number, _, at = last[topic]
            if why := _unsigned(number, int(at), signed):
                waiting[topic] = why
            continue
        columns = _entries.c.content, _entries.c.at
        rows = connection.execute(
            select(*columns).where(_entries.c.key == topic).order_by(_entries.c.number)
        ).all()
        entries = [Entry(topic, bytes(content)) for content, _ in rows]
        changes = changes_of_names(entries, [int(at) for _, at in rows]).get(topic, [])
        change = compare(entries[changes[-1].number].question if changes else None, question)
        waiting[topic] = (
            wait(change, changes, now)
            or "for `hushmote serve` to log it, after every witness has signed since its start"
        )
    return waiting


def _last_signed(connection: Connection) -> dict[str, tuple[int, int]]:
    """Return each witness's largest signed size by its name, and when the signature arrived."""
    columns = _cosignatures.c.size, _cosignatures.c.line, _cosignatures.c.at
    rows = connection.execute(select(*columns).order_by(_cosignatures.c.size))
    return {parse_signatures(line)[0].name: (size, int(at)) for size, line, at in rows}


def _unsigned(number: int, at: int, signed: Mapping[str, tuple[int, int]]) -> str:
    """Return who has not signed an entry, or "".

    The store does not know who is asked, and a log may have no witnesses: one counts from its first
    signature until a month after its last.

    Args:
        number: The entry's number.
        at: When it was added, unix seconds.
        signed: The result of _last_signed().
    """
    if signed and all(size <= number for size, _ in signed.values()):
        return "for a witness to sign it: none has signed it yet"
    missing = [
        name for name, (size, last) in sorted(signed.items()) if size <= number and last > at - _GONE_AFTER_S
    ]
    if not missing:
        return ""
    return f"for witness{'es' * (len(missing) > 1)} {' and '.join(missing)} to sign it"


def _has_log(connection: Connection) -> bool:
    return connection.scalar(select(_checkpoints.c.size).limit(1)) is not None


def check_unlogged(store: Store) -> None:
    """Check that experiments may be announced without a log.

    Raises:
        StoreError: If the store has one, or fails.
    """
    with store.decoding_errors(), store.snapshot() as connection:
        if _has_log(connection):
            raise StoreError(
                f"{store.where} has a log, and boards that require it take only what is in it: give its key "
                "with --log-key"
            )


@dataclass(frozen=True, slots=True)
class LoggedEntry:
    """An entry, and when it was added, unix seconds."""

    entry: Entry
    at: int


class StoredLog:
    """A store's log as last read, with its tree. Several threads may use it.

    Entries, checkpoints and signatures are only ever added. Aggregators on one store add to it one after the
    other, so they publish the same bytes.

    Args:
        store: The open store.

    Attributes:
        entries: All entries, in order.
        tree: Their tree.
        checkpoints: The log's checkpoints by size, with the signatures of witnesses that have arrived.
        cosigned: For each size, in ascending order, each witness's line with the time at which it arrived,
            unix seconds.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.RLock()
        self.entries: list[LoggedEntry] = []
        self.tree = Tree()
        self._own: dict[int, Checkpoint] = {}  # with only the log's signatures
        self.checkpoints: dict[int, Checkpoint] = {}
        self.cosigned: dict[int, list[tuple[Signature, int]]] = {}
        self._signed: dict[tuple[str, bytes], list[tuple[int, int]]] = {}  # each key's sizes and times
        self._line_count = 0

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint, with its signatures; None if there is no log yet."""
        return self.checkpoints.get(self.tree.size)

    def refresh(self) -> None:
        """Read what was added since the last time.

        Raises:
            StoreError: If the store fails, or its log is damaged or shorter than before.
        """
        with self._store.decoding_errors(), self._store.snapshot() as connection:
            self._read(connection)

    def check_key(self, secret: SecretKey) -> None:
        """Check that a key is the one that signs this log.

        Raises:
            StoreError: If the log has another origin or another key.
        """
        newest = self.checkpoint
        if newest is None:
            return
        if newest.origin != secret.name:
            raise StoreError(
                f"the log in {self._store.where} is {newest.origin}, but the key is of {secret.name}: a "
                "store has one log; give its key"
            )
        public = [secret.public(kind) for kind in (ED25519, ECDSA)]
        if not all(any(key.made(line) for line in newest.signatures) for key in public):
            raise StoreError(
                f"the log in {self._store.where} was signed with another key of {newest.origin}: give "
                "that key"
            )

    def check_witnesses(self, witnesses: Sequence[object]) -> None:
        """Check that witnesses are given if some have signed: they know whether this store lacks entries.

        Raises:
            StoreError: If they are not.
        """
        if self.cosigned and not witnesses:
            raise StoreError(
                f"witnesses have signed the log in {self._store.where}: give their file with --witnesses, "
                "because they know whether this store lacks entries"
            )

    def begin(self, secret: SecretKey, now: int) -> None:
        """Read the log, and sign the empty tree of a new one, so that witnesses can begin with it.

        Raises:
            StoreError: If the store fails, or the key is not the log's.
        """
        self.refresh()
        self.check_key(secret)
        if self.checkpoint is None:
            self.append(secret, lambda _: (), now)

    def append(
        self, secret: SecretKey, choose: Callable[[StoredLog], Sequence[Entry]], now: int
    ) -> Sequence[Entry]:
        """Add entries and sign the new tree, in one transaction; sign an empty tree if it is the first.

        Args:
            secret: The log's key.
            choose: Returns the entries, given the log as it is in the transaction.
            now: Unix seconds.

        Returns:
            The entries.

        Raises:
            StoreError: If the store fails, the key is not the log's or an entry is too long; then nothing is
                added.
        """
        with self._lock:
            with self._writing() as connection:
                self.check_key(secret)
                entries = choose(self)
                if entries or self.checkpoint is None:
                    self._insert(connection, entries, now, secret)
            self.refresh()
        return entries

    def extend(self, entries: Sequence[Entry], checkpoint: Checkpoint, now: int) -> int:
        """Add entries that an earlier state of this store had, with their signed checkpoint.

        Args:
            entries: All entries of the log, from the first.
            checkpoint: The checkpoint; the caller has checked the log's signatures.
            now: Unix seconds.

        Returns:
            The number of entries added.

        Raises:
            StoreError: If the checkpoint is not of these entries, or they do not continue the store's log.
        """
        tree = Tree(entry.leaf for entry in entries)
        if (tree.size, tree.root()) != (checkpoint.size, checkpoint.root):
            raise StoreError("its entries are not those of its checkpoint: export it again")
        with self._lock:
            with self._writing() as connection:
                size, newest = self.tree.size, self.checkpoint
                if newest is not None and newest.origin != checkpoint.origin:
                    raise StoreError(f"it is the log {checkpoint.origin}, but the store's is {newest.origin}")
                if size > tree.size:
                    raise StoreError(
                        f"it has {tree.size:,} entries and the store has {size:,}: nothing is missing here"
                    )
                if self.tree.root() != tree.root(size):
                    raise StoreError(
                        "it does not continue the store's log: the store has added other entries since it "
                        "was restored. Stop this log, and start another one under a new origin"
                    )
                if added := entries[size:]:
                    self._insert(connection, added, now, checkpoint)
            self.refresh()
        return len(added)

    def add_signatures(self, size: int, lines: Sequence[Signature], now: int) -> None:
        """Keep a witness's lines under the checkpoint of a size; of one key, only the first is kept.

        Raises:
            StoreError: If the store fails.
        """
        with self._lock, self._writing() as connection:
            signers = {(line.name, line.key_id) for line, _ in self.cosigned.get(size, ())}
            rows = [
                {"size": size, "line": str(line), "at": now}
                for line in lines
                if (line.name, line.key_id) not in signers
            ]
            if rows:
                connection.execute(insert_new(connection, _cosignatures), rows)
        self.refresh()

    def cosigned_by(self, size: int, keys: Sequence[PublicKey]) -> bool:
        """Return whether all of a witness's keys have signed the checkpoint of a size."""
        return all(any(key.made(line) for line, _ in self.cosigned.get(size, ())) for key in keys)

    def cosigned_at(self, size: int, key: PublicKey) -> int | None:
        """Return when a witness's first signature of a checkpoint of at least `size` arrived, or None."""
        signed = self._signed.get((key.name, key.key_id), [])
        at = bisect_left(signed, size, key=lambda pair: pair[0])
        return signed[at][1] if at < len(signed) else None

    @contextmanager
    def _writing(self) -> Generator[Connection, None, None]:
        """Yield a write transaction in which no other process can add to the log."""
        with self._store.decoding_errors(), self._store.writing() as connection:
            self._store.check_version(connection)
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
            self._read(connection)
            yield connection

    def _insert(
        self, connection: Connection, entries: Sequence[Entry], now: int, signer: SecretKey | Checkpoint
    ) -> None:
        tree = self.tree.copy()
        rows = list[dict[str, object]]()
        for entry in entries:
            if len(bytes(entry)) > MAX_BYTES:
                raise StoreError(
                    f"an entry of a log has at most {MAX_BYTES:,} bytes, and {entry.key} has more"
                )
            rows.append({"number": tree.size, "key": entry.key, "content": entry.content, "at": now})
            tree.append(entry.leaf)
        note = signer.sign_tree(tree.size, tree.root()) if isinstance(signer, SecretKey) else signer
        if rows:
            connection.execute(_entries.insert(), rows)
        connection.execute(_checkpoints.insert().values(size=note.size, note=str(note)))

    def _read(self, connection: Connection) -> None:
        with self._lock:
            try:
                self._read_rows(connection)
            except NoteRefused as e:
                raise StoreDamaged(f"the log in {self._store.where} is damaged: {e}") from None

    def _read_rows(self, connection: Connection) -> None:
        size = self.tree.size
        last = connection.scalar(select(func.max(_entries.c.number)))
        if (-1 if last is None else last) < size - 1:
            raise StoreDamaged(
                f"the log in {self._store.where} is shorter than a moment ago: stop serving, and run "
                "`hushmote log restore`"
            )
        query = select(_entries).where(_entries.c.number >= size).order_by(_entries.c.number)
        new = [
            (number, LoggedEntry(Entry(key, bytes(content)), int(at)))
            for number, key, content, at in connection.execute(query)
        ]
        if [number for number, _ in new] != list(range(size, size + len(new))):
            raise NoteRefused("entries are missing")
        tree, checkpoints = self.tree.copy() if new else self.tree, {}
        for _, logged in new:
            tree.append(logged.entry.leaf)
        last_size = max(self._own, default=-1)
        notes = select(_checkpoints.c.note).where(_checkpoints.c.size > last_size)
        notes = notes.order_by(_checkpoints.c.size)
        for (note,) in connection.execute(notes):
            checkpoint = Checkpoint.parse(note)
            if checkpoint.size > tree.size or tree.root(checkpoint.size) != checkpoint.root:
                raise NoteRefused(f"the checkpoint of size {checkpoint.size:,} is not of its entries")
            checkpoints[checkpoint.size] = checkpoint
        if new and tree.size not in checkpoints:
            raise NoteRefused("its last entries are in no checkpoint")
        self.entries += [logged for _, logged in new]
        self.tree = tree
        self._own |= checkpoints
        self.checkpoints |= checkpoints
        self._read_cosignatures(connection)

    def _read_cosignatures(self, connection: Connection) -> None:
        count = connection.scalar(select(func.count()).select_from(_cosignatures)) or 0
        if count == self._line_count:
            return
        columns = _cosignatures.c.size, _cosignatures.c.line, _cosignatures.c.at
        cosigned: dict[int, list[tuple[Signature, int]]] = {}
        signed: dict[tuple[str, bytes], list[tuple[int, int]]] = {}
        for size, text, at in connection.execute(select(*columns).order_by(*columns)):
            (line,) = parse_signatures(text)
            cosigned.setdefault(size, []).append((line, int(at)))
            signed.setdefault((line.name, line.key_id), []).append((size, int(at)))
        for size, lines in cosigned.items():
            own = self._own[size]
            signatures = (*own.signatures, *(line for line, _ in lines))
            self.checkpoints[size] = replace(own, signatures=signatures)
        self.cosigned, self._signed, self._line_count = cosigned, signed, count
