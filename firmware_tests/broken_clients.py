"""Deliberately broken clients whose mistakes the power-cut tests must find."""

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
    """A client that counts a failed commit as done, and so overwrites the record in force."""

    def __init__(self, policy, storage, *args):
        super().__init__(policy, storage, *args)
        self._ledger = _CountAfterFailure(storage)


# Clients that a power cut alone exposes, and clients that need a failed write before the cut.
CUT_CONTROLS = (DebitAfterSending,)
BLIP_CONTROLS = (TrustAfterFailure, CountAfterFailure)
