"""A small HTTP server in a thread of its own, for an ASGI application, that survives any client.

uvicorn can neither drop the connection that has waited longest nor set a deadline for a request: a client
that sends a byte a minute would keep a connection for ever. This server does both. It handles no signals, and
it does not log clients' mistakes.
"""

import asyncio
import functools
import os
import socket
from threading import Thread
from typing import Any, Self
from urllib.parse import urlsplit

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import HushmoteError

REQUEST_S = 10.0  # from the connection, or the previous answer, until the client has read the answer
MOST_CONNECTIONS = 128
_WAITING = 1024  # connections that the system queues, so that a crowd does not make others retry
ACCEPTS_PER_TURN = 8  # in each turn of the loop; excess connections are closed within three turns
_HEAD_BYTES = 8192
_AFTER_GRACE_S = 2.0


class EndpointError(HushmoteError):
    """Raised for an endpoint's address that is unusable; the text says why and what would be right."""


def parse_endpoint(text: str) -> tuple[str, int]:
    """Return host and port of host:port.

    Raises:
        EndpointError: If the text has another form.
    """
    try:
        parts = urlsplit(f"//{text}")
        if parts.hostname and parts.port is not None and not parts.path and "@" not in text:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise EndpointError(f"--http {text!r} must be host:port, such as 127.0.0.1:9417")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there, on a free port for port 0.

    Raises:
        EndpointError: If the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_WAITING)
    except (OSError, OverflowError) as e:
        number = getattr(e, "errno", None)
        reason = os.strerror(number) if number and number > 0 else str(e)
        raise EndpointError(
            f"cannot listen at {host}:{port} ({reason}): choose another address with --http"
        ) from None


class BoundedHTTP(H11Protocol):
    """A connection that ends when a request takes too long, or when too many others came after it.

    It ignores connections that become WebSockets.

    Args:
        most: Connections at a time.
        request_s: A request's time, seconds; None for REQUEST_S.
    """

    def __init__(self, *arguments: Any, most: int, request_s: float | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._most = most
        self.request_s = REQUEST_S if request_s is None else request_s

    def connection_made(self, transport: Any) -> None:
        """Set a deadline, and close the longest-waiting connection if there are too many."""
        super().connection_made(transport)
        self._set_deadline()
        others = [c for c in self.connections if isinstance(c, BoundedHTTP)]
        if len(others) > self._most:
            # Close the connection that has waited longest, idle ones first.
            oldest = min(others, key=lambda c: (c.is_asking, c.deadline.when()))
            self.connections.discard(oldest)  # now, as connection_lost() comes in a later turn
            oldest.transport.abort()

    @property
    def is_asking(self) -> bool:
        """Whether a whole request has arrived whose answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _set_deadline(self) -> None:
        self.deadline = self.loop.call_later(self.request_s, self.transport.abort)

    def on_response_complete(self) -> None:
        """Start the deadline of the next request."""
        self.deadline.cancel()
        self._set_deadline()
        super().on_response_complete()

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Cancel the deadline."""
        self.deadline.cancel()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        self.deadline.cancel()
        super().connection_lost(exc)


class PatientServer(uvicorn.Server):
    """A server that accepts few connections at once and lets many wait; asyncio has one number for both."""

    def __init__(self, config: uvicorn.Config, grace_s: float) -> None:
        super().__init__(config)
        self._grace_s = grace_s

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen with a long queue."""
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(_WAITING)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Abort the remaining connections after grace_s."""
        # uvicorn would cancel running requests and log that.
        asyncio.get_running_loop().call_later(self._grace_s, self._abort)
        await super().shutdown(sockets)

    def _abort(self) -> None:
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()


def config(application: Any, *, most: int, request_s: float | None = None, **options: Any) -> uvicorn.Config:
    """Return uvicorn's configuration of such a server.

    Args:
        application: An ASGI application.
        most: As in BoundedHTTP.
        request_s: As in BoundedHTTP.
        options: Uvicorn's, which take precedence.
    """
    usual = {
        "http": functools.partial(BoundedHTTP, most=most, request_s=request_s),
        "ws": "none",
        "loop": "asyncio",
        "lifespan": "off",
        "interface": "asgi3",
        "log_config": None,
        "log_level": "error",
        "access_log": False,
        "proxy_headers": False,
        "server_header": False,
        "backlog": ACCEPTS_PER_TURN,
        "h11_max_incomplete_event_size": _HEAD_BYTES,
    }
    return uvicorn.Config(application, **usual | options)


class BoundedServer:
    """Serves an ASGI application at host:port, as a context manager.

    Args:
        host: Name or address.
        port: 0 for a free one.
        application: An ASGI application.
        most_connections: At a time; beyond it the oldest connection is closed, idle ones first.
        grace_s: Seconds for running requests at the end.
        request_s: As in BoundedHTTP.

    Attributes:
        port: The port on which it listens.

    Raises:
        EndpointError: If the address cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int,
        application: Any,
        *,
        most_connections: int = MOST_CONNECTIONS,
        grace_s: float = 1.0,
        request_s: float | None = None,
    ) -> None:
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._patience_s = grace_s + _AFTER_GRACE_S
        graceful = {"timeout_graceful_shutdown": int(self._patience_s)}
        self._server = PatientServer(
            config(application, most=most_connections, request_s=request_s, **graceful), grace_s
        )

    def __enter__(self) -> Self:
        serving = self._server.serve(sockets=[self._socket])
        self._thread = Thread(target=asyncio.run, args=(serving,), name="http", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.should_exit = True
        self._thread.join(self._patience_s + _AFTER_GRACE_S)
