"""The interface between the aggregator's loop and a broker, independent of the protocol."""

import typing
from typing import TypeVar

from paho.mqtt.client import MQTTMessageInfo

from .pacing import Pace


class ReportConnection(typing.Protocol):
    """A connection to the broker until it is lost, with the messages that only it can acknowledge.

    Attributes:
        pace: Determines when a batch is due.
        started_at: The monotonic time at which the connection was created.
        messages: Unacknowledged (topic, payload) pairs in order of arrival.
        experiments: Retained messages and other clients' publications by topic; the reader empties it.
        refusals: Why the broker refused publications, by topic; the reader removes what it has read.
    """

    pace: Pace
    started_at: float
    messages: list[tuple[str, bytes]]
    experiments: dict[str, bytes]
    refusals: dict[str, str]

    @property
    def most_bytes(self) -> int | None:
        """The largest packet that the broker accepts, in bytes, or None if unknown."""
        ...

    def publish(self, topic: str, payload: bytes, *, retain: bool = True) -> MQTTMessageInfo:
        """Publish a message with QoS 1; the result shows whether the broker has answered."""
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
            most: The number of messages at which reading stops.

        Returns:
            False once the connection is lost.
        """
        ...

    def acknowledge(self) -> None:
        """Acknowledge all messages and forget them; harmless after the connection is lost."""
        ...

    def close(self) -> None:
        """Send pending packets and disconnect; unacknowledged messages will be sent again."""
        ...


C = TypeVar("C", bound=ReportConnection)


class Source(typing.Protocol[C]):
    """A source of reports, which creates successive connections and logs their events.

    Attributes:
        name: The name under which the broker keeps reports.
        broker: A description of the broker for messages.
        max_wait_s: The longest wait between two attempts, seconds.
        warnings: How the broker can lose, or may have lost, reports or experiments, without names.
    """

    name: str
    broker: str
    max_wait_s: float
    warnings: tuple[str, ...]

    def connect(self) -> C | None:
        """Return a connection that the broker has yet to accept, or None if nothing is listening."""
        ...

    def greet(self, connection: C, now: float) -> bool:
        """Answer the broker's packets after each turn.

        Returns:
            Whether reports start to arrive with this turn.

        Raises:
            BrokerRefused: If the broker refuses and another attempt would not help.
        """
        ...

    def note_messages(self, now: float) -> None:
        """Note that uncommitted messages have arrived."""
        ...

    def has_waited_enough(self, connection: C, now: float) -> bool:
        """Return whether to give up on a broker that has not answered by this monotonic time."""
        ...

    def is_over(self, connection: C, now: float) -> bool:
        """Return whether the source has been retired as requested, with nothing left at the broker."""
        ...

    def explain_loss(self, connection: C) -> None:
        """Log why a connection ended.

        Raises:
            BrokerRefused: If another attempt would not help.
        """
        ...
