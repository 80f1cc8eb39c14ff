"""The fleets that reports are judged by, as of the last look at the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ..store.store import Store, StoreError
from ..wire.keys import MasterKeyError
from .pipeline import FleetRules, fleets, names_unknown
from .status import Status


class KnownFleets:
    """A store's fleets: all, or those of the given names.

    master: 32 bytes, or several, the first in force; None where no fleet is keyed.
    """

    def __init__(
        self,
        store: Store,
        status: Status,
        master: bytes | Sequence[bytes] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self._store = store
        self._status = status
        self._master = master
        self._names = names
        self.rules: Mapping[str, FleetRules] = {}

    def load(self) -> None:
        """Read them for the first time.

        Raises StoreError where the store cannot be read or lacks one of the names, and MasterKeyError where a
        fleet is keyed and no key is given.
        """
        self.rules = self._load()
        for name in self._names or ():
            if name not in self.rules:
                raise StoreError(f"there is no fleet {name} in {self._store.where}: add it first")

    def reload(self) -> None:
        """Read them again; raises StoreError. Where a key is missing they stay as they were."""
        try:
            self.rules = self._load()
        except MasterKeyError as e:  # a fleet that was added meanwhile; the others go on
            self._status.say(logging.ERROR, str(e))

    def rules_for(self, messages: Sequence[tuple[str, bytes]]) -> Mapping[str, FleetRules]:
        """Return the fleets, read again where a report names what was not there at the last look."""
        # At most once a batch: a board may have enrolled a moment after an experiment was added elsewhere.
        if names_unknown(messages, self.rules):
            self.reload()
        return self.rules

    def _load(self) -> dict[str, FleetRules]:
        return fleets(self._store, self._master, self._names)
