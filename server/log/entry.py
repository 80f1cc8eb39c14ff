"""The entries of a log: experiments and withdrawals as announced, policies, and the files of releases.

An entry is a key, a zero byte and a content. The key of an experiment is its MQTT topic without a broker's
prefix, and the content is the retained message: JSON, and in a keyed fleet the serial and signature. Boards
compute an entry's hash from these, so nothing else may be in it.

    hushmote/v1/FLEET/experiment/NAME   the retained message; a withdrawal has no JSON
    hushmote/policy/FLEET               JSON: the SHA-256 of a policy that boards of the fleet may have
    hushmote/release/VERSION            a release's manifest, a line for each file: SHA-256, two spaces, path
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..wire import keys, topics
from .note import NoteRefused
from .tree import leaf_hash

MAX_BYTES = 2**16 - 1  # bundles of entries write lengths in 2 bytes
_POLICY = re.compile(r"hushmote/policy/([a-z0-9_-]{1,32})")
_RELEASE = re.compile(r"hushmote/release/([0-9A-Za-z.+-]{1,64})")


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a log.

    Attributes:
        key: What it is about.
        content: Its bytes.
    """

    key: str
    content: bytes

    @classmethod
    def parse(cls, data: bytes) -> Entry:
        """Read an entry.

        Raises:
            NoteRefused: If its key is none of those above.
        """
        key, zero, content = data.partition(b"\0")
        try:
            entry = cls(key.decode("ascii"), content)
        except UnicodeDecodeError:
            entry = cls("", content)
        if not zero or not (entry.experiment or entry.policy_fleet or entry.release):
            raise NoteRefused(
                f"an entry's key is an experiment's topic, a policy or a release, not {key[:80]!r}"
            )
        return entry

    def __bytes__(self) -> bytes:
        return self.key.encode() + b"\0" + self.content

    @property
    def leaf(self) -> bytes:
        """The hash in the log's tree."""
        return leaf_hash(bytes(self))

    @property
    def experiment(self) -> tuple[str, str] | None:
        """The fleet and name, if the entry is an experiment or its withdrawal."""
        return topics.parse_experiment_topic(self.key)

    @property
    def policy_fleet(self) -> str | None:
        """The fleet, if the entry is a policy."""
        match = _POLICY.fullmatch(self.key)
        return match[1] if match else None

    @property
    def release(self) -> str | None:
        """The version, if the entry is a release."""
        match = _RELEASE.fullmatch(self.key)
        return match[1] if match else None

    @property
    def question(self) -> bytes:
        """An experiment's JSON as announced, without serial and signature; empty for a withdrawal."""
        return self.content.partition(b"\0")[0]

    @property
    def serial(self) -> int | None:
        """The serial of a signed experiment or withdrawal, or None if it is not signed."""
        _, zero, rest = self.content.partition(b"\0")
        return int.from_bytes(rest[: keys.SERIAL_BYTES], "big") if zero else None


def experiment_entry(fleet: str, name: str, payload: bytes) -> Entry:
    """Return the entry of an experiment or withdrawal as announced."""
    return Entry(topics.experiment_topic(fleet, name), payload)


def policy_entry(fleet: str, policy: object) -> Entry:
    """Return the entry of a policy that boards of a fleet may have.

    It has the SHA-256 of the policy's JSON with sorted names and without spaces, in hex.
    """
    canonical = json.dumps(policy, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    content = {"fleet": topics.check_fleet(fleet), "sha256": digest}
    return Entry(f"hushmote/policy/{fleet}", json.dumps(content).encode())


def entries_of_policy(entries: Sequence[Entry], policy: object) -> dict[int, str]:
    """Return the numbers of the entries that list a policy, each with its fleet."""
    return {
        number: fleet
        for number, entry in enumerate(entries)
        if (fleet := entry.policy_fleet) and entry == policy_entry(fleet, policy)
    }
