"""What the aggregator's loop needs of a broker, whichever protocol the reports come by."""

from __future__ import annotations

import typing
from typing import TypeVar

from paho.mqtt.client import MQTTMessageInfo

from .pacing import Pace


class ReportConnection(typing.Protocol):
    """A connection to the broker until its loss, and the messages that only it can acknowledge.

    pace: says when a batch of its messages is due. messages: (topic, payload) in order of arrival, not
    acknowledged. experiments: topic -> what was last published there by somebody else, or is retained;
    whoever looks at it empties it. started: monotonic time. refused: packet id of a publication -> why the
    broker refused it.
    """

    pace: Pace
    started: float
    messages: list[tuple[str, bytes]]
    experiments: dict[str, bytes]
    refused: dict[int, str]

    @property
    def most_bytes(self) -> int | None:
        """Of a packet that the broker takes, None where it does not say."""
        ...

    def publish(self, topic: str, payload: bytes) -> MQTTMessageInfo:
        """Publish with QoS 1, retained; what is returned says whether the broker has answered."""
        ...

    @property
    def accepted(self) -> bool:
        """Whether the broker has accepted the connection."""
        ...

    @property
    def subscribed(self) -> bool:
        """Whether reports come by it."""
        ...

    def turn(self, wait_s: float, most: int) -> bool:
        """Wait wait_s seconds at most for the broker, read, write and keep alive; False once it is lost.

        Nothing more is read once `most` messages are held.
        """
        ...

    def acknowledge(self) -> None:
        """Acknowledge all messages and forget them; a connection that is gone takes no harm."""
        ...

    def close(self) -> None:
        """Send what is still unsent and disconnect; what is not acknowledged comes again."""
        ...


C = TypeVar("C", bound=ReportConnection)


class Source(typing.Protocol[C]):
    """Where reports come from: makes the connections one after the other, and says what becomes of them.

    name: what the broker keeps reports under. broker: in words. most_wait_s: between two attempts, at most.
    """

    name: str
    broker: str
    most_wait_s: float

    def connect(self) -> C | None:
        """Return a connection that the broker has still to accept, or None where nobody listens."""
        ...

    def greet(self, connection: C, now: float) -> bool:
        """After each turn, answer what the broker said; whether reports come from this turn on.

        Raises BrokerRefused for a no that is final.
        """
        ...

    def holds_messages(self, now: float) -> None:
        """Note that messages have come which are not committed yet."""
        ...

    def has_waited_enough(self, connection: C, now: float) -> bool:
        """Whether a broker that has not answered yet, at this monotonic time, will not."""
        ...

    def is_over(self, connection: C, now: float) -> bool:
        """Whether it was to be retired, and is: nothing is left to count, and the broker keeps no more."""
        ...

    def explain_loss(self, connection: C) -> None:
        """Say why a connection ended."""
        ...
