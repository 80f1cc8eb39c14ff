"""The interface between the aggregator's loop and a broker, whichever protocol the reports come by."""

import typing
from typing import TypeVar

from paho.mqtt.client import MQTTMessageInfo

from .pacing import Pace


class ReportConnection(typing.Protocol):
    """A connection to the broker until its loss, and the messages that only it can acknowledge.

    Attributes:
        pace: Decides when a batch of its messages is due.
        started_at: Monotonic time.
        messages: (topic, payload) in order of arrival, not acknowledged.
        experiments: Retained messages and those that someone else published, by topic; the reader empties it.
        refusals: Why the broker refused a publication, by packet id.
    """

    pace: Pace
    started_at: float
    messages: list[tuple[str, bytes]]
    experiments: dict[str, bytes]
    refusals: dict[int, str]

    @property
    def most_bytes(self) -> int | None:
        """The largest packet that the broker accepts, in bytes, or None if it does not say."""
        ...

    def publish(self, topic: str, payload: bytes) -> MQTTMessageInfo:
        """Publish a retained message with QoS 1; the return value tells whether the broker has answered."""
        ...

    @property
    def accepted(self) -> bool:
        """Whether the broker has accepted the connection."""
        ...

    @property
    def subscribed(self) -> bool:
        """Whether reports arrive over it."""
        ...

    def turn(self, wait_s: float, most: int) -> bool:
        """Wait for the broker, read, write and keep alive.

        Args:
            wait_s: The longest wait, seconds.
            most: Reading stops at this number of messages.

        Returns:
            False once the connection is lost.
        """
        ...

    def acknowledge(self) -> None:
        """Acknowledge all messages and forget them; harmless after the connection is lost."""
        ...

    def close(self) -> None:
        """Send what is still unsent and disconnect; unacknowledged messages come again."""
        ...


C = TypeVar("C", bound=ReportConnection)


class Source(typing.Protocol[C]):
    """A source of reports: makes connections one after the other, and logs their events.

    Attributes:
        name: The name under which the broker keeps reports.
        broker: The broker, in words.
        most_wait_s: The longest wait between two attempts, seconds.
    """

    name: str
    broker: str
    most_wait_s: float

    def connect(self) -> C | None:
        """Return a connection that the broker has yet to accept, or None if nobody listens."""
        ...

    def greet(self, connection: C, now: float) -> bool:
        """Answer the broker's packets after each turn.

        Returns:
            Whether reports come from this turn on.

        Raises:
            BrokerRefused: If the broker refuses, and another try would not help.
        """
        ...

    def note_messages(self, now: float) -> None:
        """Note that uncommitted messages have arrived."""
        ...

    def has_waited_enough(self, connection: C, now: float) -> bool:
        """Return whether to give up at this monotonic time on a broker that has not answered."""
        ...

    def is_over(self, connection: C, now: float) -> bool:
        """Return whether it was to be retired and is: nothing is left to count or kept at the broker."""
        ...

    def explain_loss(self, connection: C) -> None:
        """Log why a connection ended."""
        ...
