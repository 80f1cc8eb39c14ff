"""The implementation of `hushmote log`."""

from __future__ import annotations

import datetime
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from ...server.answers import tables as show
from ...server.budgets.policy import read_fields
from ...server.errors import HushmoteError, UsageError, refusing
from ...server.ingest.log_keeper import LogKeeper
from ...server.ingest.log_witnesses import Witness, board_keys_of, load_witnesses, request_signatures
from ...server.log.copy import LoggedName, breaches, names_of, read_copy
from ...server.log.entry import Entry, entries_of_policy, policy_entry
from ...server.log.key_file import create_key, load_key, public_key
from ...server.log.note import (
    COSIGNATURE,
    ECDSA,
    ED25519,
    Checkpoint,
    SecretKey,
    board_keys,
    valid_signatures,
)
from ...server.log.proof import signers_of
from ...server.log.tiles import reader
from ...server.plain_text import visible
from ...server.store.log import StoredLog
from ...server.store.log_export import export
from ...server.store.store import Store
from ...server.wire import topics
from ...server.words.numbers import counted
from ..options import choose_fleet, print_json, read_store

_FILE_LINE = re.compile(r"[0-9a-f]{64}  \S.*")


class LogRefused(HushmoteError):
    """Raised when a log's command cannot do its work; the message says why and what to do."""


@dataclass(frozen=True)
class Target:
    """The store whose log is meant, its key and its witnesses."""

    store: str
    key: Path
    witnesses: Path | None

    def load(self) -> tuple[SecretKey, tuple[Witness, ...]]:
        """Return the key and the witnesses."""
        witnesses = () if self.witnesses is None else load_witnesses(self.witnesses)
        return load_key(self.key), witnesses


def print_key(file: Path, origin: str | None, as_json: bool) -> None:
    """Print a key's public halves; with an origin, create it first."""
    if origin is None and not file.exists():
        raise UsageError(f"{file} does not exist: create it with --origin NAME, the log's name")
    key = load_key(file) if origin is None else create_key(file, origin)
    verifier, for_boards = key.public(ED25519), key.public(ECDSA)
    board_hex = for_boards.value.hex()
    if as_json:
        print_json({"origin": key.name, "key": str(verifier), "board": str(for_boards), "policy": board_hex})
        return
    typer.echo(f"{file} signs the log {key.name}.\nKeep a copy where nobody else can read it.\n")
    typer.echo(f"For witnesses and auditors:\n{verifier}\n\nFor boards, as in POLICY:\n{board_hex}")


def print_policy(key: Path, witnesses: Path, need: int | None, as_json: bool) -> None:
    """Print the "log" of a board's policy."""
    secret, signers = load_key(key), load_witnesses(witnesses)
    board_keys_of(secret, signers)  # checks all of them
    public = board_keys_of(secret, [witness for witness in signers if not witness.is_gone])
    most = len(public) - 1
    if not most:
        raise UsageError(
            f"{witnesses} has no witness with a URL and with a key for boards, whose type is P-256"
        )
    if most > 7:
        raise UsageError(
            f"boards support up to 7 witnesses, but {witnesses} has {most}: give a file with fewer"
        )
    if need is not None and not most < 2 * need <= 2 * most:
        least = most // 2 + 1
        numbers = f"{least} to {most}" if least < most else f"{most}"
        raise UsageError(
            f"--need must be {numbers}, more than half of the {most} witnesses, so that no two halves can "
            "sign two histories"
        )
    if as_json:
        print_json({"origin": secret.name, "keys": board_keys(public), "need": need or most})
        return
    lines = "".join(f'        "{text}",\n' for text in board_keys(public))
    names = ", ".join(each.name for each in public[1:])
    typer.echo(f'    "log": {{"origin": "{secret.name}", "need": {need or most}, "keys": (')
    typer.echo(f"        # of the log, then of {names}\n{lines}    )}},")


def list_entries(store_url: str, newest: int, as_json: bool) -> None:
    """List a store's newest entries."""
    with read_store(store_url) as store:
        stored = _read(store)
    checkpoint = stored.checkpoint
    assert checkpoint is not None  # ensured by _read()
    first = max(0, stored.tree.size - newest)
    rows = [
        {
            "entry": number,
            "added": datetime.datetime.fromtimestamp(each.at, datetime.UTC).isoformat(timespec="seconds"),
            "what": describe(each.entry),
        }
        for number, each in enumerate(stored.entries[first:], first)
    ]
    signers = list(dict.fromkeys(line.name for line in checkpoint.signatures))
    if as_json:
        print_json(
            {"origin": checkpoint.origin, "size": checkpoint.size, "signed_by": signers, "entries": rows}
        )
        return
    typer.echo(f"{checkpoint.origin}: {counted(checkpoint.size, 'entry')}\nsigned by {', '.join(signers)}")
    if rows:
        table = show.table("", ("", "added", "entry"), (1, 2))
        for row in rows:
            added = datetime.datetime.fromisoformat(str(row["added"])).astimezone()
            table.add_row(f"{row['entry']:,}", f"{added:%Y-%m-%d %H:%M}", str(row["what"]))
        show.out.print(table)


def add(kind: str, file: Path, target: Target, fleet: str | None, version: str | None, as_json: bool) -> None:
    """Add a policy or a release."""
    if kind == "release":
        if fleet is not None:
            raise UsageError("--fleet goes with a policy, and a release is for all fleets: omit it")
        entry = _release(file, version)
    elif version is not None:
        raise UsageError("--version goes with a release: omit it")
    secret, witnesses = target.load()
    with Store(target.store, create=False) as store:
        if kind == "policy":
            entry = policy_entry(choose_fleet(store, fleet), read_fields(file))
        stored = StoredLog(store)
        stored.refresh()
        stored.check_witnesses(witnesses)
        now = int(time.time())
        for witness in (each for each in witnesses if not each.is_gone):
            request_signatures(stored, secret, witness, now)
        added = stored.append(secret, lambda log: [] if _has(log, entry) else [entry], now)
        number = max(at for at, each in enumerate(stored.entries) if each.entry == entry)
    if as_json:
        print_json({"entry": number, "key": entry.key, "added": bool(added)})
    else:
        state = "is entry" if added else "is already entry"
        typer.echo(f"{describe(entry)} {state} {number} of {secret.name}")


def write_files(folder: Path, store_url: str, as_json: bool) -> None:
    """Export a log."""
    with read_store(store_url) as store:
        since, size = export(StoredLog(store), folder)
    if as_json:
        print_json({"folder": str(folder), "before": since, "size": size})
    elif since == size:
        typer.echo(f"{folder} is up to date: {counted(size, 'entry')}")
    else:
        typer.echo(f"{folder} has {counted(size, 'entry')}, {size - since:,} of them new")


def print_proof(name: str, target: Target, fleet: str | None, as_json: bool) -> None:
    """Print an experiment's proof."""
    secret, witnesses = target.load()
    with read_store(target.store) as store:
        topic = topics.experiment_topic(choose_fleet(store, fleet), name)
        keeper = LogKeeper(store, secret, witnesses)
        proof = keeper.read_proof(topic)
    index, size = int.from_bytes(proof[:4], "big"), int.from_bytes(proof[4:8], "big")
    signers = [key.name for key in signers_of(proof, board_keys_of(secret, witnesses))]
    if as_json:
        values = {
            "entry": index,
            "size": size,
            "signed_by": signers,
            "bytes": len(proof),
            "proof": proof.hex(),
        }
        print_json(values)
        return
    typer.echo(f"entry {index} in a log of size {size}, {len(proof)} bytes, signed by {', '.join(signers)}")
    typer.echo(proof.hex())


def check(source: str, key: str, witnesses: Sequence[str], policy: Path | None, as_json: bool) -> None:
    """Check a log's files, and print what the log has, and whether it has a policy."""
    public = public_key("--key", key)
    signers = [public_key("--witness", each) for each in witnesses]
    fields = None if policy is None else read_fields(policy)
    copy = read_copy(reader(source), public)
    signed = valid_signatures(copy.checkpoint, signers)
    own = public.name, *(each.name for each in signers)
    others = list(dict.fromkeys(e.name for e in copy.checkpoint.signatures if e.name not in own))
    problems = [f"{key.name} has not signed it with {key}" for key in signers if key not in signed]
    problems += breaches(copy.entries, int(time.time()))
    logged = {} if fields is None else entries_of_policy(copy.entries, fields)
    if fields is not None and not logged:
        problems.append(f"the log does not have the policy in {policy}: ask its maker to add it")
    names = names_of(copy.entries)
    policies = Counter(entry.policy_fleet for entry in copy.entries if entry.policy_fleet)
    releases = [entry.release for entry in copy.entries if entry.release]
    signatures = {
        key.name: _cosigned_at(line.value) if key.kind == COSIGNATURE else None
        for key, line in signed.items()
    }
    if as_json:
        print_json(
            {
                "origin": public.name,
                "size": copy.checkpoint.size,
                "signed_by": signatures,
                "not_verified": others,
                "experiments": [asdict(each) for each in names],
                "policies": policies,
                **({} if fields is None else {"policy_entries": logged}),
                "releases": releases,
                "problems": problems,
            }
        )
    else:
        _print_check(copy.checkpoint, names, policies, releases, signatures, others)
        for number, fleet in logged.items():
            typer.echo(f"{policy} has the policy of fleet {fleet} in entry {number:,}.")
    if problems:
        more = f" (and {len(problems) - 1:,} more: --json lists them)" if problems[1:] else ""
        raise LogRefused(problems[0] + more)


def restore(source: str, key: Path, store_url: str, as_json: bool) -> None:
    """Add the entries of an export that a store lacks."""
    secret = load_key(key)
    public = [secret.public(kind) for kind in (ED25519, ECDSA)]
    copy = read_copy(reader(source), public[0])
    signed = valid_signatures(copy.checkpoint, public)
    if len(signed) < len(public):
        raise LogRefused(f"{source} has no signature of {secret.name} for boards: export the log again")
    own = Checkpoint(secret.name, copy.checkpoint.size, copy.checkpoint.root, tuple(signed.values()))
    with Store(store_url, create=False) as store:
        added = StoredLog(store).extend(copy.entries, own, int(time.time()))
    if as_json:
        print_json({"added": added, "size": own.size})
    else:
        typer.echo(f"{counted(added, 'entry')} added; the store's log has {own.size:,} now")


def describe(entry: Entry) -> str:
    """Return what an entry is, in a few words."""
    if (names := entry.experiment) is not None:
        return f"{names[1]} of fleet {names[0]}{'' if entry.question else ', withdrawn'}"
    if entry.policy_fleet is not None:
        return f"policy of fleet {entry.policy_fleet}"
    return f"release {entry.release}"


def _read(store: Store) -> StoredLog:
    stored = StoredLog(store)
    stored.refresh()
    if stored.checkpoint is None:
        raise LogRefused(f"{store.where} has no log: run `hushmote serve --log-key FILE` first")
    return stored


def _release(file: Path, version: str | None) -> Entry:
    if version is None:
        raise UsageError("a release has a version: give it with --version")
    with refusing(UsageError, f"read {file}"):
        content = file.read_bytes()
    lines = content.decode("utf-8", "replace").splitlines()
    wrong = next((line for line in lines if not _FILE_LINE.fullmatch(line)), None)
    if wrong is not None or not lines:
        raise UsageError(f"a line of {file} must be a SHA-256 in hex, two spaces and a path, not {wrong!r}")
    entry = Entry(f"hushmote/release/{version}", content)
    if entry.release is None:
        raise UsageError(f"--version must be 1 to 64 letters, digits, ., + and -, not {version!r}")
    return entry


def _has(log: StoredLog, entry: Entry) -> bool:
    last = next((each.entry for each in reversed(log.entries) if each.entry.key == entry.key), None)
    return last == entry


def _cosigned_at(value: bytes) -> str:
    seconds = int.from_bytes(value[:8], "big")
    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return "an impossible time"


def _print_check(
    checkpoint: Checkpoint,
    names: Sequence[LoggedName],
    policies: Mapping[str, int],
    releases: Sequence[str],
    signatures: dict[str, str | None],
    others: Sequence[str],
) -> None:
    typer.echo(f"{checkpoint.origin} has {counted(checkpoint.size, 'entry')}, as signed in its checkpoint.")
    for name, at in signatures.items():
        typer.echo(f"{name} has signed it{f' at {at}' if at else ''}.")
    if others:
        names_of_others = visible(", ".join(others))  # anyone can add a line to a checkpoint
        typer.echo(f"Signatures of {names_of_others} were not verified: give their keys with --witness.")
    fleets = sorted({each.fleet for each in names} | policies.keys())
    typer.echo(f"{counted(len(fleets), 'fleet')}: {', '.join(fleets)}" if fleets else "It lists no fleets.")
    if names:
        table = show.table("", ("fleet", "experiment", "versions", ""), (0, 1, 3))
        for each in names:
            table.add_row(
                each.fleet, each.name, f"{each.versions:,}", "withdrawn" if each.is_withdrawn else ""
            )
        show.out.print(table)
    for fleet, count in policies.items():
        typer.echo(f"policies of fleet {fleet}: {count:,}")
    if releases:
        typer.echo(f"releases: {', '.join(releases)}")
