"""What the aggregator's loop needs of a broker, whichever protocol the reports come by."""

import typing
from typing import TypeVar

from paho.mqtt.client import MQTTMessageInfo

from .pacing import Pace


class ReportConnection(typing.Protocol):
    """A connection to the broker until its loss, and the messages that only it can acknowledge.

    pace: says when a batch of its messages is due. messages: (topic, payload) in order of arrival, not
    acknowledged. experiments: topic -> what somebody else last published there, or what is retained;
    the reader empties it. started: monotonic time. refused: packet id of a publication -> why the
    broker refused it.
    """

    pace: Pace
    started: float
    messages: list[tuple[str, bytes]]
    experiments: dict[str, bytes]
    refused: dict[int, str]

    @property
    def most_bytes(self) -> int | None:
        """The largest packet that the broker takes, in bytes; None if it does not say."""
        ...

    def publish(self, topic: str, payload: bytes) -> MQTTMessageInfo:
        """Publish with QoS 1, retained; the return value tells whether the broker has answered."""
        ...

    @property
    def accepted(self) -> bool:
        """Whether the broker has accepted the connection."""
        ...

    @property
    def subscribed(self) -> bool:
        """Whether reports come over it."""
        ...

    def turn(self, wait_s: float, most: int) -> bool:
        """Wait at most wait_s seconds for the broker, read, write and keep alive; False once it is lost.

        Nothing more is read once `most` messages are held.
        """
        ...

    def acknowledge(self) -> None:
        """Acknowledge all messages and forget them; harmless if the connection is gone."""
        ...

    def close(self) -> None:
        """Send what is still unsent and disconnect; unacknowledged messages come again."""
        ...


C = TypeVar("C", bound=ReportConnection)


class Source(typing.Protocol[C]):
    """Where reports come from: makes connections one after the other, and logs what happens to them.

    name: the name under which the broker keeps reports. broker: in words. most_wait_s: between two attempts.
    """

    name: str
    broker: str
    most_wait_s: float

    def connect(self) -> C | None:
        """Return a connection that the broker has yet to accept, or None if nobody listens."""
        ...

    def greet(self, connection: C, now: float) -> bool:
        """After each turn, answer what the broker said; returns whether reports come from this turn on.

        Raises BrokerRefused for a final no.
        """
        ...

    def holds_messages(self, now: float) -> None:
        """Note that messages have come that are not committed yet."""
        ...

    def has_waited_enough(self, connection: C, now: float) -> bool:
        """Return whether to give up at this monotonic time on a broker that has not answered."""
        ...

    def is_over(self, connection: C, now: float) -> bool:
        """Return whether it should be retired and is: nothing is left to count or kept at the broker."""
        ...

    def explain_loss(self, connection: C) -> None:
        """Log why a connection ended."""
        ...
