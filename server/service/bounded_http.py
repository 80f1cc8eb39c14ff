"""A small HTTP server that runs an ASGI application in its own thread and survives any client.

uvicorn can neither drop the connection that has waited longest nor set a deadline for a request, so a client
that sends a byte a minute could keep a connection open forever. This server does both. It does not handle
signals or log clients' errors.
"""

import asyncio
import functools
import os
import socket
from threading import Thread
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import HushmoteError
from ..plain_text import bracketed

REQUEST_S = 10.0  # from the connection or the previous response until the client has read the response
MAX_CONNECTIONS = 128
_WAITING = 1024  # connections that the system queues, so that clients need not retry after a burst
ACCEPTS_PER_TURN = 8  # per turn of the loop; excess connections are closed within three turns
_HEAD_BYTES = 8192
_JOIN_S = 2.0  # added to the grace period when waiting for the server's thread


class EndpointError(HushmoteError):
    """Raised for an endpoint address that cannot be used; the message says why and what to do."""


def parse_endpoint(text: str) -> tuple[str, int]:
    """Return the host and port in "host:port".

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
    """Return a socket that listens on this host and port; port 0 chooses a free port.

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
            f"cannot listen at {bracketed(host)}:{port} ({reason}): choose another address with --http"
        ) from None


class BoundedHTTP(H11Protocol):
    """A connection that is closed when a request takes too long or when there are too many newer connections.

    It ignores connections that become WebSockets.

    Args:
        most: The largest number of simultaneous connections.
        request_s: The time limit for a request, seconds; None for REQUEST_S.
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
            oldest = min(others, key=lambda c: (c.has_pending_request, c.deadline.when()))
            # Immediately, because connection_lost() is called in a later turn.
            self.connections.discard(oldest)
            oldest.transport.abort()

    @property
    def has_pending_request(self) -> bool:
        """Whether a complete request has arrived whose response is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _set_deadline(self) -> None:
        self.deadline = self.loop.call_later(self.request_s, self.transport.abort)

    def on_response_complete(self) -> None:
        """Start the next request's deadline."""
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


class OriginForm:
    """Passes requests to an application in origin form, which clients send unless they use a proxy.

    A request for an absolute URI, such as GET http://door:9418/v1/home/experiment, gets the URI's path, and
    its authority as the Host, which RFC 9112 (sections 3.2.2 and 3.3) requires.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass on one request."""
        raw_path = scope.get("raw_path") or b""
        scheme, separator, rest = raw_path.partition(b"://")
        if separator and scheme.lower() in (b"http", b"https"):
            authority, _, path = rest.partition(b"/")
            headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
            scope = scope | {
                "raw_path": b"/" + path,
                "path": unquote((b"/" + path).decode("latin-1")),
                "headers": [*headers, (b"host", authority)],
            }
        await self._application(scope, receive, send)


class PatientServer(uvicorn.Server):
    """A server that accepts few connections per turn but queues many; asyncio uses one number for both."""

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
    """Return a uvicorn configuration for such a server.

    Args:
        application: An ASGI application.
        most: See BoundedHTTP.
        request_s: See BoundedHTTP.
        options: Passed to uvicorn.Config, overriding the defaults.
    """
    defaults = {
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
    return uvicorn.Config(OriginForm(application), **defaults | options)


class BoundedServer:
    """Serves an ASGI application at host:port, as a context manager.

    Args:
        host: The host name or address to listen on.
        port: The port; 0 for a free one.
        application: An ASGI application.
        most_connections: The largest number of simultaneous connections, above which the oldest connection is
            closed, idle ones first.
        grace_s: Seconds that running requests have to finish when the server stops.
        request_s: See BoundedHTTP.

    Attributes:
        port: The port on which the server listens.

    Raises:
        EndpointError: If the address cannot be used.
    """

    def __init__(
        self,
        host: str,
        port: int,
        application: Any,
        *,
        most_connections: int = MAX_CONNECTIONS,
        grace_s: float = 1.0,
        request_s: float | None = None,
    ) -> None:
        self._socket = listen(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._patience_s = grace_s + _JOIN_S
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
        self._thread.join(self._patience_s + _JOIN_S)
