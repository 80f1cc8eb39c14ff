"""Real receivers of alerts: a webhook and a mail server, on free ports of 127.0.0.1."""

import email.message
import email.policy
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from aiosmtpd.controller import Controller

from hushmote.simulator.broker import free_port


class Webhook:
    """A receiver of Apprise's JSON messages, as a context manager.

    Attributes:
        messages: The messages received, oldest first.
        status: The answer to further messages; they count as received only if it is 200.
        before_answer: Called when a message has arrived, before it is answered.
    """

    def __init__(self, port: int = 0) -> None:
        self.messages: list[dict[str, Any]] = []
        self.status = 200
        self.before_answer: Callable[[], object] = lambda: None
        self.port = port or free_port()

    @property
    def url(self) -> str:
        return f"json://user:s3cretpassword@127.0.0.1:{self.port}/hook"

    @property
    def titles(self) -> list[str]:
        return [message["title"] for message in self.messages]

    def __enter__(self) -> "Webhook":
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if hook.status == 200:
                    hook.messages.append(json.loads(body))
                hook.before_answer()
                with suppress(OSError):  # the sender may be gone
                    self.send_response(hook.status)
                    self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Mails:
    def __init__(self) -> None:
        self.mails: list[email.message.EmailMessage] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.mails.append(email.message_from_bytes(envelope.content, policy=email.policy.default))  # type: ignore[arg-type]
        return "250 OK"


@contextmanager
def mail_server() -> Iterator[tuple[str, list[Any]]]:
    """Run a mail server; yield its address for Apprise, and the mails received."""
    handler, port = _Mails(), free_port()
    controller = Controller(handler, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield f"mailto://127.0.0.1:{port}/?from=fleet@example.org&to=ops@example.org", handler.mails
    finally:
        controller.stop()


def notify_file(folder: Path, *urls: str) -> Path:
    """Write a private file of receivers."""
    path = folder / "receivers.txt"
    path.write_text("".join(f"{url}\n" for url in urls))
    path.chmod(0o600)
    return path
