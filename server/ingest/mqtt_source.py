"""Receive reports over MQTT in a persistent session, alone or in a group, and retire the session."""

import contextlib
import datetime
import logging
from collections.abc import Callable
from typing import Literal

from ..plain_text import bracketed
from ..store.database import StoreError
from .broker_limits import loss_warnings, refused_qos
from .clock import now as machine_time
from .connection import NO_TOPIC, BrokerConnection
from .connector import Connector
from .link import Protocol
from .pacing import MAX_WAIT_S
from .session import BrokerRefused, Session, warn_of_hidden_experiments
from .status import Status

_RETRY_GROUP_S = 1.0  # a restarted mosquitto forgets the group and keeps no messages until a member is back
_QUIET_S = 3.0  # a broker with more messages for a session sends them within this time
_NO_SUBSCRIPTION = 17  # UNSUBACK reason code


class MqttSource:
    """A Source that subscribes a session's connections.

    To retire a session, it unsubscribes instead, so that later reports go to other aggregators, and counts
    the queued messages.

    Args:
        session: The address and the subscription.
        status: Logs changes.
        protocol: See Connector.
        open_connection: See Connector.
        counted_until: Returns when reports were last counted, UTC, or None if never.

    Attributes:
        warnings: How the broker can lose, or may have lost, reports or experiments.
    """

    def __init__(
        self,
        session: Session,
        status: Status,
        protocol: Literal["auto", "5", "3.1.1"],
        open_connection: Callable[[Protocol], BrokerConnection],
        counted_until: Callable[[], datetime.datetime | None] = lambda: None,
    ) -> None:
        self.name, self.broker = session.client_id, str(session.address)
        self.max_wait_s = MAX_WAIT_S if session.group is None else _RETRY_GROUP_S
        self._session = session
        self._status = status
        self._connector = Connector(session, status, protocol, open_connection)
        self.has_waited_enough = self._connector.has_waited_enough
        self.warnings: tuple[str, ...] = ()
        self._counted_until = counted_until
        self._was_subscribed = False
        self._lost_at: datetime.datetime | None = None  # when the last connection ended
        self._loss = ""
        self._logged_warnings: tuple[str, ...] = ()
        self._filters = session.filters(session.group)  # rejects an invalid name before connecting
        self._answers: tuple[object, object] = None, None
        self._quiet_until = self._pinged_at = 0.0

    def connect(self) -> BrokerConnection | None:
        """Return a connection that is waiting for its CONNACK, or None if nothing is listening."""
        self._answers = None, None
        return self._connector.connect()

    def greet(self, connection: BrokerConnection, now: float) -> bool:
        """Subscribe once the broker's CONNACK has arrived.

        Returns:
            Whether the SUBACK has just arrived.

        Raises:
            BrokerRefused: If the broker refuses the login or the subscription.
        """
        before, self._answers = self._answers, (connection.answer, connection.subscribe_reason)
        if before == self._answers or not self._connector.accepted(connection):
            return False
        if before[0] is None:
            if self._session.retire:
                self._retire(connection, now)
            else:
                self._subscribe(connection)
        elif connection.subscribe_reason is not None:
            self._check(connection)
            return True
        return False

    def _subscribe(self, connection: BrokerConnection) -> None:
        if self._session.group is not None:
            # An earlier subscription without the group would receive all reports in addition to its share.
            connection.unsubscribe(self._session.filters(None))
        # Request these first, so that they have arrived when the subscription to reports is accepted.
        connection.watch(self._session.announcement_filters())
        connection.subscribe(self._filters)

    def _retire(self, connection: BrokerConnection, now: float) -> None:
        """Unsubscribe permanently; raise BrokerRefused if the broker does not keep this session."""
        if not connection.session_present:
            raise BrokerRefused(
                f"{self.broker} keeps nothing for a client with the id {self.name}: "
                "it was retired before, or the id is different"
            )
        self.note_messages(now)
        self._pinged_at = 0.0
        self._status.say(
            logging.INFO, f"retiring {self.name}: counting the messages that {self.broker} keeps for it"
        )
        connection.unsubscribe(self._filters)

    def _check(self, connection: BrokerConnection) -> None:
        """Log that the broker has accepted the subscription; raise BrokerRefused if it has not."""
        if not connection.subscribed:
            why = str(connection.subscribe_reason).lower()
            # NATS servers set up by `hushmote provision` do not allow aggregators to subscribe over MQTT.
            raise BrokerRefused(
                f"{self.broker} refuses the subscription: {why}; if it is a NATS server, write "
                "it as tls:// or nats://"
            )
        assert connection.subscribe_reason is not None  # a subscribed connection has one
        if why := refused_qos(connection.subscribe_reason):
            raise BrokerRefused(f"{self.broker} grants the subscription, but {why}")
        self._note_session(connection)
        # Omit the group's name, because anyone who knows it and may subscribe could receive its reports.
        address = self._session.address
        where = f"{bracketed(address.host)}:{address.port} with MQTT {connection.protocol}"
        suffix = "" if self._session.group is None else ", sharing the reports with others"
        new = [warning for warning in self.warnings if warning not in self._logged_warnings]
        self._logged_warnings = self.warnings
        level = logging.WARNING if new else logging.INFO
        self._status.say(level, "; ".join((f"subscribed at {where}{suffix}", *new)))
        warn_of_hidden_experiments(connection, self._session, self.broker, self._status)

    def _note_session(self, connection: BrokerConnection) -> None:
        """Note what the broker does not keep, and what it has not kept although it should have."""
        if not connection.session_present and (self._was_subscribed or self._session.group is None):
            since = self._lost_at if self._was_subscribed else self._last_counted()
            if since is not None:
                self._loss = _loss_sentence(since, machine_time(), is_certain=self._was_subscribed)
        self._was_subscribed = True
        limits = loss_warnings(connection.connack_properties)
        self.warnings = (*limits, self._loss) if self._loss else limits

    def _last_counted(self) -> datetime.datetime | None:
        with contextlib.suppress(StoreError):  # the committer will log it
            return self._counted_until()
        return None

    def explain_loss(self, connection: BrokerConnection) -> None:
        """Log why a connection ended.

        Raises:
            BrokerRefused: If the broker says so, and another attempt would not help.
        """
        if connection.subscribed:
            self._lost_at = machine_time()
        self._connector.explain_loss(connection)

    def note_messages(self, now: float) -> None:
        """Note that uncommitted messages have arrived, because more may follow."""
        self._quiet_until = now + _QUIET_S

    def is_over(self, connection: BrokerConnection, now: float) -> bool:
        """Return whether the session was ended because nothing is left to count.

        Raises:
            BrokerRefused: If the session is subscribed to something else.
        """
        if not self._session.retire or connection.unsubscribe_reason is None:
            return False
        if not self._pinged_at and connection.unsubscribe_reason.value == _NO_SUBSCRIPTION:
            # It may be subscribed with other options, whose reports would be lost with the session.
            raise BrokerRefused(
                f"{self.name} is not subscribed with these options: correct "
                "share; or, after a restart of the broker, start it once without --retire"
            )
        if connection.messages or now <= self._quiet_until:
            return False
        if self._pinged_at <= self._quiet_until:  # a broker that answers has read all acknowledgements
            self._pinged_at, connection.unsubscribe_reason = now, None
            connection.unsubscribe([NO_TOPIC])
            return False
        connection.close(end_session=True)
        self._status.say(logging.INFO, f"retired: nothing is left for {self.name} at {self.broker}")
        return True


def _loss_sentence(since: datetime.datetime, until: datetime.datetime, *, is_certain: bool) -> str:
    """Return a sentence that says when reports may have been lost, without names or addresses."""
    period = f"between {since:%Y-%m-%d %H:%M:%S} and {until:%Y-%m-%d %H:%M:%S} UTC"
    if until < since:  # a wrong clock
        period = f"since {since:%Y-%m-%d %H:%M:%S} UTC"
    if is_certain:
        return f"the broker forgot this aggregator: reports that boards sent {period} may be lost"
    return (
        "the broker does not know this aggregator: if it was there before, reports that boards sent "
        f"{period} may be lost"
    )
