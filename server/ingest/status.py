"""What an aggregator last said of itself: a line of the log for each change, however often it is tried."""

from __future__ import annotations

import enum
import logging

log = logging.getLogger(__name__)


class Loss(enum.Enum):
    """Why a connection to the broker ended or never was one, as far as the next try has to know."""

    NONE = enum.auto()  # there is a connection, or what was said last was not about its end
    NO_TLS = enum.auto()  # the broker's end of TLS, or ours, is not set up right
    OTHER = enum.auto()


class Status:
    """The last change in words (text) and, where it was a lost connection, its kind (loss)."""

    def __init__(self) -> None:
        self.text = ""
        self.loss = Loss.NONE

    def say(self, level: int, text: str, loss: Loss = Loss.NONE) -> None:
        """Log a line, unless it is what was said last."""
        if text != self.text:
            log.log(level, "%s", text)
        self.text, self.loss = text, loss
