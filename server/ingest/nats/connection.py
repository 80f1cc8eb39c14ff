"""An aggregator's connection to NATS servers: reports through a pull consumer, everything else through MQTT.

The consumer is durable and reads the servers' internal stream of MQTT messages; any number of aggregators can
pull from it. Experiments, which devices must find at the broker, are published over MQTT to one of the same
servers, because only MQTT has retained messages there. It needs permission for the stream's subjects
$JS.API.CONSUMER.{INFO,CREATE,MSG.NEXT,DELETE} and $JS.ACK, and for the inbox.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from nats.errors import Error, NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js.api import ConsumerInfo
from nats.js.errors import APIError
from paho.mqtt.client import MQTTMessageInfo

from ...wire.report import MAX_PAYLOAD_BYTES
from ...wire.subjects import STREAM, topic_of
from ..connection import NO_TOPIC, BrokerConnection
from ..connector import FINAL
from ..pacing import Pace
from ..session import Session
from ..tls import explain
from .client import BatchNatsClient
from .consumer import Consumer, ConsumerRefused
from .pull import Pull

_NEXT = f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}"
_STEP_S = 0.01  # interval between checks of MQTT until it is set up
_CLOSE_S = 2.0
_MAX_SUBJECT = 128  # bytes; longer subjects are ignored because no valid topic is this long
_NO_MAJORITY = "JetStream does not answer; is a majority of the servers up?"


class NatsConnection:
    """A connection that lasts until either half is lost; a ReportConnection.

    Args:
        mqtt: The half for retained messages, created anew for each connection.
        consumer: The source of reports.
        max_messages: The largest number of messages held or requested at a time.
        pace: Determines when a batch is due.

    Attributes:
        existing_consumer: The consumer as found at the start; None if the connection created it.
        refusal: An error that another attempt would not fix, or "".
        error: Any other error, or "".
    """

    def __init__(self, mqtt: BrokerConnection, consumer: Consumer, max_messages: int, pace: Pace) -> None:
        self.pace = pace
        self.started_at = time.monotonic()
        self.messages: list[tuple[str, bytes]] = []
        self.subscribed = False
        self.existing_consumer: ConsumerInfo | None = None
        self.refusal = ""
        self.error = ""
        self.mqtt = mqtt
        self._consumer = consumer
        self._pull = Pull(max_messages)
        self._replies: list[bytes] = []  # reply subjects of the messages
        self._wake_at = 1
        self._runner = asyncio.Runner()
        self._woken = asyncio.Event()
        self._client = BatchNatsClient(self._take, self._on_error)

    # Retained messages use MQTT.

    @property
    def experiments(self) -> dict[str, bytes]:
        """Retained messages and other clients' publications by topic."""
        return self.mqtt.experiments

    @property
    def most_bytes(self) -> int | None:
        """The largest packet that the servers accept, in bytes, or None if unknown."""
        return self.mqtt.most_bytes

    @property
    def refusals(self) -> dict[str, str]:
        """Why publications were refused, by topic."""
        return self.mqtt.refusals

    def publish(self, topic: str, payload: bytes, *, retain: bool = True) -> MQTTMessageInfo:
        """Publish a message with QoS 1; the result shows whether the broker has answered."""
        return self.mqtt.publish(topic, payload, retain=retain)

    @property
    def accepted(self) -> bool:
        """Whether both logins were accepted."""
        return self.mqtt.accepted

    def join(self, host: str, port: int, session: Session) -> tuple[int, int]:
        """Log in to a server's NATS, and return its version.

        Raises:
            OSError: If the connection fails.
            Error: If nats-py reports an error.
        """
        self._run(self._client.join(host, port, session.address, session.tls))
        self._setting_up = self._runner.get_loop().create_task(self._set_up(session.announcement_filters()))
        version = self._client.connected_server_version
        return version.major, version.minor

    def connect(self, host: str, port: int) -> None:
        """Send MQTT's CONNECT.

        Raises:
            OSError: If nothing is listening.
            ValueError: If the host name is invalid.
        """
        self.mqtt.connect(host, port)

    def turn(self, wait_s: float, most: int) -> bool:
        """Wait at most wait_s seconds for reports, read, write and keep alive; return False if it is lost."""
        alive = self.mqtt.turn(0.0, most)
        self._pull.note_turn(time.monotonic())
        try:
            self._run(self._receive(wait_s if self.subscribed else min(wait_s, _STEP_S), most))
        except (Error, OSError) as e:
            # The client noticed it first, and no longer accepts commands.
            self.error = self.error or str(e).removeprefix("nats: ")
        now = time.monotonic()
        self._take_over(most, now)
        if not alive and not self.error:
            self.error = self._why_mqtt_ended()
        if self._pull.is_silent(now):
            self.error = self.error or "the consumer's leader is silent"
        if not self.subscribed:
            self._check_set_up()
        return not self.error and not self.refusal

    def acknowledge(self) -> None:
        """Acknowledge all messages and forget them; harmless after the connection is lost."""
        if not self._client.is_closed:
            with contextlib.suppress(Error, OSError):
                self._run(self._client.acknowledge(self._replies))
        self.pace.note_commit(len(self.messages), time.monotonic())
        self.messages.clear()
        self._replies.clear()

    def pending_count(self) -> int | None:
        """Return the number of unacknowledged messages, or None if the servers do not answer."""
        try:
            info = self._run(self._consumer.find(self._client))
        except (Error, OSError):
            return None
        if info is None:
            return 0
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    def delete_consumer(self) -> None:
        """Delete the consumer for all aggregators that pull from it.

        Raises:
            Error: If nats-py reports an error.
        """
        self._run(self._consumer.delete(self._client))

    def close(self) -> None:
        """Send pending acknowledgements, return unprocessed messages, and disconnect."""
        with contextlib.suppress(Error, OSError, TimeoutError):
            self._run(asyncio.wait_for(self._leave(), _CLOSE_S))
        self._runner.close()
        self.mqtt.close()

    async def _leave(self) -> None:
        if self._client.is_connected:
            await self._client.stop_taking()
            ahead = [reply for reply, _ in self._pull.ahead]
            await self._client.acknowledge(self._replies + ahead, b"-NAK")
            await self._client.flush()
        await self._client.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.get_loop().run_until_complete(coroutine)

    async def _receive(self, wait_s: float, most: int) -> None:
        if self.subscribed:
            await self._request_messages()
        # Return immediately at the first message, which starts the batch's age; then wait for a batch.
        self._wake_at = most - len(self.messages) if self.messages else 1
        self._woken.clear()
        if len(self._pull.ahead) >= self._wake_at:
            wait_s = 0.0
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), wait_s)

    async def _request_messages(self) -> None:
        """Request messages in advance, but not more than may be held."""
        request = self._pull.request(len(self.messages), time.monotonic())
        if request is not None:
            inbox, text = request
            await self._client.publish(f"{_NEXT}.{self._consumer.name}", text, inbox)

    def _take_over(self, most: int, now: float) -> None:
        arrivals = self._pull.take_over(most - len(self.messages))
        if arrivals:
            self._replies += [reply for reply, _ in arrivals]
            self.messages += [message for _, message in arrivals]
            self.pace.note_arrival(len(self.messages), len(arrivals), now)

    def _take(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        now = time.monotonic()
        if subject.startswith(self._pull.inbox):
            self.error = self.error or self._pull.note_answer(subject, headers, now)
        else:
            # Truncate long payloads to save memory; one extra byte is enough to reject them as malformed.
            message = topic_of(subject[:_MAX_SUBJECT]), payload[: MAX_PAYLOAD_BYTES + 1]
            self._pull.note_arrival((reply, message), now)
        if self.error or len(self._pull.ahead) >= self._wake_at:
            self._woken.set()

    def _on_error(self, text: str) -> None:
        if "permissions violation" in text.lower():
            self.refusal = self.refusal or text.removeprefix("nats: ")
        elif not self.error:
            self.error = text.removeprefix("nats: ") or "NATS was lost"
        self._woken.set()

    async def _set_up(self, filters: Sequence[str]) -> None:
        """Prepare for reports: the consumer must exist before anything is published to devices."""
        mqtt = self.mqtt
        await _until(lambda: mqtt.answer is not None)
        assert mqtt.answer is not None
        if mqtt.answer.is_failure:
            why = f"MQTT: {str(mqtt.answer).lower()}"
            if mqtt.answer.value in FINAL:
                raise ConsumerRefused(why)
            raise Error(why)
        mqtt.watch(filters)
        mqtt.unsubscribe([NO_TOPIC])  # the answer follows the retained messages
        await _until(lambda: mqtt.watch_reason is not None and mqtt.unsubscribe_reason is not None)
        self.existing_consumer = await self._consumer.find(self._client)
        if self.existing_consumer is None:
            await self._consumer.make(self._client)
        inbox = self._client.new_inbox()
        self._pull.inbox = inbox.encode()
        await self._client.subscribe_reports(f"{inbox}.*")

    def _why_mqtt_ended(self) -> str:
        if self.mqtt.accepted:
            return "MQTT was lost"
        return self.mqtt.error if explain(self.mqtt.error) is not None else _NO_MAJORITY

    def _check_set_up(self) -> None:
        if not self._setting_up.done():
            return
        try:
            self._setting_up.result()
        except ConsumerRefused as e:
            self.refusal = self.refusal or str(e)
        except APIError as e:
            self.error = f"JetStream: {e.description or 'it is not available'}"
        except (NatsTimeoutError, NoRespondersError):
            self.error = _NO_MAJORITY
        except (Error, OSError) as e:
            self.error = self.error or str(e).removeprefix("nats: ")
        else:
            self.subscribed = True


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(_STEP_S / 2)
