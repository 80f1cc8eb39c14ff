"""Access control for everything that the page serves, including WebSockets, the board and the door.

Without a token, only browsers on this machine are admitted, and only under this machine's names, so that a
foreign site whose name resolves to this machine (DNS rebinding) is refused. With a token, browsers with the
token's cookie are admitted. Requests from a trusted proxy, which authenticates readers itself, need no token.
"""

import asyncio
import contextlib
import functools
import hashlib
import hmac
import html
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from ..server.service import log_files
from ..server.service.audit_log import AuditLog, AuditLogError
from ..server.service.http_access import bearer, host_name, is_loopback, is_own_page
from ..server.service.tokens import Tokens
from . import public_statement
from .frame import header_parts, views_of
from .limits import SCRIPTED
from .relative import PREFIX, root

HEALTH = "/healthz"  # for process supervisors; it reveals nothing about the store
LOGIN = "/login"
_DELAY_S = 1.0  # delay before the answer to a wrong token
_MAX_DELAYED = 32  # wrong tokens delayed at the same time; further ones are refused immediately
_WRONG_TOKEN = "That is not this page's token."
_BUSY = "Too many people are trying a token at the same time; try again in a minute."
_FRAMES_NEED_HTTPS = "In a frame on another site, browsers keep the login only if this page uses HTTPS."
_MAX_FORM = 4096  # bytes
_COOKIE_DAYS = 30
_MAX_COOKIES = 8  # with the page's name in one request
_NO_STORE = {"cache-control": "no-store"}
_LOCAL_READER = "this machine"  # the reader's name on a page without tokens
_REMOTE_USER = "x-remote-user-name"  # the header in which Home Assistant's ingress names the reader
_MAX_NAME = 64  # characters
_PROXY_HEADERS = ("forwarded", "via", "x-real-ip")  # besides all X-Forwarded headers
_LOG_INTERVAL_S = 3600.0  # interval before the same reader is logged again

log = logging.getLogger(__name__)


class PageAccess:
    """An ASGI application that passes admitted readers' requests to another application.

    Args:
        application: The application behind the access control.
        tokens: The valid tokens; None to admit only this machine's readers.
        port: The page's port, which is part of the cookie's name.
        public: The statement that anyone may read, or None.
        audit_log: Records who opened the page.
        in_frames: Whether other sites may show the page in a frame.
        trusted_proxy: The IP address of a proxy that authenticates readers, or None. Without tokens, only
            its requests are admitted.
    """

    def __init__(
        self,
        application: Any,
        tokens: Tokens | None,
        port: int,
        public: public_statement.PublicStatement | None = None,
        audit_log: AuditLog | None = None,
        in_frames: bool = False,
        trusted_proxy: str | None = None,
    ) -> None:
        self._application = application
        self._public = public
        self._tokens = tokens
        self._audit_log = audit_log or AuditLog(None)
        self._in_frames = in_frames
        self._trusted_proxy = trusted_proxy
        self._last_opened_s: dict[str, float] = {}
        self._delayed = 0
        self._cookie_name = f"hushmote_{port}"  # browsers store cookies by host, regardless of the port

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
        if self._public and public_statement.is_log(scope):
            answer = await self._public.log.answer(scope["path"].removeprefix(log_files.PATH))
            return await answer(scope, receive, send)
        if self._tokens is None or self._is_trusted(request):
            self._log_opening(self._untokened_reader(request))
            return await self._application(scope, receive, send)
        is_login = scope["type"] == "http" and scope["path"] == LOGIN
        if is_login and scope["method"] == "POST":
            answer = await self._log_in(request, receive)
            return await answer(scope, receive, send)
        token, target = _split_token(request)
        if (name := self._reader(request)) is not None:
            self._log_opening(name)
            if is_login and scope["method"] == "GET" and token is None:
                return await _redirect(target)(scope, receive, send)
            if scope["type"] == "websocket":
                receive, send = _while_admitted(lambda: self._reader(request) == name, receive, send)
            return await self._application(scope, receive, send)
        if (program_token := bearer(request.headers)) is not None:
            return await self._answer_program(program_token, scope, receive, send)
        if scope["type"] == "http" and scope["method"] == "GET" and token is not None:
            answer = await self._answer_token(token, target, request)
            return await answer(scope, receive, send)
        document = self._form_document(401, "This page needs a token.", target, request)
        return await _refuse(scope, receive, send, 401, "This page needs a token.", document)

    def _reader(self, request: HTTPConnection) -> str | None:
        """Return the name of the reader whose token matches a request's cookie, or None."""
        # Pages under different paths of one host may have the same port, so there may be several cookies.
        pairs = (pair.strip().partition("=") for pair in request.headers.get("cookie", "").split(";"))
        cookies = [value.encode() for name, _, value in pairs if name == self._cookie_name]
        reader = None
        for name, token in self._tokens.current().items() if self._tokens else ():
            expected = _cookie_value(token).encode()
            if any(hmac.compare_digest(cookie, expected) for cookie in cookies[:_MAX_COOKIES]):
                reader = name
        return reader

    def _log_opening(self, name: str) -> None:
        """Record, at most once an hour, that a reader has opened the page."""
        now = time.monotonic()
        if now - self._last_opened_s.get(name, float("-inf")) < _LOG_INTERVAL_S:
            return
        self._last_opened_s[name] = now
        try:
            self._audit_log.note(name, "open page")
        except AuditLogError as e:
            log.error("%s", e)

    def _is_trusted(self, request: HTTPConnection) -> bool:
        """Return whether a request comes from the trusted proxy."""
        return self._trusted_proxy is not None and _peer(request) == self._trusted_proxy

    def _untokened_reader(self, request: HTTPConnection) -> str:
        """Return the name of a reader without a token, for the log."""
        if not self._is_trusted(request):
            return _LOCAL_READER
        name = request.headers.get(_REMOTE_USER, "").encode("latin-1").decode("utf-8", "replace")
        return "".join(filter(str.isprintable, name))[:_MAX_NAME] or f"proxy {self._trusted_proxy}"

    def _refusal(self, request: HTTPConnection) -> str:
        """Return the reason to refuse a request, based on its headers and address, or ""."""
        if self._tokens is None and self._trusted_proxy is not None and not self._is_trusted(request):
            return "This page is available only through the proxy that was given to --trusted-proxy."
        is_open = self._tokens is None and self._trusted_proxy is None
        if is_open and not is_loopback(host_name(request.headers)):
            return (
                "This page is available only on this machine, at http://127.0.0.1 or http://localhost. To "
                "use another name, start the page with --token-file."
            )
        if is_open and _is_forwarded(request):
            return (
                "This request came through a proxy, which may pass on requests from other machines. To use a "
                "proxy, start the page with --token-file."
            )
        writes = request.scope.get("method") not in ("GET", "HEAD")  # a WebSocket has no method
        # Non-browser clients send no Origin header and only their own cookies.
        if writes and not is_own_page(request.headers):
            return (
                "This request came from another site's page, or through a proxy that does not pass on the "
                "Host header."
            )
        return ""

    async def _log_in(self, request: HTTPConnection, receive: Any) -> Response:
        body = b""
        with contextlib.suppress(ClientDisconnect):
            async for chunk in Request(request.scope, receive).stream():
                body += chunk
                if len(body) > _MAX_FORM:
                    break
        form = parse_qs(body[:_MAX_FORM].decode("utf-8", "replace"))
        token, target = form.get("token", [""])[0].strip(), form.get("there", ["/"])[0]
        return await self._answer_token(token, target, request)

    async def _answer_token(self, token: str, target: str, request: HTTPConnection) -> Response:
        target = _local_path(target)
        if root(request.scope) != ".":
            # A browser keeps a cookie without a path for the folder of the address that sets it. That must
            # be the page's root, under whatever path a proxy serves it.
            return _redirect(f"{LOGIN}?{urlencode({'there': target, 'token': token})}")
        name = self._tokens and self._tokens.name_of(token)
        if self._tokens and name is not None:
            value = _cookie_value(self._tokens.current().get(name, ""))
            flags = f"HttpOnly; {self._same_site(self._is_https(request))}; Max-Age={_COOKIE_DAYS * 86_400}"
            answer = _redirect(target)
            answer.headers["set-cookie"] = f"{self._cookie_name}={value}; {flags}"
            return answer
        if await self._delay_answer():
            return self._form_document(401, _WRONG_TOKEN, target, request)
        answer = self._form_document(429, _BUSY, target, request)
        answer.headers["retry-after"] = "60"
        return answer

    @staticmethod
    def _is_https(request: HTTPConnection) -> bool:
        """Return whether the browser uses HTTPS: the first of the schemes that several proxies append."""
        return request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower() == "https"

    def _same_site(self, is_https: bool) -> str:
        """Return the cookie's flags that decide on whose requests a browser sends it.

        In a frame on another site, browsers send only cookies for any site, over HTTPS; a partitioned cookie
        is valid only in frames of the site where the reader gave the token.
        """
        if not is_https:
            return "SameSite=Strict"
        return "SameSite=None; Secure; Partitioned" if self._in_frames else "SameSite=Strict; Secure"

    def _form_document(self, status: int, message: str, target: str, request: HTTPConnection) -> Response:
        """Return a document with a message and the form for the token."""
        folder = root(request.scope)
        link = f'<p><a href="{folder}{public_statement.PATH}">What is asked of your device</a></p>'
        statement_link = link if self._public else ""
        note = "" if self._is_https(request) or not self._in_frames else f"<p>{_FRAMES_NEED_HTTPS}</p>"
        form = f"""<form method="post" action="{folder}{LOGIN}" class="frame-form">
<input type="hidden" name="there" value="{html.escape(_local_path(target))}">
<label>Token <input type="password" name="token" required autofocus autocomplete="current-password"></label>
<button>Open the page</button>
</form><p>The token is in the file that was given to --token-file.</p>{note}{statement_link}"""
        views = views_of(has_statement=self._public is not None)
        return _document(status, "Log in", message, header_parts(folder, views), form)

    async def _answer_program(self, token: str, scope: Any, receive: Any, send: Any) -> None:
        """Serve a program's request, which contains the token itself and receives no cookie."""
        if self._tokens and (name := self._tokens.name_of(token)) is not None:
            self._log_opening(name)
            return await self._application(scope, receive, send)
        status, message = (401, _WRONG_TOKEN) if await self._delay_answer() else (429, _BUSY)
        return await _refuse(scope, receive, send, status, message)

    async def _delay_answer(self) -> bool:
        """Delay the answer to a wrong token; return False immediately if too many are already delayed."""
        if self._delayed >= _MAX_DELAYED:
            return False
        self._delayed += 1
        try:
            await asyncio.sleep(_DELAY_S)
        finally:
            self._delayed -= 1
        return True


def _peer(request: HTTPConnection) -> str:
    """Return the IP address that a request comes from, or ""; the server reads no headers for it."""
    return request.client.host if request.client else ""


def _is_forwarded(request: HTTPConnection) -> bool:
    """Return whether a proxy has forwarded a request, perhaps with this machine's name as its Host.

    nginx adds no header by default, but uses HTTP/1.0, which browsers do not.
    """
    is_old = request.scope.get("http_version") == "1.0"
    return is_old or any(
        name in _PROXY_HEADERS or (name.startswith("x-forwarded-") and name != PREFIX)
        for name in request.headers
    )


def _cookie_value(token: str) -> str:
    return hmac.new(token.encode(), b"the page's cookie", hashlib.sha256).hexdigest()


def _while_admitted(is_admitted: Callable[[], bool], receive: Any, send: Any) -> tuple[Any, Any]:
    """Wrap a WebSocket's receive and send to close it when the reader's token is revoked."""
    is_closed = False

    async def send_checked(message: Any) -> None:
        nonlocal is_closed
        if is_closed:
            return
        if not is_admitted():
            is_closed, message = True, {"type": "websocket.close", "code": 1008, "reason": _WRONG_TOKEN}
        await send(message)

    async def receive_checked() -> Any:
        message = await receive()
        return message if is_admitted() else {"type": "websocket.disconnect", "code": 1008}

    return receive_checked, send_checked


def _split_token(request: HTTPConnection) -> tuple[str | None, str]:
    """Return the token in a request's URL, and the URL to show after the login."""
    query = request.query_params.multi_items()
    token = next((value for name, value in query if name == "token"), None)
    if request.scope["path"] == LOGIN:
        return token, _local_path(request.query_params.get("there", "/"))
    rest = urlencode([(name, value) for name, value in query if name != "token"])
    return token, quote(request.scope["path"]) + (f"?{rest}" if rest else "")


def _local_path(target: str) -> str:
    """Return the target as a path on this page, or "/", so that a login never redirects elsewhere."""
    parts = urlsplit(target.replace("\\", "/"))
    if parts.scheme or parts.netloc or not target.startswith("/") or target.startswith("//"):
        return "/"
    return quote(target, safe="/?&=%+:@!$'()*,;~-._")


def _redirect(target: str) -> Response:
    return HTMLResponse(status_code=303, headers=_NO_STORE | {"location": target})


def _document(status: int, title: str, message: str, header: str, form: str = "") -> Response:
    """Return a document in the page's frame that loads no other files, because those need a token.

    Args:
        status: The HTTP status.
        title: The title and heading.
        message: A sentence.
        header: The contents of the header as HTML.
        form: The rest of the content as HTML.
    """
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title} - Hushmote</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<style>body {{ margin: 0 }}
{_file("frame.css")}</style></head>
<body><header class="frame-header">
{header}</header>
<script>{_file("page.js")}</script>
<main id="main" tabindex="-1" class="frame-main"><h1 class="heading-1">{title}</h1>
<p>{html.escape(message)}</p>{form}</main></body></html>
"""
    return HTMLResponse(text, status, _NO_STORE | {SCRIPTED: "page"})


@functools.cache
def _file(name: str) -> str:
    return Path(__file__).with_name("static").joinpath(name).read_text(encoding="utf-8")


async def _refuse(
    scope: Any, receive: Any, send: Any, status: int, message: str, document: Response | None = None
) -> None:
    """Refuse a request with a message: in a document, or as plain text if only programs use the address."""
    if scope["type"] == "websocket":
        reason = message[:60]
        return await send({"type": "websocket.close", "code": 1008, "reason": reason})  # like HTTP's 403
    if scope["path"].startswith(("/api/", "/v1/")):
        answer = PlainTextResponse(f"{message}\n", status, _NO_STORE)
    else:
        answer = document or _document(status, "Not available", message, header_parts(root(scope), ()))
    return await answer(scope, receive, send)
