"""Retains what others hand over at the broker, on the aggregator's own connection.

A second connection would not do: a broker set up by `hushmote provision` takes the user's name as client id,
and ends the older of two connections with one id. So nothing here may cost the connection for reports.
"""

import logging
from collections.abc import Callable, Mapping

from paho.mqtt.client import MQTTMessageInfo

from .source import ReportConnection

log = logging.getLogger(__name__)

_HEADER_BYTES = 10  # of a PUBLISH at most: type, lengths, packet id, no properties
_MOST_LOSSES = 3


class Outbox:
    """Publishes what wanted() returns where it differs from what this connection has published.

    wanted: returns topic -> payload, empty to clear it; a new object when anything changed. Payloads that the
    broker called too large for it are left out. If three connections in a row end before the broker has
    answered everything, the outbox ends, not the aggregator: a broker may disconnect over what it refuses.
    """

    def __init__(self, wanted: Callable[[], Mapping[str, bytes]]) -> None:
        self._wanted = wanted
        self._seen: Mapping[str, bytes] | None = None
        self._published: dict[str, bytes] = {}
        self._unanswered: dict[int, tuple[str, MQTTMessageInfo]] = {}
        self._losses = 0
        self._said: set[str] = set()

    def begin(self) -> None:
        """Publish everything at the next turn: the connection is a new one."""
        self._losses = self._losses + 1 if self._unanswered else 0
        if self._losses == _MOST_LOSSES:
            log.warning(
                "%d connections in a row ended before the broker took all results: no more are published "
                "until a restart; see its log for what it refuses",
                _MOST_LOSSES,
            )
        self._unanswered = {}
        self.again()

    def again(self) -> None:
        """Publish everything at the next turn: a broker may have lost it."""
        self._seen, self._published = None, {}

    def turn(self, connection: ReportConnection) -> None:
        """Publish what changed, and note what the broker has answered."""
        if self._losses >= _MOST_LOSSES:
            return
        if self._unanswered:
            self._look_for_answers(connection)
        wanted = self._wanted()
        if wanted is self._seen:
            return
        self._seen = wanted
        for topic, payload in wanted.items():
            if self._published.get(topic) != payload and self._fits(connection, topic, payload):
                info = connection.publish(topic, payload)
                self._unanswered[info.mid] = topic, info
                self._published[topic] = payload

    def _fits(self, connection: ReportConnection, topic: str, payload: bytes) -> bool:
        size = len(topic) + len(payload) + _HEADER_BYTES
        if connection.most_bytes is None or size <= connection.most_bytes:
            return True
        most = f"the broker takes {connection.most_bytes}; raise max_packet_size there"
        self._say_once(topic, f"is not published: it takes {size} bytes and {most}")
        return False

    def _look_for_answers(self, connection: ReportConnection) -> None:
        for mid, (topic, info) in list(self._unanswered.items()):
            if _is_answered(info):
                del self._unanswered[mid]
                why = connection.refused.pop(mid, None)
                if why is not None:
                    self._say_once(topic, f"is refused by the broker ({why}): let this user write it")

    def _say_once(self, topic: str, text: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            log.warning("%s %s", topic, text)


def _is_answered(info: MQTTMessageInfo) -> bool:
    try:
        return info.is_published()
    except (ValueError, RuntimeError):  # it was never sent: the connection is going
        return False
