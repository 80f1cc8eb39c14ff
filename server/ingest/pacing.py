"""Decide when to commit a batch and when to retry, without any I/O; times are monotonic seconds."""

from dataclasses import dataclass

from ..wire.limits import BATCH_REPORTS

BATCH_S = 1.0
FIRST_WAIT_S = 0.2
MAX_WAIT_S = 15.0

# Mosquitto's max_inflight_messages, which limits clients that do not send a Receive Maximum (MQTT 3.1.1).
USUAL_WINDOW = 20
# With a smaller window, commits wait until the batch is old enough, because in such a small commit the
# database's own transaction records could reveal which device sent which code.
_MIN_WINDOW = 10
_QUIET_S = 0.003  # a broker that may send more messages does so within this time
_RESUMED_S = 0.25  # a broker that waited for acknowledgements continues within this time
_TRIALS = 2


@dataclass
class Pace:
    """Determines when a batch is due because it is full, old enough, or stalled.

    A broker sends a number of unacknowledged messages, its in-flight window, and then waits. Waiting until
    the batch is old enough would limit the rate to one window per `batch_s`. Committing whenever nothing
    arrives for a moment would commit single reports whenever traffic is low. Therefore a batch is committed
    early only if it is exactly as large as the window and nothing more arrives. The window is initially
    assumed to be the usual one, and the assumption is dropped once more messages arrive. A new window is
    learned from batches that were stuck at the same size until they were old enough, if messages arrived
    immediately after their acknowledgement.

    Attributes:
        batch_reports: The size of a full batch.
        batch_s: The age in seconds at which a batch is committed.
        window: The assumed window; None if unknown.
        on_request: Whether the broker sends only requested messages, in which case there is no window.
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
        """Note that new messages arrived and the batch now has `count` messages."""
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
        is_stuck = _MIN_WINDOW <= count < self.batch_reports and now - self._last > self.batch_s / 2
        is_stuck = is_stuck and not self.on_request
        if not is_stuck or count != self._stuck_size:
            self._trials = 0
        self._stuck_size = count if is_stuck else None
        self._committed_at = now


class Backoff:
    """Waits that double from FIRST_WAIT_S up to max_s seconds until reset()."""

    def __init__(self, max_s: float = MAX_WAIT_S) -> None:
        self._wait_s = FIRST_WAIT_S
        self._max_s = max_s

    def next_s(self) -> float:
        """Return the wait after another failure, in seconds."""
        wait_s = self._wait_s
        self._wait_s = min(2 * wait_s, self._max_s)
        return wait_s

    def reset(self) -> None:
        """Start over with the shortest wait."""
        self._wait_s = FIRST_WAIT_S
