"""A log read from its files and recomputed: what an auditor checks, and what a store restores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .change import DAY_S, Change, compare, fault
from .entry import Entry
from .note import Checkpoint, NoteRefused, PublicKey, valid_signatures
from .pace import breach, changes_of_names
from .tiles import CHECKPOINT, Fetch, files, read_entries
from .tree import Tree


@dataclass(frozen=True)
class LogCopy:
    """A log whose entries, tiles and checkpoint agree.

    Attributes:
        checkpoint: The checkpoint, which the log has signed.
        entries: All entries.
        tree: Their tree.
    """

    checkpoint: Checkpoint
    entries: tuple[Entry, ...]
    tree: Tree


@dataclass(frozen=True)
class LoggedName:
    """The entries of an experiment's name.

    Attributes:
        fleet: The fleet's name.
        name: The experiment's name.
        versions: The number of versions.
        is_withdrawn: Whether the last entry is a withdrawal.
    """

    fleet: str
    name: str
    versions: int
    is_withdrawn: bool


def read_copy(fetch: Fetch, key: PublicKey) -> LogCopy:
    """Read a log and recompute its tree.

    Raises:
        NoteRefused: If the key has not signed it, or a file is missing or does not fit the others.
    """
    checkpoint = Checkpoint.parse(fetch(CHECKPOINT).decode("utf-8", "replace"))
    if checkpoint.origin != key.name:
        raise NoteRefused(
            f"this is the log {checkpoint.origin!r}, but the key belongs to the log {key.name!r}"
        )
    if not valid_signatures(checkpoint, [key]):
        raise NoteRefused(f"its checkpoint has no signature of the key {key}: give the log's key")
    raw = list(read_entries(fetch, 0, checkpoint.size))
    entries = tuple(map(Entry.parse, raw))
    tree = Tree(entry.leaf for entry in entries)
    if tree.root() != checkpoint.root:
        raise NoteRefused("its entries are not those that its checkpoint signs: someone has altered them")
    for path, data in files(tree, raw):
        if not path.startswith("tile/entries/") and fetch(path) != data:
            raise NoteRefused(f"{path} has other hashes than the log's entries")
    return LogCopy(checkpoint, entries, tree)


def names_of(entries: tuple[Entry, ...]) -> tuple[LoggedName, ...]:
    """Return the experiments of a log, sorted."""
    versions = changes_of_names(entries, (0 for _ in entries))
    last = {entry.key: entry for entry in entries}
    return tuple(
        LoggedName(*names, len(versions.get(key, ())), not entry.question)
        for key, entry in sorted(last.items())
        if (names := entry.experiment) is not None
    )


def breaches(entries: tuple[Entry, ...], now: int) -> Iterator[str]:
    """Yield a sentence for each version that witnesses refuse, and each name that changed too often.

    Entries have no times, but the serial of a keyed fleet's experiment is the time at which it was made, so
    the log cannot have had it before. Open fleets have no serials.
    """
    questions, highest = dict[str, bytes](), dict[str, int]()
    for number, entry in enumerate(entries):
        key, question = entry.key, entry.question
        if entry.experiment is None:
            continue
        if question:
            fleet, name = entry.experiment
            if text := fault(entry, compare(questions.get(key), question), highest.get(key, -1)):
                yield f"entry {number:,}, {name} of fleet {fleet}, {text}"
            questions[key] = question
        highest[key] = max(highest.get(key, -1), entry.serial or 0)
    for key, changes in sorted(changes_of_names(entries, (0 for _ in entries)).items()):
        numbers = [each.number for each in changes if each.change is Change.QUESTION]
        times = [entries[number].serial or 0 for number in numbers]
        excess = breach(times, now)
        if excess is not None:
            (fleet, name), (count, seconds) = entries[numbers[0]].experiment or ("", key), excess
            yield (
                f"{name} of fleet {fleet} had {count:,} versions within {max(seconds / DAY_S, 0.1):.1f} "
                "days, but witnesses allow one change a day"
            )
