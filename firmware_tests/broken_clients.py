"""Clients with the mistakes that the power-cut test is there to find."""

from ldp_client import Client, LedgerError


class DebitAfterSending(Client):
    """Hands the report out first; the debit reaches flash when the broker has acknowledged."""

    def _commit(self, state):
        if state.pending and not self._state.pending:
            self._state = state
        else:
            super()._commit(state)


class OneSlot(Client):
    """Writes the ledger to the same slot every time."""

    def _commit(self, state):
        self._ledger._slot = 1
        super()._commit(state)


class SlotToggledAfterFailure(Client):
    """Takes the other slot though the commit failed: next time it writes over the ledger in force."""

    def _commit(self, state):
        slot = self._ledger._slot
        try:
            super()._commit(state)
        except LedgerError:
            self._ledger._slot = 1 - slot
            raise


CONTROLS = (DebitAfterSending, OneSlot, SlotToggledAfterFailure)
