"""One connection of the aggregator to NATS servers: reports by a pull consumer, the rest by MQTT.

The consumer is durable, on the servers' own stream of MQTT messages; any number of aggregators pull from it.
Experiments, which devices must find at the broker, go by MQTT to one of the same servers: retained messages
are MQTT's own there. Its subjects, for permissions: $JS.API.CONSUMER.{INFO,CREATE,MSG.NEXT,DELETE} and
$JS.ACK of the stream, and the inbox.
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
_STEP_S = 0.01  # between two checks of MQTT, until it is set up
_CLOSE_S = 2.0
_MOST_SUBJECT = 128  # longer ones are ignored: no valid topic has so many bytes
_NO_MAJORITY = "JetStream does not answer; is a majority of the servers up?"


class NatsConnection:
    """A connection from its logins to the loss of either half; a ReportConnection.

    mqtt: the half for retained messages, made anew for each connection. consumer: the source of reports.
    most: messages held or asked for at a time.

    found: the consumer as it was at the start of the connection, None if it was made then.
    refusal: why no other try would do better, "" if one may. trouble: any other error.
    """

    def __init__(self, mqtt: BrokerConnection, consumer: Consumer, most: int, pace: Pace) -> None:
        self.pace = pace
        self.started = time.monotonic()
        self.messages: list[tuple[str, bytes]] = []
        self.subscribed = False
        self.found: ConsumerInfo | None = None
        self.refusal = ""
        self.trouble = ""
        self.mqtt = mqtt
        self._consumer = consumer
        self._pull = Pull(most)
        self._replies: list[bytes] = []  # of messages
        self._wake_at = 1
        self._runner = asyncio.Runner()
        self._woken = asyncio.Event()
        self._client = BatchNatsClient(self._take, self._failed)

    # Retained messages go by MQTT.

    @property
    def experiments(self) -> dict[str, bytes]:
        """Topic -> what somebody else last published there, or what is retained."""
        return self.mqtt.experiments

    @property
    def most_bytes(self) -> int | None:
        """The largest packet that the servers take, in bytes; None if they do not say."""
        return self.mqtt.most_bytes

    @property
    def refused(self) -> dict[int, str]:
        """Packet id of a publication -> why it was refused."""
        return self.mqtt.refused

    def publish(self, topic: str, payload: bytes) -> MQTTMessageInfo:
        """Publish with QoS 1, retained; the return value tells whether the broker has answered."""
        return self.mqtt.publish(topic, payload)

    @property
    def accepted(self) -> bool:
        """Whether both logins were accepted."""
        return self.mqtt.accepted

    def join(self, host: str, port: int, session: Session) -> tuple[int, int]:
        """Log in to a server's NATS; returns its version. Raises OSError and nats-py's Error."""
        self._run(self._client.join(host, port, session.login, session.tls))
        self._setting_up = self._runner.get_loop().create_task(self._set_up(session.experiment_filters()))
        version = self._client.connected_server_version
        return version.major, version.minor

    def connect(self, host: str, port: int) -> None:
        """Send MQTT's CONNECT; raises OSError if nobody listens and ValueError for an invalid host."""
        self.mqtt.connect(host, port)

    def turn(self, wait_s: float, most: int) -> bool:
        """Wait at most wait_s seconds for reports, read, write and keep alive; False once it is lost."""
        alive = self.mqtt.turn(0.0, most)
        self._pull.turned(time.monotonic())
        try:
            self._run(self._receive(wait_s if self.subscribed else min(wait_s, _STEP_S), most))
        except (Error, OSError) as e:
            # The client noticed first: it takes nothing any more.
            self.trouble = self.trouble or str(e).removeprefix("nats: ")
        now = time.monotonic()
        self._take_over(most, now)
        if not alive and not self.trouble:
            self.trouble = self._why_mqtt_ended()
        if self._pull.is_silent(now):
            self.trouble = self.trouble or "the consumer's leader is silent"
        if not self.subscribed:
            self._look_at_set_up()
        return not self.trouble and not self.refusal

    def acknowledge(self) -> None:
        """Acknowledge all messages and forget them; harmless if the connection is gone."""
        if not self._client.is_closed:
            with contextlib.suppress(Error, OSError):
                self._run(self._client.acknowledge(self._replies))
        self.pace.committed(len(self.messages), time.monotonic())
        self.messages.clear()
        self._replies.clear()

    def left(self) -> int | None:
        """Messages that the consumer has not seen acknowledged, None if the servers do not answer now."""
        try:
            info = self._run(self._consumer.find(self._client))
        except (Error, OSError):
            return None
        if info is None:
            return 0
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    def delete_consumer(self) -> None:
        """End it for all that pull from it; raises nats-py's Error."""
        self._run(self._consumer.delete(self._client))

    def close(self) -> None:
        """Send what is still unsent, acknowledgements first, give back what is held, and disconnect."""
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

    def _run(self, doing: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.get_loop().run_until_complete(doing)

    async def _receive(self, wait_s: float, most: int) -> None:
        if self.subscribed:
            await self._ask()
        # The first message is reported at once, since its age counts; then wait for a batch.
        self._wake_at = most - len(self.messages) if self.messages else 1
        self._woken.clear()
        if len(self._pull.ahead) >= self._wake_at:
            wait_s = 0.0
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), wait_s)

    async def _ask(self) -> None:
        """Ask for messages in good time, but for no more than may be held."""
        request = self._pull.request(len(self.messages), time.monotonic())
        if request is not None:
            inbox, text = request
            await self._client.publish(f"{_NEXT}.{self._consumer.name}", text, inbox)

    def _take_over(self, most: int, now: float) -> None:
        over = self._pull.take_over(most - len(self.messages))
        if over:
            self._replies += [reply for reply, _ in over]
            self.messages += [message for _, message in over]
            self.pace.arrived(len(self.messages), len(over), now)

    def _take(self, subject: bytes, reply: bytes, headers: bytes, payload: bytes) -> None:
        now = time.monotonic()
        if subject.startswith(self._pull.inbox):
            self.trouble = self.trouble or self._pull.heard(subject, headers, now)
        else:
            # Keep one byte too many: it is as malformed as a megabyte, in less memory.
            message = topic_of(subject[:_MOST_SUBJECT]), payload[: MAX_PAYLOAD_BYTES + 1]
            self._pull.arrived((reply, message), now)
        if self.trouble or len(self._pull.ahead) >= self._wake_at:
            self._woken.set()

    def _failed(self, text: str) -> None:
        """Note what the client reports as wrong."""
        if "permissions violation" in text.lower():
            self.refusal = self.refusal or text.removeprefix("nats: ")
        elif not self.trouble:
            self.trouble = text.removeprefix("nats: ") or "NATS was lost"
        self._woken.set()

    async def _set_up(self, seen: Sequence[str]) -> None:
        """Do what must come before reports: devices are told nothing before the consumer is there."""
        mqtt = self.mqtt
        await _until(lambda: mqtt.answer is not None)
        assert mqtt.answer is not None
        if mqtt.answer.is_failure:
            why = f"MQTT: {str(mqtt.answer).lower()}"
            if mqtt.answer.value in FINAL:
                raise ConsumerRefused(why)
            raise Error(why)
        mqtt.watch(seen)
        mqtt.unsubscribe([NO_TOPIC])  # answered after what is retained
        await _until(lambda: mqtt.watched is not None and mqtt.unsubscribed is not None)
        self.found = await self._consumer.find(self._client)
        if self.found is None:
            await self._consumer.make(self._client)
        inbox = self._client.new_inbox()
        self._pull.inbox = inbox.encode()
        await self._client.subscribe_taken(f"{inbox}.*")

    def _why_mqtt_ended(self) -> str:
        if self.mqtt.accepted:
            return "MQTT was lost"
        return self.mqtt.trouble if explain(self.mqtt.trouble) is not None else _NO_MAJORITY

    def _look_at_set_up(self) -> None:
        if not self._setting_up.done():
            return
        try:
            self._setting_up.result()
        except ConsumerRefused as e:
            self.refusal = self.refusal or str(e)
        except APIError as e:
            self.trouble = f"JetStream: {e.description or 'it is not there'}"
        except (NatsTimeoutError, NoRespondersError):
            self.trouble = _NO_MAJORITY
        except (Error, OSError) as e:
            self.trouble = self.trouble or str(e).removeprefix("nats: ")
        else:
            self.subscribed = True


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(_STEP_S / 2)
