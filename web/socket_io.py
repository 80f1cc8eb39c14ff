"""Restricts NiceGUI's socket.io to WebSockets, and closes a connection after a malformed packet."""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import app as nicegui_app
from nicegui import core

PATH = "/_nicegui_ws/"
# All packets that NiceGUI's script sends: close and pong, and socket.io's connect, disconnect, event and
# acknowledgement.
_PACKET = re.compile("[13]|4[0-3]")
_FAILURES = "hushmote.failures"  # key in a WebSocket's scope for its packets' errors
log = logging.getLogger(__name__)


def restrict() -> None:
    """Refuse long polling, and close a connection after a malformed packet; call this once, before serving.

    Long-polling sessions would bypass the limit on WebSockets, and other sites' pages could read them.
    """
    core.sio.eio.transports = ["websocket"]
    nicegui_app.config.socket_io_js_transports = ["websocket"]
    core.sio.async_handlers = False  # makes handle() below raise errors in events
    handle = core.sio.eio.handlers["message"]

    async def handle_or_close(sid: str, packet: str) -> None:
        scope = core.sio.environ[sid]["asgi.scope"]
        try:
            await handle(sid, packet)
        except Exception as e:
            scope[_FAILURES].append(e)
            log.warning(
                "a browser sent a malformed packet (%s), so its connection was closed", type(e).__name__
            )

    core.sio.eio.on("message", handle_or_close)


def until_malformed(scope: Any, receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Wrap a WebSocket's receive to return a disconnect after a malformed message."""
    failures = scope[_FAILURES] = []

    async def receive_well_formed() -> Any:
        if not failures:
            message = await receive()
            if message["type"] != "websocket.receive" or _PACKET.match(message.get("text") or ""):
                return message
        return {"type": "websocket.disconnect", "code": 1008}

    return receive_well_formed
