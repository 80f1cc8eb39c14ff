"""Clients with mistakes that the power-cut test must find."""

import ldp_client
from ldp_client import Client, LedgerError


class _DebitAfterSending(ldp_client._Ledger):
    def commit(self, state):
        if len(state.unsent) > len(self.state.unsent):
            self.state = state
        else:
            super().commit(state)


class _TrustAfterFailure(ldp_client._Ledger):
    def commit(self, state):
        before = self.state.sequence
        try:
            super().commit(state)
        except LedgerError:
            state.sequence = before
            self.state = state
            raise


class _CountAfterFailure(ldp_client._Ledger):
    def commit(self, state):
        before = self.state.sequence
        try:
            super().commit(state)
        except LedgerError:
            self.state.sequence = before + 1
            raise


class DebitAfterSending(Client):
    """A client that returns the report first; the debit reaches flash after the broker's acknowledgement."""

    def __init__(self, policy, storage, *args):
        super().__init__(policy, storage, *args)
        self._ledger = _DebitAfterSending(storage)


class TrustAfterFailure(Client):
    """A client that continues from a state that the flash rejected."""

    def __init__(self, policy, storage, *args):
        super().__init__(policy, storage, *args)
        self._ledger = _TrustAfterFailure(storage)


class CountAfterFailure(Client):
    """A client that counts a failed commit, and writes the other slot next: over the record in force."""

    def __init__(self, policy, storage, *args):
        super().__init__(policy, storage, *args)
        self._ledger = _CountAfterFailure(storage)


# Found by a cut alone, and by a write that fails once before it.
CUT_CONTROLS = (DebitAfterSending,)
BLIP_CONTROLS = (TrustAfterFailure, CountAfterFailure)
