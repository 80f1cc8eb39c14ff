"""Access to the page: a check before everything that it serves, from WebSockets to the board and the door.

Without a token, only browsers on this machine are admitted, and only under this machine's names: a foreign
site whose name resolves to this machine (DNS rebinding) is refused. With a token, browsers with its cookie
are.
"""

import asyncio
import contextlib
import hashlib
import hmac
import html
import logging
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from ..server.service.audit_log import AuditLog, AuditLogError
from ..server.service.http_access import bearer, host_name, is_loopback, is_own_page
from ..server.service.tokens import Tokens
from . import public_statement

HEALTH = "/healthz"  # for process supervisors; it reveals nothing about the store
LOGIN = "/login"
_WRONG_S = 1.0  # delay before the answer to a wrong token
_MOST_WRONG = 32  # wrong tokens that are delayed at once; the next one is refused immediately
_WRONG = "That is not this page's token."
_CROWD = "Too many try a token at the same time: try again in a minute."
_MOST_FORM = 4096  # bytes
_COOKIE_DAYS = 30
_NO_STORE = {"cache-control": "no-store"}
_HERE = "this machine"  # the reader's name on a page without tokens
_NOTED_S = 3600.0  # until the same reader is logged again

log = logging.getLogger(__name__)


class PageAccess:
    """An ASGI application that passes admitted readers to another one.

    Args:
        tokens: The valid tokens; None on loopback.
        public: The statement that anyone may read, or None.
        audit_log: Records who opened the page.
    """

    def __init__(
        self,
        application: Any,
        tokens: Tokens | None,
        port: int,
        public: public_statement.PublicStatement | None = None,
        audit_log: AuditLog | None = None,
    ) -> None:
        self._application = application
        self._public = public
        self._tokens = tokens
        self._audit_log = audit_log or AuditLog(None)
        self._noted: dict[str, float] = {}
        self._waiting = 0
        self._name = f"hushmote_{port}"  # browsers store cookies by host, whatever the port

    @property
    def asks_for_token(self) -> bool:
        """Whether readers need a token."""
        return self._tokens is not None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one ASGI request."""
        if scope["type"] not in ("http", "websocket"):
            return await self._application(scope, receive, send)
        request = HTTPConnection(scope)
        if scope["type"] == "http" and scope["path"] == HEALTH:
            healthy = Response('{"healthy": true}\n', headers=_NO_STORE, media_type="application/json")
            return await healthy(scope, receive, send)
        if refusal := self._refusal(request):
            return await _refuse(scope, receive, send, 403, refusal)
        if self._public and public_statement.is_asked_for(scope):
            answer = await self._public.answer(request.url.query)
            return await answer(scope, receive, send)
        if self._tokens is None:
            self._note(_HERE)
            return await self._application(scope, receive, send)
        if scope["type"] == "http" and scope["path"] == LOGIN and scope["method"] == "POST":
            answer = await self._log_in(request, receive)
            return await answer(scope, receive, send)
        if (name := self._reader(request)) is not None:
            self._note(name)
            if scope["type"] == "websocket":
                receive, send = _while_let_in(lambda: self._reader(request) == name, receive, send)
            return await self._application(scope, receive, send)
        if (token := bearer(request.headers)) is not None:
            return await self._judge_program(token, scope, receive, send)
        token, there = _without_token(request)
        if scope["type"] == "http" and scope["method"] == "GET" and token is not None:
            answer = await self._judge(token, there, request)
            return await answer(scope, receive, send)
        return await _refuse(scope, receive, send, 401, "This page needs a token.", self._form(there))

    def _reader(self, request: HTTPConnection) -> str | None:
        """Return the name whose token a request's valid cookie was made for, or None."""
        cookie, reader = request.cookies.get(self._name, "").encode(), None
        for name, token in self._tokens.current().items() if self._tokens else ():
            if hmac.compare_digest(cookie, _cookie_value(token).encode()):
                reader = name
        return reader

    def _note(self, name: str) -> None:
        """Record, at most once an hour, that a reader has opened the page."""
        now = time.monotonic()
        if now - self._noted.get(name, float("-inf")) < _NOTED_S:
            return
        self._noted[name] = now
        try:
            self._audit_log.note(name, "open page")
        except AuditLogError as e:
            log.error("%s", e)

    def _refusal(self, request: HTTPConnection) -> str:
        """Return why a request is refused on its headers alone, or ""."""
        if self._tokens is None and not is_loopback(host_name(request.headers)):
            return (
                "This page is for this machine only: open it as http://127.0.0.1 or http://localhost. To "
                "reach it by another name, start it with --token-file."
            )
        writes = request.scope.get("method") not in ("GET", "HEAD")  # a WebSocket has no method
        # Non-browser clients send no Origin header and only their own cookies.
        if writes and not is_own_page(request.headers):
            return "This came from another site's page."
        return ""

    async def _log_in(self, request: HTTPConnection, receive: Any) -> Response:
        body = b""
        with contextlib.suppress(ClientDisconnect):
            async for piece in Request(request.scope, receive).stream():
                body += piece
                if len(body) > _MOST_FORM:
                    break
        form = parse_qs(body[:_MOST_FORM].decode("utf-8", "replace"))
        token, there = form.get("token", [""])[0].strip(), form.get("there", ["/"])[0]
        return await self._judge(token, there, request)

    async def _judge(self, token: str, there: str, request: HTTPConnection) -> Response:
        there = _own_path(there)
        name = self._tokens and self._tokens.name_of(token)
        if self._tokens and name is not None:
            value = _cookie_value(self._tokens.current().get(name, ""))
            flags = f"Path=/; HttpOnly; SameSite=Strict; Max-Age={_COOKIE_DAYS * 86_400}"
            secure = "; Secure" if request.headers.get("x-forwarded-proto") == "https" else ""
            cookie = f"{self._name}={value}; {flags}{secure}"
            return HTMLResponse(
                status_code=303, headers=_NO_STORE | {"location": there, "set-cookie": cookie}
            )
        if await self._slowed_down():
            return _document(401, _WRONG, self._form(there))
        answer = _document(429, _CROWD, self._form(there))
        answer.headers["retry-after"] = "60"
        return answer

    def _form(self, there: str) -> str:
        link = f'<p><a href="{public_statement.PATH}">What is asked of your device</a></p>'
        more = link if self._public else ""
        return f"""<form method="post" action="{LOGIN}">
<input type="hidden" name="there" value="{html.escape(_own_path(there))}">
<label>Token <input type="password" name="token" required autofocus autocomplete="current-password"></label>
<button>Open the page</button>
</form><p>The person who started the page has it, in the file that --token-file names.</p>{more}"""

    async def _judge_program(self, token: str, scope: Any, receive: Any, send: Any) -> None:
        """Serve a program's request, which contains the token itself; it gets no cookie."""
        if self._tokens and (name := self._tokens.name_of(token)) is not None:
            self._note(name)
            return await self._application(scope, receive, send)
        status, words = (401, _WRONG) if await self._slowed_down() else (429, _CROWD)
        return await _refuse(scope, receive, send, status, words)

    async def _slowed_down(self) -> bool:
        """Delay the answer to a wrong token; return False at once if too many are delayed already."""
        if self._waiting >= _MOST_WRONG:
            return False
        self._waiting += 1
        try:
            await asyncio.sleep(_WRONG_S)
        finally:
            self._waiting -= 1
        return True


def _cookie_value(token: str) -> str:
    return hmac.new(token.encode(), b"the page's cookie", hashlib.sha256).hexdigest()


def _while_let_in(is_let_in: Callable[[], bool], receive: Any, send: Any) -> tuple[Any, Any]:
    """Return a WebSocket's receive and send that close it once its reader's token is revoked."""
    is_over = False

    async def send_checked(message: Any) -> None:
        nonlocal is_over
        if is_over:
            return
        if not is_let_in():
            is_over, message = True, {"type": "websocket.close", "code": 1008, "reason": _WRONG}
        await send(message)

    async def receive_checked() -> Any:
        message = await receive()
        return message if is_let_in() else {"type": "websocket.disconnect", "code": 1008}

    return receive_checked, send_checked


def _without_token(request: HTTPConnection) -> tuple[str | None, str]:
    """Return the token in a request's address, and the address without it."""
    query = request.query_params.multi_items()
    rest = urlencode([(name, value) for name, value in query if name != "token"])
    there = quote(request.scope["path"]) + (f"?{rest}" if rest else "")
    return next((value for name, value in query if name == "token"), None), there


def _own_path(there: str) -> str:
    """Return a path on this page for any requested target, so that a login never redirects elsewhere."""
    parts = urlsplit(there.replace("\\", "/"))
    if parts.scheme or parts.netloc or not there.startswith("/") or there.startswith("//"):
        return "/"
    return quote(there, safe="/?&=%+:@!$'()*,;~-._")


def _document(status: int, words: str, more: str = "") -> Response:
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Hushmote</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 32rem; margin: 15vh auto 0; padding: 0 1rem }}
input, button {{ font: inherit; padding: .4rem .6rem }}
</style></head><body><main><h1>Hushmote</h1><p>{html.escape(words)}</p>{more}</main></body></html>
"""
    return HTMLResponse(text, status, _NO_STORE)


async def _refuse(scope: Any, receive: Any, send: Any, status: int, words: str, more: str = "") -> None:
    if scope["type"] == "websocket":
        return await send({"type": "websocket.close", "code": 1008, "reason": words[:60]})  # like HTTP's 403
    programs = scope["path"].startswith(("/api/", "/v1/"))  # paths that programs request
    answer = (
        PlainTextResponse(f"{words}\n", status, _NO_STORE) if programs else _document(status, words, more)
    )
    return await answer(scope, receive, send)
