"""Relative addresses, so that a reverse proxy can serve the page under any path, such as /telemetry/.

The proxy removes its path from the requests, so the page never sees it. All addresses in responses are
therefore relative to the address of the request.
"""

from typing import Any
from urllib.parse import quote

PREFIX = "x-forwarded-prefix"
"""The header with the address of the page's root in the requests that RelativeAddresses passes on."""

_MAX_DEPTH = 32  # deeper than any of the page's addresses, and short enough to repeat in a document


def root(scope: Any) -> str:
    """Return the address of the page's root relative to a request's address, such as "." or "../.."."""
    # The browser counts the slashes of the path as it was sent, before decoding.
    path = scope.get("raw_path") or quote(scope["path"]).encode()
    depth = min(path.partition(b"?")[0].count(b"/") - 1, _MAX_DEPTH)
    return "/".join([".."] * depth) or "."


class RelativeAddresses:
    """An ASGI application that wraps another one and makes its addresses relative.

    NiceGUI starts its documents' addresses with X-Forwarded-Prefix, which this sets, and redirects are
    rewritten.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI request."""
        if scope["type"] != "http":
            return await self._application(scope, receive, send)
        prefix = root(scope).encode()
        host = dict(scope["headers"]).get(b"host", b"")
        name = PREFIX.encode()
        others = [header for header in scope["headers"] if header[0] != name]
        inner = scope | {"headers": [*others, (name, prefix)]}

        async def send_relative(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = [
                    (name, _relative(value, host, prefix) if name.lower() == b"location" else value)
                    for name, value in message["headers"]
                ]
                message = message | {"headers": headers}
            await send(message)

        return await self._application(inner, receive, send_relative)


def _relative(location: bytes, host: bytes, prefix: bytes) -> bytes:
    """Return a redirect's target relative to the request's address if it is on this page."""
    for scheme in (b"http://", b"https://"):
        own = scheme + host + b"/"
        if host and location.startswith(own):
            return prefix + b"/" + location.removeprefix(own)
    return prefix + location if location.startswith(b"/") and not location.startswith(b"//") else location
