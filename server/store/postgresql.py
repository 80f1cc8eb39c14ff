"""Connects to a store in PostgreSQL: durable whatever the server's defaults, and never blocked for ever.

A pooler between us and the server may give each transaction another session. So every setting and lock is
local to its transaction, and no statement is prepared in a session.

This module needs psycopg, which only the extra `postgresql` installs; database imports it to open such a
store.
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

# A slow disk or a held lock may take long; a batch that fails is tried again.
LOCK_TIMEOUT_S = 30
STATEMENT_TIMEOUT_S = 120
# After this time the server drops a client that stopped in the middle of a batch with its rows locked.
IDLE_TIMEOUT_S = 300
PATIENCE_S = 120.0  # how long to wait for a server that is still starting
_LOG_INTERVAL_S = 30.0
_PAUSE_S = 0.5

log = logging.getLogger(__name__)

# libpq's defaults here, which the URL may override: a server that is gone is noticed within half a minute.
_LINK = {
    "application_name": "hushmote",
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}


class AnsweringConnection(psycopg.Connection[Any]):
    """A connection that gives up when the server is silent for too long, as a stopped server is.

    The server's own timeouts end a running statement, but they help neither with a stopped server nor with a
    commit.
    """

    answer_s = STATEMENT_TIMEOUT_S + 30.0

    def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """Drive an exchange with the server, as psycopg does.

        Raises:
            OperationalError: If the server was silent for answer_s seconds.
        """
        return super().wait(self._impatient(gen), *args, **options)

    def _impatient(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        end = time.monotonic() + self.answer_s
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready and time.monotonic() > end:
                    self.pgconn.finish()  # nobody waits for a later answer
                    raise psycopg.OperationalError(f"no answer for {self.answer_s:g} seconds")
                state = gen.send(ready)
        except StopIteration as stop:
            return stop.value


def open_engine(url: URL, read_only: bool = False) -> Engine:
    """Return an engine that sets up its transactions for a store; options in the URL take precedence.

    Args:
        url: The store's URL.
        read_only: Let the server refuse every write.
    """
    options: dict[str, object] = {name: value for name, value in _LINK.items() if name not in url.query}
    options["prepare_threshold"] = None
    # A connection that the server has dropped is replaced before a batch fails.
    engine = create_engine(url, connect_args=options, pool_pre_ping=True)
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "begin", _apply_settings)
    if read_only:
        event.listen(engine, "connect", _only_read)
    return engine


def await_server(engine: Engine) -> None:
    """Wait until the server answers, even with a refusal, for at most PATIENCE_S; log that it waits."""
    _, options = engine.dialect.create_connect_args(engine.url)
    options.pop("context", None)  # psycopg's own; libpq does not know it
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
            log.warning("no answer from %s yet: waiting for it, %.0f s at most", where, PATIENCE_S)
            log_at = now + _LOG_INTERVAL_S
        time.sleep(_PAUSE_S)


def _connect(_dialect: object, _record: object, arguments: Any, options: Any) -> AnsweringConnection:
    return AnsweringConnection.connect(*arguments, **options)


def _only_read(connection: psycopg.Connection[Any], _record: object) -> None:
    connection.read_only = True  # declared at the start of each transaction


# A server may be configured to answer before a commit is on disk. Stricter settings stay.
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
