"""An aggregator's current condition, whether it is healthy, and its last log line.

The log gets one line for each change, however many attempts are made, and one per minute for a lasting
problem.
"""

import enum
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

# Longer than lock waits, retries and a slow disk can take, and shorter than anyone waits for a hung service.
TURN_S = 30.0

REPEAT_S = 60.0
"""Seconds after which an unchanged line is logged again."""


class Loss(enum.Enum):
    """Why a connection to the broker ended or failed, in as much detail as the next attempt needs."""

    NONE = enum.auto()  # connected, or the last change was not a loss
    NO_TLS = enum.auto()  # TLS is not set up correctly at either end
    OTHER = enum.auto()


class Status:
    """The last change as text, and the kind of loss if a connection was lost.

    Attributes:
        text: The last change.
        loss: The kind of loss.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.text = ""
        self.loss = Loss.NONE
        self._clock, self._logged_s = clock, clock()

    def say(self, level: int, text: str, loss: Loss = Loss.NONE) -> None:
        """Log a line, unless it is the same as the last one and less than a minute has passed."""
        if text != self.text or self._clock() - self._logged_s >= REPEAT_S:
            log.log(level, "%s", text)
            self._logged_s = self._clock()
        self.text, self.loss = text, loss


@dataclass(frozen=True)
class Condition:
    """An aggregator's condition at one time.

    Attributes:
        connected: Whether the broker has accepted the connection.
        subscribed: Whether the broker has accepted the subscription.
        uncommitted: Number of messages received and not committed.
        oldest_s: Age of the oldest uncommitted message, seconds; 0 if there is none.
        since_commit_s: Seconds since the last commit; None before the first.
        since_turn_s: Seconds since the last turn of the main loop.
        failing: Whether the store failed at the last attempt.
        clock: Why nothing is counted because of the clock; "" if the clock is correct.
        published: Number of experiments retained at the broker.
        state: The last change as text.
        unsigned: Number of experiments that are waiting for a signature.
        unknown: Number of experiments that boards find at the broker, but the store does not have.
        warnings: How the broker can lose, or may have lost, reports or experiments, without names.
    """

    connected: bool
    subscribed: bool
    uncommitted: int
    oldest_s: float
    since_commit_s: float | None
    since_turn_s: float
    failing: bool
    clock: str
    published: int
    state: str
    unsigned: int = 0
    unknown: int = 0
    warnings: tuple[str, ...] = ()


def health_problem(condition: Condition, turn_s: float = TURN_S) -> str | None:
    """Return a line that says why an aggregator is not healthy, or None if it is.

    The line does not contain names, addresses or paths, which are not needed to check a service's
    health.
    """
    if condition.since_turn_s > turn_s:
        return f"the aggregator has been stuck for {condition.since_turn_s:.0f} s"
    if condition.failing:
        return "the store failed at the last attempt: reports wait at the broker"
    if condition.clock:
        return condition.clock
    if not condition.connected:
        return "not connected to the broker"
    if not condition.subscribed:
        return "not subscribed to reports"
    return None
