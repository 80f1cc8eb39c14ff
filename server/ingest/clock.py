"""The clock that decides in which window a report arrived: this machine's, checked for wrong times."""

import datetime
import logging
import time
from collections.abc import Callable

from ..store.counting import ClockWrong, check_clock
from ..store.database import StoreError

_READ_S = 2.0  # the longest delay until an operator's decision about the clock takes effect
_BACK_S = 60.0  # after a larger jump back, the store's time is read again at once
_HOLD_S = 86_400.0  # how long nothing is erased because of a jump ahead


def now() -> datetime.datetime:
    """Return this machine's time, UTC."""
    return datetime.datetime.now(datetime.UTC)


class CheckedClock:
    """This machine's clock, which refuses to give the time while it cannot be right.

    Calling it returns the time, UTC, or raises ClockWrong. It is checked against the store's last time and,
    once a right time is known, against the monotonic clock. So nothing that needs the time is counted, erased
    or published meanwhile. It raises StoreError if the store's time was never read and cannot be.

    Args:
        last_time: Reads the store's last time.
        say: Receives a level and a line for the log when the clock goes wrong and when it is right again.
        clock: Returns this machine's time, UTC.
        monotonic: Returns monotonic seconds.

    Attributes:
        fault: Why the clock waits, as ClockWrong.reason; "" if it is right.
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
        # The difference between the right time and the monotonic clock: at the last right time, and the
        # smallest of yesterday and today.
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

    def steady_time(self) -> datetime.datetime:
        """Return the time, UTC, minus any jump ahead within the last day.

        Windows are erased by this time, so that a jump that nobody had to accept erases no running window.
        The time between the store's last time and the start counts as such a jump.
        """
        present = self()
        least = min(self._least or (0.0,)) + self._monotonic()
        return min(present, datetime.datetime.fromtimestamp(least, datetime.UTC))

    def _read(self, at: float) -> None:
        """Read the store's last time; if the store fails, keep the one read before."""
        try:
            last = self._last_time()
        except StoreError:
            if self._read_due_at == float("-inf"):
                raise
            last = self._last
        if self._last is not None and (last is None or last < self._last):
            # An operator has accepted an earlier time, so the time known to this process was wrong.
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
