"""The alerts that a store remembers, and their deliveries.

An event is recorded once: another one of the same subject is the same event if its direction is the same and
the days on which it may have happened overlap, because late reports can shift them. An event that lasts can
begin again only after its end. Several aggregators may record and send at the same time: a primary key
decides who records an event, and a claim who sends it.

A process that is killed after a service has accepted a message, and before that is recorded, sends it once
more after CLAIM_S. Nothing else repeats a message.
"""

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from ...server.store import schema
from ...server.store.database import insert_new
from ...server.store.store import Store
from .alert import BEGIN, END, Alert, Kind

CLAIM_S = 120
"""For how long a delivery is claimed, longer than any attempt takes."""
FIRST_PAUSE_S, MAX_PAUSE_S = 30, 6 * 3600
"""The pauses between attempts, which double."""
MAX_ATTEMPTS = 28
"""After how many attempts a message is given up, about 5 days after the first."""

WAITING, SENT, GIVEN_UP = "waiting", "sent", "given up"
_alert, _delivery = schema.alert.c, schema.alert_delivery.c


@dataclass(frozen=True)
class Delivery:
    """A claimed message to one receiver.

    Attributes:
        attempts: The number of attempts, with this one.
    """

    subject: str
    number: int
    receiver: str
    kind: Kind
    title: str
    text: str
    attempts: int
    fleet: str


@dataclass(frozen=True)
class RecordedAlert:
    """An event in the store; see Alert."""

    subject: str
    number: int
    kind: Kind
    direction: str
    fleet: str
    experiment: str
    first: datetime.date
    last: datetime.date
    at: datetime.datetime
    title: str
    text: str


class AlertOutbox:
    """The alerts of a store.

    Its times are the database's, because aggregators on one store may have different clocks.

    Args:
        store: The store.
        receivers: The ids of the receivers that new events are sent to.
    """

    def __init__(self, store: Store, receivers: Sequence[str]) -> None:
        self._store = store
        self._receivers = tuple(receivers)

    def record(self, alerts: Iterable[Alert], *, deliver: bool = True) -> list[Alert]:
        """Record the events that are new, in one transaction, and return them.

        Args:
            alerts: The events.
            deliver: Whether to send them.
        """
        alerts = list(alerts)
        known = self.alerts({alert.subject for alert in alerts})
        if not any(_is_new(alert, known.get(alert.subject, [])) for alert in alerts):
            return []  # usually, and then nothing is written
        recorded = list[Alert]()
        with self._store.writing() as connection:
            self._store.check_version(connection)
            now = database_time(connection)
            for alert in alerts:
                earlier = _earlier(connection, [alert.subject]).get(alert.subject, [])
                if _is_new(alert, earlier) and self._insert(
                    connection, alert, len(earlier) + 1, now, deliver
                ):
                    recorded.append(alert)
        return recorded

    def alerts(self, subjects: Iterable[str] | None = None) -> dict[str, list[RecordedAlert]]:
        """Return the recorded events by subject, oldest first; None for all subjects."""
        with self._store.decoding_errors(), self._store.reading() as connection:
            return _earlier(connection, None if subjects is None else list(subjects))

    def open_events(self, kind: Kind) -> list[RecordedAlert]:
        """Return the events of a kind that have begun and not ended."""
        last = [events[-1] for events in self.alerts().values() if events[-1].kind == kind]
        return [event for event in last if event.direction == BEGIN]

    def raise_comparisons(self, fleet: str, comparisons: int) -> int:
        """Return the most comparisons that a fleet's alerts have ever shared, at least these."""
        table = schema.fleet
        query = sa.select(table.c.comparisons).where(table.c.name == fleet)
        with self._store.decoding_errors(), self._store.reading() as connection:
            before = int(connection.scalar(query) or 0)
        if comparisons <= before:
            return before
        with self._store.writing() as connection:
            lower = sa.and_(table.c.name == fleet, table.c.comparisons < comparisons)
            connection.execute(sa.update(table).where(lower).values(comparisons=comparisons))
        return comparisons

    def claim(self) -> Delivery | None:
        """Claim a message that is due, for CLAIM_S, or return None."""
        with self._store.reading() as connection:
            if self._due(connection) is None:
                return None
        with self._store.writing() as connection:
            self._store.check_version(connection)
            now = database_time(connection)
            row = self._due(connection)
            if row is None:
                return None
            claim = sa.update(schema.alert_delivery).where(
                *_key(row), _delivery.state == WAITING, _delivery.attempts == row.attempts
            )
            claimed = connection.execute(claim.values(attempts=row.attempts + 1, due=now + CLAIM_S))
            if not claimed.rowcount:  # another aggregator was faster
                return None
            attempts = row.attempts + 1
        return Delivery(
            row.subject, row.number, row.receiver, row.kind, row.title, row.text, attempts, row.fleet
        )

    def note_sent(self, delivery: Delivery) -> None:
        """Record that a message has arrived."""
        with self._store.writing() as connection:
            sent = sa.update(schema.alert_delivery).where(*_key(delivery))
            connection.execute(sent.values(state=SENT, sent_at=database_time(connection)))

    def note_failure(self, delivery: Delivery) -> bool:
        """Record a failed attempt, and return whether there will be another one."""
        pause = min(FIRST_PAUSE_S * 2 ** min(delivery.attempts - 1, 20), MAX_PAUSE_S)
        gives_up = delivery.attempts >= MAX_ATTEMPTS
        with self._store.writing() as connection:
            now = database_time(connection)
            same = sa.update(schema.alert_delivery).where(*_key(delivery), _delivery.state == WAITING)
            values = {"state": GIVEN_UP} if gives_up else {"due": now + pause}
            connection.execute(same.values(**values))
        return not gives_up

    def waiting(self) -> int:
        """Return the number of messages that are still to be sent."""
        query = sa.select(sa.func.count()).select_from(schema.alert_delivery)
        return int(self._store.read(query.where(_delivery.state == WAITING))[0][0])

    def _insert(self, connection: sa.Connection, alert: Alert, number: int, now: int, deliver: bool) -> bool:
        """Insert an event, and return whether no other aggregator was faster."""
        key = {"subject": alert.subject, "number": number}
        place = {"fleet": alert.fleet, "experiment": alert.experiment}
        values = {"kind": alert.kind, "direction": alert.direction, "at": now}
        values |= {"first_day": alert.first.isoformat(), "last_day": alert.last.isoformat()}
        values |= {"title": alert.title, "text": alert.text}
        insert = insert_new(connection, schema.alert).values(**key, **place, **values)
        if connection.scalar(insert.returning(_alert.number)) is None:
            return False
        waiting = {"state": WAITING, "attempts": 0, "due": now, "sent_at": None}
        rows = [{**key, **place, **waiting, "receiver": receiver} for receiver in self._receivers]
        if deliver and rows:
            connection.execute(schema.alert_delivery.insert(), rows)
        return True

    def _due(self, connection: sa.Connection) -> sa.Row[tuple[object, ...]] | None:
        """Return the oldest message to one of this aggregator's receivers that is due."""
        now = database_time(connection)
        both = schema.alert_delivery.join(
            schema.alert, sa.and_(_alert.subject == _delivery.subject, _alert.number == _delivery.number)
        )
        columns = (*schema.alert_delivery.c, _alert.kind, _alert.title, _alert.text)
        # A time that is too far ahead was written with a wrong clock.
        is_due = sa.or_(_delivery.due <= now, _delivery.due > now + 2 * MAX_PAUSE_S)
        query = sa.select(*columns).select_from(both).where(_delivery.state == WAITING, is_due)
        query = query.where(_delivery.receiver.in_(self._receivers)).order_by(_delivery.due)
        return connection.execute(query.limit(1)).first()


def database_time(connection: sa.Connection) -> int:
    """Return the database's time, unix seconds."""
    if connection.dialect.name == "sqlite":
        return int(connection.exec_driver_sql("SELECT strftime('%s', 'now')").scalar() or 0)
    return int(connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar() or 0)


def _is_new(alert: Alert, earlier: Sequence[RecordedAlert]) -> bool:
    if alert.lasts:
        is_open = bool(earlier) and earlier[-1].direction == BEGIN
        return is_open == (alert.direction == END)
    return not any(
        event.direction == alert.direction and event.first <= alert.last and alert.first <= event.last
        for event in earlier
    )


def _earlier(connection: sa.Connection, subjects: Sequence[str] | None) -> dict[str, list[RecordedAlert]]:
    query = sa.select(schema.alert).order_by(_alert.subject, _alert.number)
    if subjects is not None:
        query = query.where(_alert.subject.in_(subjects))
    events: dict[str, list[RecordedAlert]] = {}
    for row in connection.execute(query):
        first, last = map(datetime.date.fromisoformat, (row.first_day, row.last_day))
        at = datetime.datetime.fromtimestamp(row.at, datetime.UTC)
        event = RecordedAlert(
            row.subject, row.number, row.kind, row.direction, row.fleet, row.experiment, first, last, at,
            row.title, row.text,
        )  # fmt: skip
        events.setdefault(row.subject, []).append(event)
    return events


def _key(row: object) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions that select a delivery."""
    return tuple(_delivery[name] == getattr(row, name) for name in ("subject", "number", "receiver"))
