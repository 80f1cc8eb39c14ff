"""Decides when to commit a batch of messages, and when to try again; pure, times in monotonic seconds."""

from dataclasses import dataclass

from ..wire.limits import BATCH_REPORTS

BATCH_S = 1.0
FIRST_WAIT_S = 0.2
MOST_WAIT_S = 15.0

# Mosquitto's max_inflight_messages, which limits any client without a Receive Maximum of its own (MQTT
# 3.1.1).
USUAL_WINDOW = 20
# Below this window, commits wait for their time, because committing so few at once would let the database's
# own transaction records reveal which device sent which code.
_LEAST_WINDOW = 10
_QUIET_S = 0.003  # a broker that may send more messages does so within this time
_RESUMED_S = 0.25  # a broker that waited for acknowledgements continues within this time
_TRIALS = 2


@dataclass
class Pace:
    """Decides when a batch is due: full, old enough, or stalled.

    A broker sends a number of unacknowledged messages, its in-flight window, and then waits. Waiting as well,
    until the batch is old enough, would cap the rate at one window per `batch_s`. Committing whenever nothing
    arrives for a moment would commit single reports whenever traffic is thin. So a batch is committed early
    only when it is exactly as large as the window and nothing more arrives. The window is first assumed to be
    the usual one and is given up as soon as more than it arrives. It is learned from batches that were stuck
    at one size until they were old enough, and after whose acknowledgement messages came at once.

    Attributes:
        batch_reports: Reports of a full batch.
        batch_s: Age of an old batch, seconds.
        window: The assumed window; None if there is none.
        on_request: Whether the broker sends only what it is asked for, and has no window.
    """

    batch_reports: int = BATCH_REPORTS
    batch_s: float = BATCH_S
    window: int | None = USUAL_WINDOW
    on_request: bool = False

    def __post_init__(self) -> None:
        if self.on_request:
            self.window = None
        self._first = self._last = 0.0
        self._stuck_size: int | None = None  # the size of the last batch, if it was stuck
        self._trials = 0
        self._committed_at = 0.0

    def note_arrival(self, count: int, new: int, now: float) -> None:
        """Note that new messages arrived and the batch has `count` messages now."""
        self._last = now
        if count == new:
            self._first = now
            has_resumed = self._stuck_size is not None and now - self._committed_at < _RESUMED_S
            self._trials = self._trials + 1 if has_resumed else 0
            if self._trials >= _TRIALS:
                self.window = self._stuck_size
        if self.window is not None and count > self.window:
            self.window = None

    def is_due(self, count: int, now: float) -> bool:
        """Return whether to commit a batch of `count` messages now."""
        return count > 0 and self.seconds_until_due(count, now) <= 0

    def seconds_until_due(self, count: int, now: float) -> float:
        """Return the seconds until a batch of count > 0 messages is due if nothing more arrives."""
        if count >= self.batch_reports:
            return 0.0
        remaining_s = self._first + self.batch_s - now
        return min(remaining_s, self._last + _QUIET_S - now) if count == self.window else remaining_s

    def note_commit(self, count: int, now: float) -> None:
        """Note that a batch of `count` messages was committed and acknowledged."""
        is_stuck = _LEAST_WINDOW <= count < self.batch_reports and now - self._last > self.batch_s / 2
        is_stuck = is_stuck and not self.on_request
        if not is_stuck or count != self._stuck_size:
            self._trials = 0
        self._stuck_size = count if is_stuck else None
        self._committed_at = now


class Backoff:
    """Waits that double from the first to most_s, in seconds, until reset()."""

    def __init__(self, most_s: float = MOST_WAIT_S) -> None:
        self._wait_s = FIRST_WAIT_S
        self._most_s = most_s

    def next_s(self) -> float:
        """Return the wait after one more failure."""
        wait_s = self._wait_s
        self._wait_s = min(2 * wait_s, self._most_s)
        return wait_s

    def reset(self) -> None:
        """Begin again with the shortest wait."""
        self._wait_s = FIRST_WAIT_S
