"""This machine's clock, which determines a report's window, with a check for wrong times."""

import datetime
import logging
import time
from collections.abc import Callable

from ..store.counting import ClockWrong, check_clock
from ..store.database import StoreError

_READ_S = 2.0  # interval for reading the store's time, after which an operator's decision takes effect
_BACK_S = 60.0  # after a larger jump back, the store's time is reread immediately
_HOLD_S = 86_400.0  # period for which erasure ignores a forward jump


def now() -> datetime.datetime:
    """Return this machine's time, UTC."""
    return datetime.datetime.now(datetime.UTC)


class CheckedClock:
    """This machine's clock, which raises ClockWrong rather than return an implausible time.

    Calling it returns the time, UTC, or raises ClockWrong. The time is checked against the store's last time
    and, once a correct time is known, against the monotonic clock. So nothing that needs the time is counted,
    erased or published while it is wrong. It raises StoreError if the store's time has never been read and
    cannot be read now.

    Args:
        last_time: Returns the store's last time.
        say: Called with a level and a log line when the clock becomes wrong and when it is correct again.
        clock: Returns this machine's time, UTC.
        monotonic: Returns monotonic seconds.

    Attributes:
        fault: Why the clock is not used, as ClockWrong.reason; "" if it is correct.
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
        # The difference between the correct time and the monotonic clock at the last correct time, and its
        # smallest values yesterday and today.
        self._offset: float | None = None
        self._least: tuple[float, float] | None = None
        self._day_began_at = 0.0
        self.fault = ""

    def __call__(self) -> datetime.datetime:
        """Return the time, UTC, if it is plausible."""
        at, current_time = self._monotonic(), self._clock()
        expected = None if self._offset is None else at + self._offset
        if expected is not None and not self.fault and current_time.timestamp() < expected - _BACK_S:
            self._read_due_at = at  # a commit since the last read may be later than this time
        if at >= self._read_due_at:
            self._read(at)
            current_time, expected = self._clock(), None if self._offset is None else at + self._offset
        try:
            check_clock(current_time, self._last, expected)
        except ClockWrong as e:
            if e.reason != self.fault:
                self._say(logging.ERROR, f"{e}; reports wait at the broker")
            self.fault = e.reason
            raise
        if self.fault:
            self._say(logging.INFO, "the clock is right again: reports are counted")
        self.fault = ""
        self._note(current_time.timestamp() - at, at)
        return current_time

    def steady_time(self) -> datetime.datetime:
        """Return the time, UTC, minus any jump ahead within the last day.

        Windows are erased by this time, so that a jump too small to need acceptance does not erase an open
        window. The time between the store's last time and this process's start counts as such a jump.
        """
        current_time = self()
        smallest_offset = min(self._least or (0.0,)) + self._monotonic()
        return min(current_time, datetime.datetime.fromtimestamp(smallest_offset, datetime.UTC))

    def _read(self, at: float) -> None:
        """Read the store's last time; if the store fails, keep the previous one."""
        try:
            last = self._last_time()
        except StoreError:
            if self._read_due_at == float("-inf"):
                raise
            last = self._last
        if self._last is not None and (last is None or last < self._last):
            # An operator has accepted an earlier time, so this process's offset was wrong.
            self._offset = None
        self._last, self._read_due_at = last, at + _READ_S

    def _note(self, offset: float, at: float) -> None:
        self._offset = offset
        if self._least is None:
            previous_offset = offset if self._last is None else min(offset, self._last - at)
            self._least, self._day_began_at = (previous_offset, offset), at
        elif at - self._day_began_at >= _HOLD_S:
            self._least, self._day_began_at = (self._least[1], offset), at
        else:
            self._least = self._least[0], min(self._least[1], offset)
