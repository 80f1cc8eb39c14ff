"""Connect to a store in PostgreSQL, with durable commits whatever its defaults, and without blocking forever.

A pooler in front of the server may assign a different session to each transaction. So every setting and
lock is local to its transaction, and no statements are prepared in a session.

This module needs psycopg, which only the `postgresql` extra installs; `database` imports it only to open such
a store.
"""

import logging
import time
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL

# Generous, because a disk may be slow or a lock held; a batch that fails is retried.
LOCK_TIMEOUT_S = 30
STATEMENT_TIMEOUT_S = 120
# The server drops a client that has been idle this long in the middle of a batch, with its rows locked.
IDLE_TIMEOUT_S = 300
PATIENCE_S = 120.0  # maximum wait for a server that is still starting
_LOG_INTERVAL_S = 30.0
_PAUSE_S = 0.5

log = logging.getLogger(__name__)

# libpq options, which the URL may override. They detect a dead server within half a minute.
_LINK = {
    "application_name": "hushmote",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}


class AnsweringConnection(psycopg.Connection[Any]):
    """A connection that gives up when the server is silent for too long, for example because it is stopped.

    The server's own timeouts end a running statement, but do not help with a stopped server or a commit.
    """

    answer_s = STATEMENT_TIMEOUT_S + 30.0

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """Drive an exchange with the server, as psycopg does.

        Raises:
            OperationalError: If the server was silent for answer_s seconds.
        """
        return super().wait(self._with_deadline(gen), *args, **options)

    def _with_deadline(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        end = time.monotonic() + self.answer_s
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() > end:
                    self.pgconn.finish()  # a later answer would be lost
                    raise psycopg.OperationalError(f"no answer for {self.answer_s:g} seconds")
                state = gen.send(ready)
        except StopIteration as stop:
            return stop.value


def open_engine(url: URL, read_only: bool = False) -> Engine:
    """Return an engine that configures its transactions for a store; options in the URL take precedence.

    Args:
        url: The store's URL.
        read_only: Let the server refuse every write.
    """
    options: dict[str, object] = {name: value for name, value in _LINK.items() if name not in url.query}
    options["prepare_threshold"] = None
    # Replace a connection that the server has dropped before a batch fails because of it.
    engine = create_engine(url, connect_args=options, pool_pre_ping=True)
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "begin", _apply_settings)
    if read_only:
        event.listen(engine, "connect", _make_read_only)
    return engine


def await_server(engine: Engine) -> None:
    """Wait at most PATIENCE_S until the server answers, even with an error, and log the wait."""
    _, options = engine.dialect.create_connect_args(engine.url)
    options.pop("context", None)  # a psycopg option that libpq does not have
    try:
        conninfo = make_conninfo("", **_LINK | dict(options)).encode()
    except psycopg.ProgrammingError:
        return  # connecting will report the invalid option
    start = log_at = time.monotonic()
    while PGconn.ping(conninfo) in (Ping.REJECT, Ping.NO_RESPONSE):
        now = time.monotonic()
        if now - start >= PATIENCE_S:
            return
        if now >= log_at:
            where = engine.url.set(query={}).render_as_string(hide_password=True)
            log.warning("no answer from %s yet; waiting for at most %.0f s", where, PATIENCE_S)
            log_at = now + _LOG_INTERVAL_S
        time.sleep(_PAUSE_S)


def _connect(_dialect: object, _record: object, arguments: Any, options: Any) -> AnsweringConnection:
    return AnsweringConnection.connect(*arguments, **options)


def _make_read_only(connection: psycopg.Connection[Any], _record: object) -> None:
    connection.read_only = True  # declared at the start of each transaction


# A server may be configured to answer before a commit is on disk. Stricter settings are kept.
_SETTINGS = """SELECT
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
               WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
    set_config('lock_timeout', %s, true),
    set_config('statement_timeout', %s, true),
    set_config('idle_in_transaction_session_timeout', %s, true)"""


def _apply_settings(connection: Connection) -> None:
    if not connection.connection.dbapi_connection.autocommit:  # pyright: ignore
        seconds = (LOCK_TIMEOUT_S, STATEMENT_TIMEOUT_S, IDLE_TIMEOUT_S)
        connection.exec_driver_sql(_SETTINGS, tuple(f"{n}s" for n in seconds))
