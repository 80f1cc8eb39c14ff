"""The clock that says in which window a report arrived: this machine's, or one for simulated boards."""

import datetime
import logging
import time
from collections.abc import Callable

from ..store.counting import ClockWrong, check_clock
from ..store.database import StoreError

SIMULATED = "sim"
"""How names of simulated fleets begin; no other fleet's reports may be simulated, nor its clock hurried."""

DAY_S = 10.0
"""Seconds that a simulated day takes."""

_READ_S = 2.0  # how soon an operator's word about the clock is heard
_BACK_S = 60.0  # a jump back by more has the store's time read again at once
_HOLD_S = 86_400.0  # for so long a jump ahead erases nothing


def now() -> datetime.datetime:
    """This machine's time, UTC."""
    return datetime.datetime.now(datetime.UTC)


class CheckedClock:
    """This machine's clock, which refuses to give the time while it cannot be right.

    Calling it returns the time, UTC, or raises ClockWrong: by the store's last time and, once a right time is
    known, by the monotonic clock. So nothing that needs the time is counted, erased or published meanwhile.
    It raises StoreError if the store's time was never read and cannot be.

    last_time: reads the store's last time. say: is given a line for the log, with its level, when the clock
    goes wrong, and when it is right again.
    fault: why the clock waits, as ClockWrong.reason, "" if it is right.
    """

    def __init__(
        self,
        last_time: Callable[[], int | None],
        say: Callable[[int, str], object] = lambda _level, _text: None,
        clock: Callable[[], datetime.datetime] = now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._last_time = last_time
        self._say = say
        self._clock = clock
        self._monotonic = monotonic
        self._last: int | None = None
        self._read_due_at = float("-inf")
        # What is to be added to the monotonic clock for the right time: as of the last right time, and the
        # least of yesterday and today.
        self._offset: float | None = None
        self._least: tuple[float, float] | None = None
        self._day_began_at = 0.0
        self.fault = ""

    def __call__(self) -> datetime.datetime:
        """Return the time, UTC, if it can be right."""
        at, present = self._monotonic(), self._clock()
        expected = None if self._offset is None else at + self._offset
        if expected is not None and not self.fault and present.timestamp() < expected - _BACK_S:
            self._read_due_at = at  # a commit since the last reading may be later than this
        if at >= self._read_due_at:
            self._read(at)
            present, expected = self._clock(), None if self._offset is None else at + self._offset
        try:
            check_clock(present, self._last, expected)
        except ClockWrong as e:
            if e.reason != self.fault:
                self._say(logging.ERROR, f"{e}; reports wait at the broker")
            self.fault = e.reason
            raise
        if self.fault:
            self._say(logging.INFO, "the clock is right again: reports are counted")
        self.fault = ""
        self._note(present.timestamp() - at, at)
        return present

    def settled(self) -> datetime.datetime:
        """Return the time without what a jump ahead has added to it within the last day, UTC.

        By this time windows are erased: so a jump that nobody had to accept erases no running window. The
        time that passed between the store's last time and the start is such a jump too.
        """
        present = self()
        least = min(self._least or (0.0,)) + self._monotonic()
        return min(present, datetime.datetime.fromtimestamp(least, datetime.UTC))

    def _read(self, at: float) -> None:
        """Read the store's last time; while the store fails, the one read before stays."""
        try:
            last = self._last_time()
        except StoreError:
            if self._read_due_at == float("-inf"):
                raise
            last = self._last
        if self._last is not None and (last is None or last < self._last):
            # An operator has accepted an earlier time, so the one that this process knew was wrong.
            self._offset = None
        self._last, self._read_due_at = last, at + _READ_S

    def _note(self, offset: float, at: float) -> None:
        self._offset = offset
        if self._least is None:
            before = offset if self._last is None else min(offset, self._last - at)
            self._least, self._day_began_at = (before, offset), at
        elif at - self._day_began_at >= _HOLD_S:
            self._least, self._day_began_at = (self._least[1], offset), at
        else:
            self._least = self._least[0], min(self._least[1], offset)


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
