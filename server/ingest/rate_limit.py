"""Limits how many reports of one device are accepted within an hour, in fixed memory."""

import os
from array import array
from collections.abc import Mapping

HOUR_S = 3600.0
_ROWS = 2
_CELLS = 1 << 20  # of a row: 4 MiB in all
_MOST = 65_535

Device = tuple[str, str]  # fleet, device id


class RateLimit:
    """A limit of `reports` per device and hour, 1 to 65,535; the hours start at the first report.

    A count-min sketch (Cormode and Muthukrishnan, 2005) of this hour's accepted reports: its memory is fixed,
    and no device gets past the limit. A device gets less only if others fill both of its cells.

    Raises:
        ValueError: If the limit is out of range.
    """

    def __init__(self, reports: int) -> None:
        if not 1 <= reports <= _MOST:
            raise ValueError(f"a rate limit is 1 to {_MOST} reports per hour, not {reports}")
        self.reports = reports
        self._salt = os.urandom(16)  # so nobody can search for ids that share a device's cells
        self._cells = [array("H", bytes(2 * _CELLS)) for _ in range(_ROWS)]
        self._hour_started_s: float | None = None

    def start(self, now_s: float) -> None:
        """Begin a new hour if the last one is over.

        Args:
            now_s: Monotonic seconds.
        """
        if self._hour_started_s is None or now_s - self._hour_started_s >= HOUR_S:
            if self._hour_started_s is not None:
                self._cells = [array("H", bytes(2 * _CELLS)) for _ in range(_ROWS)]
            self._hour_started_s = now_s

    def remaining(self, device: Device) -> int:
        """Return how many more reports of the device fit into this hour."""
        count = min(row[at] for row, at in zip(self._cells, self._places(device), strict=True))
        return max(0, self.reports - count)

    def add(self, accepted: Mapping[Device, int]) -> None:
        """Add reports that were committed."""
        for device, count in accepted.items():
            for row, at in zip(self._cells, self._places(device), strict=True):
                row[at] = min(_MOST, row[at] + count)

    def _places(self, device: Device) -> tuple[int, int]:
        # Python's hash of text is keyed (SipHash) and 64 bits long: enough for two places.
        value = hash((self._salt, device))
        return value % _CELLS, (value >> 32) % _CELLS
