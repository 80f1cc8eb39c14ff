"""Limit how many reports from one device are accepted per hour, in fixed memory."""

import os
from array import array
from collections.abc import Mapping

HOUR_S = 3600.0
_ROWS = 2
_CELLS = 1 << 20  # cells per row; 4 MiB in total
_MAX_REPORTS = 65_535

Device = tuple[str, str]  # fleet, device id


class RateLimit:
    """A limit of `reports` per device and hour, 1 to 65,535; the first hour starts at the first report.

    It uses a count-min sketch (Cormode and Muthukrishnan, 2005) of this hour's accepted reports, which needs
    fixed memory. No device can exceed the limit. A device gets fewer reports only if others fill both of its
    cells.

    Raises:
        ValueError: If the limit is out of range.
    """

    def __init__(self, reports: int) -> None:
        if not 1 <= reports <= _MAX_REPORTS:
            raise ValueError(f"a rate limit must be 1 to {_MAX_REPORTS} reports per hour, not {reports}")
        self.reports = reports
        self._salt = os.urandom(16)  # so that nobody can find ids that share a device's cells
        self._cells = [array("H", bytes(2 * _CELLS)) for _ in range(_ROWS)]
        self._hour_started_s: float | None = None

    def start(self, now_s: float) -> None:
        """Start a new hour if the last one is over.

        Args:
            now_s: The current time in monotonic seconds.
        """
        if self._hour_started_s is None or now_s - self._hour_started_s >= HOUR_S:
            if self._hour_started_s is not None:
                self._cells = [array("H", bytes(2 * _CELLS)) for _ in range(_ROWS)]
            self._hour_started_s = now_s

    def remaining(self, device: Device) -> int:
        """Return how many more reports from the device are allowed in this hour."""
        count = min(row[at] for row, at in zip(self._cells, self._cell_indices(device), strict=True))
        return max(0, self.reports - count)

    def add(self, accepted: Mapping[Device, int]) -> None:
        """Count committed reports."""
        for device, count in accepted.items():
            for row, at in zip(self._cells, self._cell_indices(device), strict=True):
                row[at] = min(_MAX_REPORTS, row[at] + count)

    def _cell_indices(self, device: Device) -> tuple[int, int]:
        # Python's text hash is keyed (SipHash) and has 64 bits, enough for two cells.
        value = hash((self._salt, device))
        return value % _CELLS, (value >> 32) % _CELLS
