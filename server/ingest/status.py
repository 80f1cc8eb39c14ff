"""An aggregator's condition at a moment, whether it is healthy, and what it last said about itself.

The log has one line for each change, however often something is tried, and one a minute of what stays.
"""

import enum
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

log = logging.getLogger(__name__)

# Longer than a database waits for a lock, its retries and a slow disk; shorter than anyone waits for a
# service that hangs.
TURN_S = 30.0

REPEAT_S = 60.0
"""After which a line that is still true is logged again, when it is said again."""


class Loss(enum.Enum):
    """Why a connection to the broker ended or never began, as far as the next try must know."""

    NONE = enum.auto()  # there is a connection, or the last change was not its end
    NO_TLS = enum.auto()  # the broker's end of TLS, or ours, is not set up right
    OTHER = enum.auto()


class Status:
    """The last change in words (text) and, where it was a lost connection, its kind (loss)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.text = ""
        self.loss = Loss.NONE
        self._clock, self._logged_s = clock, clock()

    def say(self, level: int, text: str, loss: Loss = Loss.NONE) -> None:
        """Log a line, unless it is the same as the last one and a minute has not passed since."""
        if text != self.text or self._clock() - self._logged_s >= REPEAT_S:
            log.log(level, "%s", text)
            self._logged_s = self._clock()
        self.text, self.loss = text, loss


@dataclass(frozen=True)
class Condition:
    """What an aggregator is doing at a moment.

    connected, subscribed: the broker has accepted the connection, the subscription. uncommitted: messages
    received and not committed. oldest_s: age of the oldest of them, seconds, 0 if there is none.
    since_commit_s: seconds since the last commit, None before the first. since_turn_s: seconds since the loop
    last came round. failing: the last commit or look at the store failed. clock: why the clock makes
    everything wait, "" if it is right. published: experiments retained at the broker. unsigned: experiments
    that wait for a signature. state: the last change in words.
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


def trouble(condition: Condition, turn_s: float = TURN_S) -> str | None:
    """Return in one line why an aggregator is not healthy, or None if it is.

    Without names, addresses or paths: someone who asks for a service's health need not know them.
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
