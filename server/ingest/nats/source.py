"""Receive reports from NATS servers, through successive connections, and log their events."""

import contextlib
import logging
import os
import secrets
from collections.abc import Callable

from nats.errors import Error

from ...wire.subjects import report_subject
from ..broker_url import NatsAddress
from ..connection import BrokerConnection
from ..pacing import Pace
from ..session import BrokerRefused, Session, warn_of_hidden_experiments
from ..status import Loss, Status
from ..tls import explain
from .client import NoTls
from .connection import NatsConnection
from .consumer import Consumer

_REFUSAL = "authorization violation"
_CLOSE_ERRORS = (ConnectionResetError, BrokenPipeError)
_ANSWER_S = 12.0
_QUIET_S = 1.0
_MIN_VERSION = (2, 10)


class NatsSource:
    """A Source that connects to whichever NATS server answers.

    Args:
        address: The servers.
        session: The session; its client_id names the consumer, and only its address's login is used.
        status: Logs changes.
        pace: Creates a Pace for each connection.
    """

    max_wait_s = 5.0  # a cluster answers within seconds once it has a majority again

    def __init__(
        self, address: NatsAddress, session: Session, status: Status, pace: Callable[[], Pace]
    ) -> None:
        self.name, self.broker = session.client_id, str(address)
        self.warnings: tuple[str, ...] = ()
        self._servers = list(address.servers)
        secrets.SystemRandom().shuffle(self._servers)  # to spread aggregators over the servers
        self._session = session
        self._status = status
        self._pace = pace
        self._consumer = Consumer(self.name, tuple(report_subject(f) for f in session.fleets or (None,)))
        # Not just the consumer's name, because servers drop the older of two MQTT clients with the same id.
        self._mqtt_id = f"{self.name}-{os.urandom(4).hex()}"
        self._had_consumer = False
        self._greeted_connection: NatsConnection | None = None
        self._quiet_until = 0.0

    def connect(self) -> NatsConnection | None:
        """Return a connection to the first server that accepts the login, or None.

        Raises:
            BrokerRefused: If a server refuses the login, or is too old.
        """
        failure = logging.WARNING, "", Loss.OTHER
        for _ in self._servers:
            server = self._servers[0]
            self._servers.append(self._servers.pop(0))  # start the next attempt with another server
            pace = self._pace()
            mqtt = BrokerConnection(
                "3.1.1",
                self._mqtt_id,
                self._session.address,
                0,
                Pace(),
                self._session.tls,
                keep_session=False,
            )
            connection = NatsConnection(mqtt, self._consumer, 2 * pace.batch_reports, pace)
            try:
                if connection.join(server[0], server[1], self._session) < _MIN_VERSION:
                    raise BrokerRefused(f"{self.broker} are older than 2.10: update nats-server")
                connection.connect(server[0], server[2])
            except (OSError, ValueError, Error) as e:
                connection.close()
                if _REFUSAL in str(e).lower():
                    raise BrokerRefused(f"{self.broker} refuse the login: {_REFUSAL}") from None
                failure = self._explain(e, f"{server[0]}:{server[1]} or its MQTT at {server[2]}")
                continue
            except BaseException:
                connection.close()
                raise
            return connection
        self._status.say(*failure)
        return None

    def _explain(self, error: Exception, where: str) -> tuple[int, str, Loss]:
        why = explain(error)
        if why is None and isinstance(error, NoTls):
            why = str(error)
        elif why is None and self._session.tls is not None and isinstance(error, _CLOSE_ERRORS):
            why = "it closes the connection: it may require a client certificate, HUSHMOTE_BROKER_CERT"
        if why is not None:
            return logging.ERROR, f"no TLS with {self.broker}: {why}", Loss.NO_TLS
        if isinstance(error, TimeoutError):
            reason = "it does not answer; is that NATS' port?"
        elif isinstance(error, ConnectionRefusedError):  # because asyncio's text repeats the address
            reason = "connection refused"
        else:
            reason = getattr(error, "strerror", None) or str(error).removeprefix("nats: ")
            reason = reason or type(error).__name__
        return logging.WARNING, f"no NATS server at {where} ({reason}): trying again", Loss.OTHER

    def greet(self, connection: NatsConnection, now: float) -> bool:
        """Log the state of the set-up, and return whether reports start to arrive now.

        Raises:
            BrokerRefused: If the servers refuse and another attempt would not help.
        """
        if connection.refusal:
            raise BrokerRefused(f"{self.broker} refuse: {connection.refusal}")
        if not connection.subscribed or connection is self._greeted_connection:
            return False
        self._greeted_connection = connection
        if self._session.retire:
            self._begin_retiring(connection, now)
        elif connection.existing_consumer is None and self._had_consumer:
            self._status.say(
                logging.WARNING,
                f"someone deleted the consumer {self.name} at {self.broker}: it was created again, but "
                "reports that arrived in between are lost",
            )
        self._had_consumer = True
        self._status.say(logging.INFO, f"subscribed at {self.broker} with the consumer {self.name}")
        warn_of_hidden_experiments(connection.mqtt, self._session, self.broker, self._status)
        return True

    def _begin_retiring(self, connection: NatsConnection, now: float) -> None:
        if connection.existing_consumer is None:
            with contextlib.suppress(Error, OSError):
                connection.delete_consumer()  # the one just created
            raise BrokerRefused(
                f"{self.broker} have no consumer {self.name}: it was retired before, or the id is different"
            )
        if connection.existing_consumer.num_waiting:
            raise BrokerRefused(
                f"other aggregators count for {self.name} at {self.broker}: stop them before --retire"
            )
        self._quiet_until = now + _QUIET_S
        self._status.say(
            logging.INFO, f"retiring {self.name}: counting the messages that {self.broker} keep for it"
        )

    def note_messages(self, now: float) -> None:
        """Note that uncommitted messages have arrived, because more may follow."""
        self._quiet_until = now + _QUIET_S

    def has_waited_enough(self, connection: NatsConnection, now: float) -> bool:
        """Return whether to give up on servers that have not answered by this monotonic time."""
        return not connection.subscribed and now - connection.started_at > _ANSWER_S

    def is_over(self, connection: NatsConnection, now: float) -> bool:
        """Return whether the consumer was deleted because nothing was left to count."""
        if not self._session.retire or not connection.subscribed or connection.messages:
            return False
        if now < self._quiet_until:
            return False
        self._quiet_until = now + _QUIET_S
        pending = connection.pending_count()
        if pending != 0:
            if pending:
                self._status.say(
                    logging.INFO, f"{self.name} is waiting for reports that were sent to another aggregator"
                )
            return False
        try:
            connection.delete_consumer()
        except (Error, OSError):
            return False
        self._status.say(logging.INFO, f"retired: nothing is left for {self.name} at {self.broker}")
        return True

    def explain_loss(self, connection: NatsConnection) -> None:
        """Log why a connection ended."""
        why = connection.error or "they did not answer"
        tls = explain(why)
        if tls is not None:
            self._status.say(logging.ERROR, f"no TLS with {self.broker}: {tls}", Loss.NO_TLS)
        else:
            self._status.say(logging.WARNING, f"lost {self.broker} ({why}): connecting again", Loss.OTHER)
