"""Remember the last reports for two minutes, to tell a resent report from another one with its number."""

import hashlib
import itertools
import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..store.transaction import DedupeKey

RECENT_S = 120.0
"""Seconds for which a counted report is remembered."""
_MAX_REPORTS = 100_000  # about 20 MB

CONFLICT_MEANING = "two boards share one identity, or a board's ledger was erased: provision it again"
"""What it means that two different reports have the same number, and what to do."""


class Number(NamedTuple):
    """A report's number, with the device and the experiment that it belongs to."""

    key: DedupeKey
    number: int


class Content(NamedTuple):
    """What a report's bytes contain apart from its number and its tag."""

    digest: bytes
    group: int
    code: int


class RecentReports:
    """Keyed hashes of the reports counted within the last two minutes, at most the last 100,000.

    Devices resend a report with identical bytes, so another report with the same number comes from another
    device with the same identity, or from a ledger that was erased or restored.

    *Privacy.* Nothing leaves this object, and nothing is stored. A plain hash of a code of one byte could be
    reversed by trying all 256 codes, so the hashes have a random key, which exists only in this process.

    Args:
        monotonic: Returns monotonic seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._key = os.urandom(32)
        # By the hash of the number: when to forget it, and the hash of the content. Oldest first.
        self._hashes: dict[int, tuple[float, int]] = {}

    def __len__(self) -> int:
        return len(self._hashes)

    def differs(self, number: Number, content: Content) -> bool:
        """Return whether a report with this number and another content was counted recently."""
        name = self._name(number)
        expires_at, counted = self._hashes.get(self._hash(name), (float("-inf"), 0))
        return expires_at > self._monotonic() and counted != self._hash(name, content)

    def add(self, reports: Mapping[Number, Content]) -> None:
        """Remember committed reports, and forget the oldest."""
        expires_at = self._monotonic() + RECENT_S
        for number, content in reports.items():
            name = self._name(number)
            place = self._hash(name)
            self._hashes.pop(place, None)  # to the end
            self._hashes[place] = expires_at, self._hash(name, content)
        self.forget_old()

    def forget_old(self) -> None:
        """Forget the reports that were counted more than two minutes ago, or before the last 100,000."""
        now = self._monotonic()
        excess = max(0, len(self._hashes) - _MAX_REPORTS)
        expired = itertools.takewhile(lambda entry: entry[1][0] <= now, self._hashes.items())
        count = max(excess, sum(1 for _ in expired))
        for place in list(itertools.islice(self._hashes, count)):
            del self._hashes[place]

    @staticmethod
    def _name(number: Number) -> str:
        return "/".join((*number.key, str(number.number)))

    def _hash(self, name: str, content: Content | None = None) -> int:
        text = name if content is None else f"{name}/{content.digest.hex()}/{content.group}/{content.code}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, key=self._key).digest(), "big")
