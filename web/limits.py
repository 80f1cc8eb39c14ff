"""Security headers for all of the page's responses, and limits on requests."""

import re
import secrets
import time
from collections.abc import Sequence
from typing import Any

from nicegui import Client
from starlette.responses import PlainTextResponse

from . import socket_io

MAX_BODY = 2 << 20  # bytes in a request
MAX_SOCKETS = 128
PAGES_PER_S = 8.0  # pages drawn per second across all readers; drawing a page takes a few milliseconds of CPU
MAX_BURST = 40.0  # pages
MAX_UNSEEN = 64  # pages sent to browsers that have not connected yet; beyond that, the oldest is dropped

SCRIPTED = "x-nicegui-content"
"""The header that marks documents whose scripts may run; NiceGUI sets it, and Limits adds the nonce."""

_NO_PAGES = ("/_nicegui", "/static/", "/board/", "/api/", "/v1/", "/favicon.ico")
_SCRIPT = re.compile(rb"<script(?=[ >])")
_NOBODY = "'none'"
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
)
_POLICY = (
    "default-src 'none'; base-uri 'none'; object-src 'none'; form-action 'self'; "
    "connect-src 'self'; font-src 'self' data:; img-src 'self' data: blob:; manifest-src 'self'; "
    "style-src 'self' 'unsafe-inline'; worker-src 'self' blob:; script-src 'self' "
)


def policy(path: str, nonce: str, frame_ancestors: Sequence[str] = ()) -> str:
    """Return the Content-Security-Policy for a path.

    Vue needs eval to compile the templates of NiceGUI's elements; the board needs WebAssembly. A document's
    scripts run only with the nonce, which only scripts in NiceGUI's template receive.
    """
    scripts = "'wasm-unsafe-eval'" if path.startswith("/board/") else f"'nonce-{nonce}' 'unsafe-eval'"
    return f"{_POLICY}{scripts}; frame-ancestors {' '.join(frame_ancestors) or _NOBODY}"


class Limits:
    """An ASGI application that wraps another one, limits requests and adds headers to all responses.

    Args:
        application: The application to wrap.
        frame_ancestors: The sites that may show the page in a frame, as in a Content-Security-Policy.
    """

    def __init__(self, application: Any, frame_ancestors: Sequence[str] = ()) -> None:
        self._application = application
        self._frame_ancestors = frame_ancestors
        self._sockets = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI request."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._serve_socket(scope, receive, send)
        else:
            await self._application(scope, receive, send)

    async def _serve_socket(self, scope: Any, receive: Any, send: Any) -> None:
        if self._sockets >= MAX_SOCKETS:
            await send(
                {"type": "websocket.close", "code": 1013, "reason": "too many readers; try again later"}
            )
            return
        self._sockets += 1
        try:
            await self._application(scope, socket_io.until_malformed(scope, receive), send)
        finally:
            self._sockets -= 1

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        if _length(scope) > MAX_BODY:
            return await _refusal(413, "This request is too long.")(scope, receive, send)
        nonce = secrets.token_urlsafe(16)
        content_policy = policy(scope["path"], nonce, self._frame_ancestors).encode()
        headers = [*_HEADERS, (b"content-security-policy", content_policy)]
        if not self._frame_ancestors:
            headers.append((b"x-frame-options", b"DENY"))  # which cannot name sites
        bytes_left = MAX_BODY
        start: Any = None
        body = b""

        async def receive_bounded() -> Any:
            nonlocal bytes_left
            message = await receive()
            bytes_left -= len(message.get("body", b""))
            return message if bytes_left >= 0 else {"type": "http.disconnect"}

        async def send_with_headers(message: Any) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start":
                start = message | {"headers": [*message["headers"], *headers]}
                if not _is_page(start):
                    await send(start)
            elif start is None or not _is_page(start):
                await send(message)
            else:
                # Collect the whole document, and add the nonce to its scripts.
                body += message.get("body", b"")
                if not message.get("more_body"):
                    body = _SCRIPT.sub(b'<script nonce="' + nonce.encode() + b'"', body)
                    length = (b"content-length", str(len(body)).encode())
                    others = [h for h in start["headers"] if h[0].lower() != b"content-length"]
                    await send(start | {"headers": [*others, length]})
                    await send({"type": "http.response.body", "body": body})

        await self._application(scope, receive_bounded, send_with_headers)
        return None


class DrawingLimit:
    """An ASGI application that wraps another one and limits how many pages it draws per second."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._pages, self._since_s = MAX_BURST, time.monotonic()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI request."""
        application = self._application
        if scope["type"] == "http" and socket_io.PATH in scope["path"]:
            application = _refusal(
                400, "This address accepts only WebSockets; a proxy must pass on the Upgrade header."
            )
        elif scope["type"] == "http" and not scope["path"].startswith(_NO_PAGES) and not self._may_draw():
            application = _refusal(503, "Too many readers at the same time; try again in a moment.")
        await application(scope, receive, send)

    def _may_draw(self) -> bool:
        _drop_unseen()
        now_s = time.monotonic()
        self._pages = min(MAX_BURST, self._pages + (now_s - self._since_s) * PAGES_PER_S)
        self._since_s = now_s
        if self._pages < 1:
            return False
        self._pages -= 1
        return True


def _refusal(status: int, message: str) -> PlainTextResponse:
    return PlainTextResponse(f"{message}\n", status, {"retry-after": "1"})


def _length(scope: Any) -> int:
    text = dict(scope["headers"]).get(b"content-length", b"0")
    return int(text[:20]) if text.isdigit() else 0  # int() raises for thousands of digits


def _is_page(start: Any) -> bool:
    """Return whether a response is a document with scripts, from a template that escapes < in data."""
    return any(name.lower() == SCRIPTED.encode() for name, _ in start["headers"])


def _drop_unseen() -> None:
    """Drop the oldest pages without a connected browser, so that many requests cannot fill the memory."""
    unseen = [c for c in Client.instances.values() if not c.has_socket_connection]
    for client in sorted(unseen, key=lambda c: c.created)[: max(0, len(unseen) - MAX_UNSEEN)]:
        client.delete()
