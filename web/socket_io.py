"""NiceGUI's socket.io restricted to WebSockets; a malformed packet ends the connection."""

import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import app as nicegui_app
from nicegui import core

PATH = "/_nicegui_ws/"
# All packets that NiceGUI's script sends: close, pong; and of socket.io connect, disconnect, event,
# acknowledgement.
_PACKET = re.compile("[13]|4[0-3]")
_FAILURES = "hushmote.failures"  # in a WebSocket's scope: the errors of its packets
log = logging.getLogger(__name__)


def restrict() -> None:
    """Refuse long polling, and end a connection whose packet cannot be handled; once, before serving.

    Long-polling sessions bypass the limit on WebSockets, and pages of other sites could read them.
    """
    core.sio.eio.transports = ["websocket"]
    nicegui_app.config.socket_io_js_transports = ["websocket"]
    core.sio.async_handlers = False  # errors in events are then raised below
    handle = core.sio.eio.handlers["message"]

    async def handle_or_end(sid: str, packet: str) -> None:
        scope = core.sio.environ[sid]["asgi.scope"]
        try:
            await handle(sid, packet)
        except Exception as e:
            scope[_FAILURES].append(e)
            log.warning("a browser sent a malformed packet (%s): its connection is closed", type(e).__name__)

    core.sio.eio.on("message", handle_or_end)


def until_malformed(scope: Any, receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Return a WebSocket's receive for which a malformed message is a disconnect."""
    failures = scope[_FAILURES] = []

    async def receive_well_formed() -> Any:
        if not failures:
            message = await receive()
            if message["type"] != "websocket.receive" or _PACKET.match(message.get("text") or ""):
                return message
        return {"type": "websocket.disconnect", "code": 1008}

    return receive_well_formed
