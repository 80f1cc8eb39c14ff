"""The clock that says in which window a report arrived: this machine's, or one for simulated boards."""

import datetime
import time

SIMULATED = "sim"
"""How names of simulated fleets begin; no other fleet's reports may be simulated, nor its clock hurried."""

DAY_S = 10.0
"""Seconds that a simulated day takes."""


def now() -> datetime.datetime:
    """This machine's time, UTC."""
    return datetime.datetime.now(datetime.UTC)


class HurryingClock:
    """Runs through whole days before today, day_s seconds each, and then follows this machine's clock.

    It stands still until it is first called, which is when the first reports arrive. No report can move it.
    """

    def __init__(self, days: int, day_s: float = DAY_S) -> None:
        self._days = days
        self._day_s = day_s
        self._began_s: float | None = None

    def __call__(self) -> datetime.datetime:
        """The time, UTC."""
        self._began_s = self._began_s or time.monotonic()
        return self.look()

    def look(self) -> datetime.datetime:
        """The time, for whoever is not to set it going."""
        gone = (time.monotonic() - self._began_s) / self._day_s if self._began_s else 0.0
        present = now()
        if gone >= self._days:
            return present
        midnight = present.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight - datetime.timedelta(days=self._days - gone)
