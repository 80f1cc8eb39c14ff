"""Retains other components' messages at the broker, on the aggregator's own connection.

A second connection would not work: a broker set up by `hushmote provision` takes the user's name as client
id, and ends the older of two connections with one id. So nothing here may cost the connection for reports.
"""

import logging
from collections.abc import Callable, Mapping

from paho.mqtt.client import MQTTMessageInfo

from .source import ReportConnection

log = logging.getLogger(__name__)

_HEADER_BYTES = 10  # largest header of a PUBLISH: type, lengths, packet id, no properties
_MOST_LOSSES = 3


class Outbox:
    """Publishes messages where they differ from what this connection has published.

    Payloads that the broker declares too large are left out. If three connections in a row end before the
    broker has answered everything, the outbox stops, not the aggregator: a broker may disconnect over what it
    refuses.

    Args:
        messages: Returns the payloads by topic, empty to clear one; a new object whenever anything changed.
    """

    def __init__(self, messages: Callable[[], Mapping[str, bytes]]) -> None:
        self._read_messages = messages
        self._last_messages: Mapping[str, bytes] | None = None
        self._payloads: dict[str, bytes] = {}
        self._pending: dict[int, tuple[str, MQTTMessageInfo]] = {}
        self._losses = 0
        self._warned_topics: set[str] = set()

    def begin(self) -> None:
        """Publish everything at the next turn, because the connection is new."""
        self._losses = self._losses + 1 if self._pending else 0
        if self._losses == _MOST_LOSSES:
            log.warning(
                "%d connections in a row ended before the broker accepted all results: no more are "
                "published until a restart; see the broker's log for the reason",
                _MOST_LOSSES,
            )
        self._pending = {}
        self.again()

    def again(self) -> None:
        """Publish everything at the next turn, because a broker may have lost it."""
        self._last_messages, self._payloads = None, {}

    def turn(self, connection: ReportConnection) -> None:
        """Publish what changed, and record the broker's answers."""
        if self._losses >= _MOST_LOSSES:
            return
        if self._pending:
            self._look_for_answers(connection)
        messages = self._read_messages()
        if messages is self._last_messages:
            return
        self._last_messages = messages
        for topic, payload in messages.items():
            if self._payloads.get(topic) != payload and self._fits(connection, topic, payload):
                info = connection.publish(topic, payload)
                self._pending[info.mid] = topic, info
                self._payloads[topic] = payload

    def _fits(self, connection: ReportConnection, topic: str, payload: bytes) -> bool:
        size = len(topic) + len(payload) + _HEADER_BYTES
        if connection.most_bytes is None or size <= connection.most_bytes:
            return True
        limit = f"the broker accepts {connection.most_bytes}; raise max_packet_size there"
        self._say_once(topic, f"is not published: it has {size} bytes and {limit}")
        return False

    def _look_for_answers(self, connection: ReportConnection) -> None:
        for mid, (topic, info) in list(self._pending.items()):
            if _is_answered(info):
                del self._pending[mid]
                why = connection.refusals.pop(mid, None)
                if why is not None:
                    self._say_once(topic, f"is refused by the broker ({why}): let this user write it")

    def _say_once(self, topic: str, text: str) -> None:
        if topic not in self._warned_topics:
            self._warned_topics.add(topic)
            log.warning("%s %s", topic, text)


def _is_answered(info: MQTTMessageInfo) -> bool:
    try:
        return info.is_published()
    except (ValueError, RuntimeError):  # never sent, because the connection is closing
        return False
