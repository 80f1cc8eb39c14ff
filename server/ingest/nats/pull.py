"""The requests to a pull consumer, the messages that arrived, and whether anyone still answers: pure."""

import json
import re

_EXPIRES_S = 30.0  # lifetime of an unanswered request
# A server with nothing to send says so this often: requests die with the server that leads the consumer.
_HEARTBEAT_S = 1.0
_SILENT_S = 4.0
_NANO = 1_000_000_000
_STATUS = re.compile(rb"NATS/1\.0 (\d{3}) ?([^\r]*)")
_HEARTBEAT, _OVER = b"100", (b"404", b"408")


# (topic, payload), and before it the reply, to acknowledge it.
Arrival = tuple[bytes, tuple[str, bytes]]


class Pull:
    """Requests for messages, of which at most `most` may be held or on their way; times in monotonic seconds.

    Attributes:
        inbox: Prefix of the subjects on which answers to requests come.
        ahead: Messages that wait for their turn.
    """

    def __init__(self, most: int, inbox: str = "") -> None:
        self.inbox = inbox.encode()
        self.ahead: list[Arrival] = []
        self._most = most
        self._coming: dict[bytes, int] = {}  # answer's subject of each request, in order -> still to come
        self._number = 0
        self._heard_at = self._turned_at = 0.0

    def note_turn(self, now: float) -> None:
        """Note a turn of the loop: time in which nobody was looking does not count as silence."""
        if now - self._turned_at > _HEARTBEAT_S:
            self._heard_at = now
        self._turned_at = now

    def request(self, held_count: int, now: float) -> tuple[str, bytes] | None:
        """Return the next request (the subject for its answers, and its text), or None if none is due."""
        coming = sum(self._coming.values())
        count = self._most - held_count - len(self.ahead) - coming
        # Request large pieces, before the last one has run out.
        if count <= 0 or (coming and count < self._most // 4):
            return None
        if not self._coming:
            self._heard_at = now
        self._number += 1
        inbox = b"%s.%d" % (self.inbox, self._number)
        self._coming[inbox] = count
        text = {
            "batch": count,
            "expires": int(_EXPIRES_S * _NANO),
            "idle_heartbeat": int(_HEARTBEAT_S * _NANO),
        }
        return inbox.decode(), json.dumps(text).encode()

    def note_arrival(self, arrival: Arrival, now: float) -> None:
        """Note that a message arrived."""
        self._heard_at = now
        self.ahead.append(arrival)
        for first, coming in self._coming.items():
            if coming > 1:
                self._coming[first] = coming - 1
            else:
                del self._coming[first]
            break

    def take_over(self, limit: int) -> list[Arrival]:
        """Return at most `limit` of the arrived messages, in order, and keep the rest."""
        arrivals = self.ahead[: max(limit, 0)]
        del self.ahead[: len(arrivals)]
        return arrivals

    def note_answer(self, inbox: bytes, headers: bytes, now: float) -> str:
        """Note an answer to a request; return why no more is to be expected, or "" if more is."""
        self._heard_at = now
        status = _STATUS.match(headers)
        if status is None or status[1] == _HEARTBEAT:
            return ""
        self._coming.pop(inbox, None)
        if status[1] in _OVER:
            return ""
        return status[2].decode(errors="replace").lower() or "nobody leads the consumer"

    def is_silent(self, now: float) -> bool:
        """Return whether not even a heartbeat has answered the requests."""
        return bool(self._coming) and now - self._heard_at > _SILENT_S
