"""Publish other components' retained messages on the aggregator's own connection.

A second connection would not work, because a broker set up by `hushmote provision` uses the user name as the
client id and ends the older of two connections with the same id. Nothing in this module may therefore break
the connection that receives reports.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

from paho.mqtt.client import MQTTMessageInfo

from .source import ReportConnection

log = logging.getLogger(__name__)

_HEADER_BYTES = 10  # largest PUBLISH header: type, lengths and packet id, without properties
_MAX_LOSSES = 3


class Outbox:
    """Publishes messages that differ from those already published on this connection.

    Payloads above the broker's size limit are skipped. If three connections in a row end before the broker
    has answered everything, the outbox stops but the aggregator continues, because a broker may disconnect a
    client whose messages it refuses.

    Args:
        messages: Returns the payloads by topic, empty to clear a topic; a new object after every change.
        take_events: Returns further messages, each topic with its payload, once each; they are not retained.
    """

    def __init__(
        self,
        messages: Callable[[], Mapping[str, bytes]],
        take_events: Callable[[], Sequence[tuple[str, bytes]]] = tuple,
    ) -> None:
        self._read_messages = messages
        self._take_events = take_events
        self._last_messages: Mapping[str, bytes] | None = None
        self._payloads: dict[str, bytes] = {}
        self._pending: dict[int, tuple[str, MQTTMessageInfo]] = {}
        self._losses = 0
        self._warned_topics: set[str] = set()

    def begin(self) -> None:
        """Publish everything at the next turn because there is a new connection."""
        if self._losses >= _MAX_LOSSES:
            return
        self._losses = self._losses + 1 if self._pending else 0
        if self._losses == _MAX_LOSSES:
            log.warning(
                "%d connections in a row ended before the broker accepted all results: no more are "
                "published until a restart; see the broker's log for the reason",
                _MAX_LOSSES,
            )
        self._pending = {}
        self.again()

    def again(self) -> None:
        """Publish everything at the next turn, because the broker may have lost it."""
        self._last_messages, self._payloads = None, {}

    def turn(self, connection: ReportConnection) -> None:
        """Publish changes, and record the broker's answers."""
        if self._losses >= _MAX_LOSSES:
            return
        if self._pending:
            self._process_answers(connection)
        for topic, payload in self._take_events():
            if self._fits(connection, topic, payload):
                info = connection.publish(topic, payload, retain=False)
                self._pending[info.mid] = topic, info
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
        self._warn_once(topic, f"is not published: it has {size} bytes and {limit}")
        return False

    def _process_answers(self, connection: ReportConnection) -> None:
        for mid, (topic, info) in list(self._pending.items()):
            if _is_answered(info):
                del self._pending[mid]
                why = connection.refusals.pop(topic, None)
                if why is not None:
                    self._warn_once(topic, f"is refused by the broker ({why}): allow this user to write it")

    def _warn_once(self, topic: str, text: str) -> None:
        if topic not in self._warned_topics:
            self._warned_topics.add(topic)
            log.warning("%s %s", topic, text)


def _is_answered(info: MQTTMessageInfo) -> bool:
    try:
        return info.is_published()
    except (ValueError, RuntimeError):  # never sent, because the connection is closing
        return False
