"""Put experiments and withdrawals into the log before they are announced, and prove that they are in it."""

from __future__ import annotations

import datetime
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from ..errors import HushmoteError
from ..log.change import Change, compare, fault
from ..log.entry import Entry
from ..log.note import Checkpoint, PublicKey, SecretKey, Signature
from ..log.pace import Dated, changes_of_names, wait
from ..log.proof import encode_proof, proof_topic
from ..store.log import StoredLog
from ..store.store import Store
from ..wire import keys, topics
from .log_witnesses import Witness, WitnessThread, board_keys_of

_FIRST_ANSWER_S = 2.0


class NoProof(HushmoteError):
    """Raised when a topic has no proof; the message says why."""


class LogKeeper:
    """The log of the aggregators of one store.

    A change of a question waits until witnesses may sign it: 24 hours after the last one. Everything else is
    added at once. Nothing is added before every witness has signed since the start, because a store
    restored from a backup could otherwise continue the log differently.

    Args:
        store: The store.
        secret: The log's key.
        witnesses: The witnesses.

    Attributes:
        stored: The log as last read.
        waiting: Why a change is not in the log yet, by topic.
    """

    def __init__(self, store: Store, secret: SecretKey, witnesses: Sequence[Witness]) -> None:
        self.stored = StoredLog(store)
        self.waiting: dict[str, str] = {}
        self._secret = secret
        self._witnesses = witnesses
        self._threads = [
            WitnessThread(self.stored, secret, witness) for witness in witnesses if not witness.is_gone
        ]
        self._board_keys = board_keys_of(secret, witnesses)
        self._size = 0
        self._of_key: dict[str, list[int]] = {}  # the numbers of each key's entries
        self._changes: dict[str, list[Dated]] = {}
        self._proofs: dict[tuple[int, int, int], bytes] = {}
        self._best: tuple[object, list[int | None]] = None, []  # of which `cosigned`, and _best_sizes() of it

    def __enter__(self) -> LogKeeper:
        """Check the key, and start asking the witnesses.

        Raises:
            StoreError: If the log is damaged, the key is another log's, or a signed log's witnesses are not
                given.
        """
        self.stored.begin(self._secret, int(time.time()))
        self.stored.check_witnesses(self._witnesses)
        for thread in self._threads:
            thread.start()
        end = time.monotonic() + _FIRST_ANSWER_S
        for thread in self._threads:  # most answer at once, and then nothing has to wait for a second turn
            thread.answered.wait(max(0.0, end - time.monotonic()))
        return self

    def __exit__(self, *exc: object) -> None:
        for thread in self._threads:
            thread.stop()

    @property
    def warnings(self) -> tuple[str, ...]:
        """A sentence on each witness that does not sign, without the names of experiments."""
        return tuple(thread.problem for thread in self._threads if thread.problem)

    def last(self, topic: str) -> bytes | None:
        """Return a topic's last entry, or None."""
        numbers = self._of_key.get(topic)
        return self.stored.entries[numbers[-1]].entry.content if numbers else None

    def signed_before(self, topic: str) -> tuple[bytes, str] | None:
        """Return a topic's newest question that every witness has signed, and why the last entry waits.

        A new board needs a question and a proof that belong together, and finds neither while the last entry
        waits for witnesses. None if it is signed or a withdrawal, or if there is no signed one before it.
        """
        waits = ""
        for number in reversed(self._of_key.get(topic, [])):
            content = self.stored.entries[number].entry.content
            unsigned = next((t for t in self._awaited if self._signed_at(number, t.witness) is None), None)
            if keys.is_withdrawal(content) or not (unsigned or waits):
                return None
            if unsigned is None:
                return content, _sentence(topic, waits)
            waits = waits or f"until witness {unsigned.witness.name} has signed it"
        return None

    def add(self, payloads: Mapping[str, bytes], now: datetime.datetime) -> None:
        """Add what the log does not have and may have now.

        Args:
            payloads: What is to be retained, by topic.
            now: The time, UTC.

        Raises:
            StoreError: If the store fails, or its log is damaged or shorter than before.
        """
        self.stored.refresh()
        now_s = int(now.timestamp())

        def choose(_log: StoredLog) -> list[Entry]:
            self._index()
            self.waiting = {}
            return [
                Entry(topic, payload)
                for topic, payload in sorted(payloads.items())
                if self._is_due(topic, payload, now_s)
            ]

        if choose(self.stored) and self.stored.append(self._secret, choose, now_s):
            self._index()
            for thread in self._threads:
                thread.wake()

    def proofs(self, payloads: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return the proofs to retain, by topic; empty for what is withdrawn or not signed by a witness."""
        return {
            proof_topic(*names): self._proof(topic, payload)
            for topic, payload in payloads.items()
            if (names := topics.parse_experiment_topic(topic)) is not None
        }

    def read_proof(self, topic: str) -> bytes:
        """Return the proof of what a topic's last entry announces.

        Raises:
            NoProof: If there is none.
            StoreError: If the store fails.
        """
        self.stored.refresh()
        self._index()
        last = self.last(topic)
        if last is None:
            raise NoProof(f"{topic} is not in the log: `hushmote log list` shows what is")
        if keys.is_withdrawal(last):
            raise NoProof(f"{topic} is withdrawn, and a withdrawal needs no proof")
        if proof := self._proof(topic, last):
            return proof
        raise NoProof(f"no witness has signed a checkpoint with {topic} yet")

    def _index(self) -> None:
        if self._size != self.stored.tree.size:
            logged = self.stored.entries
            self._of_key = {}
            for number, each in enumerate(logged):
                self._of_key.setdefault(each.entry.key, []).append(number)
            self._changes = changes_of_names((each.entry for each in logged), (each.at for each in logged))
            self._size = len(logged)

    def _is_due(self, topic: str, payload: bytes, now_s: int) -> bool:
        """Return whether to add an entry now; if not, `waiting` may say why."""
        if self.last(topic) == payload or (keys.is_withdrawal(payload) and topic not in self._of_key):
            return False
        why = self._why_blocked()
        if not keys.is_withdrawal(payload):
            why = why or self._why_refused(topic, payload) or self._why_early(topic, payload, now_s)
            if why:
                self.waiting[topic] = _sentence(topic, why)
        return not why

    def _why_blocked(self) -> str:
        for thread in self._threads:
            if thread.stopped:
                return f"because witness {thread.witness.name} has signed what this store does not have"
        for thread in self._awaited:
            if not thread.confirmed:
                return f"until witness {thread.witness.name} has signed the log since this start"
        disputed = next((thread.witness.name for thread in self._threads if thread.is_disputed), "")
        if disputed and not self._has_majority():
            return (
                f"because witness {disputed} says that it has signed what this store does not have, and not "
                "more than half of the witnesses have signed the log since this start"
            )
        return ""

    @property
    def _awaited(self) -> list[WitnessThread]:
        """The witnesses that changes wait for."""
        return [thread for thread in self._threads if not thread.is_disputed]

    def _has_majority(self) -> bool:
        """Return whether so many witnesses have seen no larger tree that no board can have accepted one."""
        signers = [thread for thread in self._awaited if thread.confirmed and thread.witness.board_key]
        return 2 * len(signers) > len(self._board_keys) - 1

    def _why_refused(self, topic: str, payload: bytes) -> str:
        """Return why witnesses would refuse an entry for ever, and with it every later one."""
        entry = Entry(topic, payload)
        serials = (self.stored.entries[number].entry.serial or 0 for number in self._of_key.get(topic, []))
        text = fault(entry, self._change(topic, entry.question), max(serials, default=-1))
        return text and f"because witnesses refuse it: it {text}"

    def _change(self, topic: str, question: bytes) -> Change:
        changes = self._changes.get(topic)
        return compare(self.stored.entries[changes[-1].number].entry.question if changes else None, question)

    def _why_early(self, topic: str, payload: bytes, now_s: int) -> str:
        """Return why witnesses would not sign a change yet, or ""."""
        changes, change = self._changes.get(topic, []), self._change(topic, Entry(topic, payload).question)
        if not changes or change is Change.NONE:
            return ""
        for thread in self._awaited:
            if self._signed_at(changes[-1].number, thread.witness) is None:
                return f"until witness {thread.witness.name} has signed its last change"
        return wait(change, [self._as_signed(dated) for dated in changes], now_s)

    def _as_signed(self, dated: Dated) -> Dated:
        times = (self._signed_at(dated.number, thread.witness) for thread in self._threads)
        return Dated(dated.number, dated.change, max([dated.at, *(at for at in times if at is not None)]))

    def _signed_at(self, number: int, witness: Witness) -> int | None:
        return self.stored.cosigned_at(number + 1, witness.keys[0])

    def _proof(self, topic: str, payload: bytes) -> bytes:
        entries, numbers = self.stored.entries, reversed(self._of_key.get(topic, []))
        number = next((number for number in numbers if entries[number].entry.content == payload), None)
        if number is None or keys.is_withdrawal(payload):
            return b""
        best = self._best_checkpoint(number)
        if best is None:
            return b""
        key = number, best.size, len(best.signatures)
        if key not in self._proofs:
            self._proofs[key] = encode_proof(self.stored.tree, number, best, self._board_keys)
        return self._proofs[key]

    def _best_checkpoint(self, number: int) -> Checkpoint | None:
        """Return the first of the checkpoints with an entry that most witnesses have signed for boards.

        Those that are asked count first: boards whose policy replaces one that is gone need the others.
        """
        cosigned = self.stored.cosigned
        if self._best[0] is not cosigned:
            self._best = cosigned, self._best_sizes(cosigned)
        at = bisect_left(sizes := list(cosigned), number + 1)
        best = self._best[1][at] if at < len(sizes) else None
        return None if best is None else self.stored.checkpoints[best]

    def _best_sizes(self, cosigned: Mapping[int, list[tuple[Signature, int]]]) -> list[int | None]:
        """Return for each size the first of the best ones from it on; None if no board counts a signature."""
        asked = _ids(key for thread in self._threads if (key := thread.witness.board_key) is not None)
        everyone = _ids(self._board_keys[1:])
        best, most, sizes = None, (0, 1), list[int | None]()
        for size in reversed(list(cosigned)):
            signers = {(line.name, line.key_id) for line, _ in cosigned[size]}
            count = len(signers & asked), len(signers & everyone)
            if count >= most:
                best, most = size, count
            sizes.append(best)
        return sizes[::-1]


def _ids(keys: Iterable[PublicKey]) -> set[tuple[str, bytes]]:
    return {(key.name, key.key_id) for key in keys}


def _sentence(topic: str, why: str) -> str:
    fleet, name = topics.parse_experiment_topic(topic) or ("", topic)
    return f"{name} of fleet {fleet} is waiting {why}"
