"""Track a pull consumer's requests, its messages, and whether it still responds, without any I/O."""

import json
import re

_EXPIRES_S = 30.0  # lifetime of an unanswered request
# An idle server sends a heartbeat at this interval. Requests are lost if the consumer's leader dies.
_HEARTBEAT_S = 1.0
_SILENT_S = 4.0
_NANO = 1_000_000_000
_STATUS = re.compile(rb"NATS/1\.0 (\d{3}) ?([^\r]*)")
_HEARTBEAT, _OVER = b"100", (b"404", b"408")


# A message's reply subject, to which its acknowledgement is sent, and its (topic, payload).
Arrival = tuple[bytes, tuple[str, bytes]]


class Pull:
    """Requests for messages, with at most `max_messages` held or in transit; times are monotonic seconds.

    Attributes:
        inbox: Prefix of the requests' reply subjects.
        ahead: Messages that have arrived but were not taken yet.
    """

    def __init__(self, max_messages: int, inbox: str = "") -> None:
        self.inbox = inbox.encode()
        self.ahead: list[Arrival] = []
        self._max_messages = max_messages
        self._expected: dict[
            bytes, int
        ] = {}  # request's reply subject -> number of messages still expected, oldest first
        self._number = 0
        self._heard_at = self._turned_at = 0.0

    def note_turn(self, now: float) -> None:
        """Note an iteration of the loop; time during which the loop was blocked does not count as silence."""
        if now - self._turned_at > _HEARTBEAT_S:
            self._heard_at = now
        self._turned_at = now

    def request(self, held_count: int, now: float) -> tuple[str, bytes] | None:
        """Return the next request as (reply subject, payload), or None if no request is due."""
        expected_count = sum(self._expected.values())
        count = self._max_messages - held_count - len(self.ahead) - expected_count
        # Request large batches before the previous one has run out.
        if count <= 0 or (expected_count and count < self._max_messages // 4):
            return None
        if not self._expected:
            self._heard_at = now
        self._number += 1
        inbox = b"%s.%d" % (self.inbox, self._number)
        self._expected[inbox] = count
        payload = {
            "batch": count,
            "expires": int(_EXPIRES_S * _NANO),
            "idle_heartbeat": int(_HEARTBEAT_S * _NANO),
        }
        return inbox.decode(), json.dumps(payload).encode()

    def note_arrival(self, arrival: Arrival, now: float) -> None:
        """Note that a message arrived."""
        self._heard_at = now
        self.ahead.append(arrival)
        for oldest, expected_count in self._expected.items():
            if expected_count > 1:
                self._expected[oldest] = expected_count - 1
            else:
                del self._expected[oldest]
            break

    def take_over(self, limit: int) -> list[Arrival]:
        """Remove and return the oldest arrived messages, at most `limit`."""
        arrivals = self.ahead[: max(limit, 0)]
        del self.ahead[: len(arrivals)]
        return arrivals

    def note_answer(self, inbox: bytes, headers: bytes, now: float) -> str:
        """Note a status message for a request; return an error if the request failed, otherwise ""."""
        self._heard_at = now
        status = _STATUS.match(headers)
        if status is None or status[1] == _HEARTBEAT:
            return ""
        self._expected.pop(inbox, None)
        if status[1] in _OVER:
            return ""
        return status[2].decode(errors="replace").lower() or "nobody leads the consumer"

    def is_silent(self, now: float) -> bool:
        """Return whether the server has sent neither messages nor heartbeats for the outstanding requests."""
        return bool(self._expected) and now - self._heard_at > _SILENT_S
