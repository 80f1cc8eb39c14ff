"""Read the body of an HTTP request, of a bounded size and in a bounded time."""

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request

BODY_S = 8.0  # time limit for a body
_CLOSE = {"connection": "close"}  # because no request can follow an unread body


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the body.

    Raises:
        HTTPException: As soon as it exceeds max_bytes, or if it takes more than BODY_S seconds.
        ClientDisconnect: If the client closes the connection.
    """
    too_long = f"the body is too long: at most {max_bytes} bytes are allowed"
    length = request.headers.get("content-length", "0")
    if not length.isdecimal():
        raise HTTPException(400, "the Content-Length must be a number", _CLOSE)
    if len(length) > 9 or int(length) > max_bytes:
        raise HTTPException(413, too_long, _CLOSE)
    content = b""
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                content += piece
                if len(content) > max_bytes:
                    raise HTTPException(413, too_long, _CLOSE)
    except TimeoutError:
        raise HTTPException(408, f"the body did not arrive within {BODY_S:g} s", _CLOSE) from None
    return content
