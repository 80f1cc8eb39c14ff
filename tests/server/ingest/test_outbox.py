"""Other retained messages: published when changed and on a new connection, and never too large."""

from typing import Any

from paho.mqtt.client import MQTTMessageInfo

from hushmote.server.ingest.outbox import Outbox


class _Connection:
    """A connection that records publications and answers them on demand."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self.refusals: dict[str, str] = {}
        self.most_bytes = most_bytes
        self.published: list[tuple[str, bytes]] = []
        self.events: list[tuple[str, bytes]] = []
        self._infos: list[MQTTMessageInfo] = []

    def publish(self, topic: str, payload: bytes, *, retain: bool = True) -> MQTTMessageInfo:
        (self.published if retain else self.events).append((topic, payload))
        self._infos.append(MQTTMessageInfo(len(self._infos) + 1))
        return self._infos[-1]

    def answer(self) -> None:
        for info in self._infos:
            info._set_as_published()


Connection: Any = _Connection  # it implements the part of a ReportConnection that an outbox uses


class TestOutbox:
    def test_publishes_changes_and_everything_on_a_new_connection(self):
        messages, first, second = {"a": b"1", "b": b"2"}, Connection(), Connection()
        outbox = Outbox(lambda: messages)
        outbox.begin()
        outbox.turn(first)
        outbox.turn(first)
        messages = {"a": b"1", "b": b""}
        outbox.turn(first)
        assert first.published == [("a", b"1"), ("b", b"2"), ("b", b"")]
        outbox.begin()
        outbox.turn(second)
        assert second.published == [("a", b"1"), ("b", b"")]

    def test_skips_messages_too_large_for_the_broker(self):
        """A header of 10 bytes, a topic of 1 and a payload of 9 fill a packet of 20."""
        connection = Connection(20)
        outbox = Outbox(lambda: {"a": bytes(9), "b": bytes(10)})
        outbox.begin()
        outbox.turn(connection)
        assert connection.published == [("a", bytes(9))]

    def test_ends_after_three_unanswered_connections(self):
        def published(answered: list[bool]) -> bool:
            """Return whether it still publishes after connections of which these were answered."""
            outbox = Outbox(lambda: {"a": b"1"})
            for was in answered:
                connection = Connection()
                outbox.begin()
                outbox.turn(connection)
                if was:
                    connection.answer()
                    outbox.turn(connection)
            last = Connection()
            outbox.begin()
            outbox.turn(last)
            return bool(last.published)

        assert published([False, False])
        for more in range(4):
            assert not published([False] * (3 + more))
        assert published([False, False, True, False, False])


def test_events_are_published_once_and_not_retained():
    connection, events = Connection(), [("event", b"1"), ("event", b"2")]
    outbox = Outbox(dict, lambda: [events.pop(0) for _ in range(len(events))])
    for _ in range(2):
        outbox.turn(connection)
    outbox.begin()
    outbox.turn(connection)
    assert connection.events == [("event", b"1"), ("event", b"2")]
    assert connection.published == []
