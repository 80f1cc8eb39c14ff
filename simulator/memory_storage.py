"""A device's flash in memory: what `ldp_client.Client` takes in place of a folder."""


class MemoryStorage:
    """Four slots: read(slot) -> bytes or None, write(slot, data). It outlives the client, as flash does."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: list[bytes | None] = [None] * 4

    def read(self, slot: int) -> bytes | None:
        """Return the slot's bytes, None where it was never written."""
        return self._slots[slot]

    def write(self, slot: int, data: bytes) -> None:
        """Replace the slot's bytes."""
        self._slots[slot] = bytes(data)
