"""The page's bounded HTTP server with WebSockets, which runs until SIGTERM or Ctrl-C."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Generator
from typing import Any

import uvicorn

from ..server.service import bounded_http

MAX_CONNECTIONS = 256
_REQUEST_S = 60.0  # long enough for a slow connection to load the board's interpreter, which is a megabyte
_HEAD_BYTES = 16_384
_MESSAGE_BYTES = 1 << 20  # in a WebSocket message
_GRACE_S = 1.0


class _PageServer(bounded_http.PatientServer):
    """A server that treats signals as a normal end, and calls on_ready() once it answers requests."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config, _GRACE_S)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        # uvicorn would raise the signal again after a clean shutdown.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        yield

    def _end(self) -> None:
        self.should_exit = True


def _is_relevant(record: logging.LogRecord) -> bool:
    """Return False for uvicorn's tracebacks about invalid UTF-8, which are a client's fault."""
    return not (record.exc_info and isinstance(record.exc_info[1], UnicodeDecodeError))


async def run(application: Any, listener: socket.socket, on_ready: Callable[[], None]) -> None:
    """Serve an ASGI application on a socket until SIGTERM or Ctrl-C; call on_ready() once it is ready."""
    logging.getLogger("uvicorn.error").addFilter(_is_relevant)
    config = bounded_http.config(
        application,
        most=MAX_CONNECTIONS,
        request_s=_REQUEST_S,
        ws="auto",
        lifespan="on",
        h11_max_incomplete_event_size=_HEAD_BYTES,
        ws_max_size=_MESSAGE_BYTES,
        timeout_graceful_shutdown=2,
    )
    await _PageServer(config, on_ready).serve(sockets=[listener])
