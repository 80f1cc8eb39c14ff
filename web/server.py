"""The page's process: a bounded HTTP server with WebSockets, until SIGTERM or Ctrl-C."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Generator
from typing import Any

import uvicorn

from ..server.service import bounded_http

MOST_CONNECTIONS = 256
_REQUEST_S = 60.0  # the board's interpreter is a megabyte, over any connection
_HEAD_BYTES = 16_384
_MESSAGE_BYTES = 1 << 20  # of a WebSocket
_GRACE_S = 1.0


class _PageServer(bounded_http.PatientServer):
    """A server for which no signal is a failure; on_ready is called once it answers."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config, _GRACE_S)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        # uvicorn would raise the signal again after a clean end.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        self.should_exit = True


def _is_ours(record: logging.LogRecord) -> bool:
    """Return whether a log line is not a client's fault, as uvicorn's traceback for invalid UTF-8 is."""
    return not (record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError))


async def run(application: Any, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve an ASGI application on a socket until SIGTERM or Ctrl-C; call on_ready once it answers."""
    logging.getLogger("uvicorn.error").addFilter(_is_ours)
    config = bounded_http.config(
        application,
        most=MOST_CONNECTIONS,
        request_s=_REQUEST_S,
        ws="auto",
        lifespan="on",
        h11_max_incomplete_event_size=_HEAD_BYTES,
        ws_max_size=_MESSAGE_BYTES,
        timeout_graceful_shutdown=2,
    )
    await _PageServer(config, on_ready).serve(sockets=[listener])
