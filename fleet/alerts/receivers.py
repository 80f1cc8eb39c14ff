"""The receivers of alerts, read from a file or the environment, and how a message is sent to one.

Their addresses are Apprise's, and most contain passwords or tokens. So they are never printed or logged:
messages name a receiver by its line, and the store by a hash of its address without passwords.
"""

import hashlib
import logging
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...server import private_file
from ...server.errors import UsageError, os_reason
from ...server.extras import require

ENVIRONMENT_VARIABLE = "HUSHMOTE_NOTIFY"
_MAX_BYTES = 64 << 10
_MAX_RECEIVERS = 50
# Apprise's text format: an address, with tags before it that are not used here.
_LINE = re.compile(r"(?:[a-z0-9,_: \t-]+=\s*)?(?P<url>(?P<schema>[a-z0-9]{1,32})://\S.*)", re.IGNORECASE)
_STATUS = re.compile(r"error=(\d{3})\b")


@dataclass(frozen=True)
class Receiver:
    """An address that alerts are sent to.

    Attributes:
        line: Its line in the file, from 1.
        service: Apprise's name of the service, such as "E-Mail".
        id: A hash of the address without passwords, 16 hex digits, with which the store remembers what was
            sent.
        url: The address.
    """

    line: int
    service: str
    id: str
    url: str = field(repr=False)


def load_receivers(path: Path | None, environ: Mapping[str, str] | None = None) -> tuple[Receiver, ...]:
    """Return the receivers in a file or, without a file, in HUSHMOTE_NOTIFY; () if neither is given.

    Raises:
        UsageError: If the file cannot be read, others can read it, or a line is not an address. The message
            names the line and never quotes it.
        ExtraMissing: If the extra is not installed.
    """
    text, where = _read(path, os.environ if environ is None else environ)
    return () if text is None else parse_receivers(text, where)


def parse_receivers(text: str, where: str) -> tuple[Receiver, ...]:
    """Return the receivers in a text; `where` is its name for messages, and errors as in load_receivers()."""
    receivers, ids = list[Receiver](), Counter[str]()
    for line, entry in enumerate(map(str.strip, text.splitlines()), start=1):
        if not entry or entry[0] in "#;":
            continue
        match = _LINE.fullmatch(entry)
        service = None if match is None else _service(match["url"])
        if match is None or service is None:
            raise UsageError(
                f"line {line} of {where} is not an address that Apprise accepts: write one per line, such as "
                "ntfys://ntfy.example.org/topic"
            )
        shown = hashlib.sha256(service.url(privacy=True).encode()).hexdigest()[:14]
        ids[shown] += 1
        receivers.append(Receiver(line, service.service_name, f"{shown}{ids[shown]:02x}", match["url"]))
    if not receivers:
        raise UsageError(f"{where} has no addresses: write one per line, such as mailto://...")
    if len(receivers) > _MAX_RECEIVERS:
        raise UsageError(f"{where} has {len(receivers)} addresses; at most {_MAX_RECEIVERS} are allowed")
    return tuple(receivers)


def send(receiver: Receiver, title: str, text: str, html: str = "") -> str:
    """Send a message, and return "" once the service has accepted it, or else why it has not.

    Args:
        receiver: The receiver.
        title: The title, one line.
        text: The message, plain text.
        html: The same as an HTML document, for services that show HTML as it is, such as mail; or "".
    """
    apprise = _apprise()
    reasons = _Reasons()
    logger = logging.getLogger("apprise")
    logger.addHandler(reasons)
    try:
        service = _service(receiver.url)
        if service is None:
            return "its address is no longer accepted"
        as_html = html and service.schemas() & {"mailto", "mailtos"}
        body, form = (html, apprise.NotifyFormat.HTML) if as_html else (text, apprise.NotifyFormat.TEXT)
        target = apprise.Apprise()
        target.add(service)
        return "" if target.notify(body=body, title=title, body_format=form) else reasons.text
    except Exception as e:  # of any service; its message may contain the address
        return f"its service failed ({type(e).__name__})"
    finally:
        logger.removeHandler(reasons)


class _Reasons(logging.Handler):
    """Keeps what Apprise logs about a failure that is safe to show: a status, but no address."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "it was not accepted"

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if status := _STATUS.search(message):
            self.text = f"the server answered {status[1]}"
        elif "onnection" in message or "ocket" in message or "SMTP" in message:
            self.text = "the server cannot be reached, or refused the connection"


def _read(path: Path | None, environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the text with the addresses, and its name for messages."""
    if path is None:
        # An address has no spaces, and a service manager's settings have no line breaks.
        return "\n".join(environ.get(ENVIRONMENT_VARIABLE, "").split()) or None, ENVIRONMENT_VARIABLE
    try:
        with open(path, encoding="utf-8") as f:
            mode = os.fstat(f.fileno()).st_mode
            text = f.read(_MAX_BYTES + 1)
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text in UTF-8: write one address per line") from None
    except OSError as e:
        raise UsageError(f"cannot read the receivers {path}: {os_reason(e)}") from None
    if private_file.readable_by_others(path, mode):
        raise UsageError(f"{path} can be read by others; run `chmod 600` on it")
    if len(text) > _MAX_BYTES:
        raise UsageError(f"{path} is too long; it may have at most {_MAX_BYTES >> 10} KiB")
    return text, str(path)


def _apprise() -> Any:
    """Import Apprise, which is slow to load, and keep its log away from ours, because it quotes addresses."""
    require("apprise", "sending alerts")
    import apprise

    for name in ("apprise", "urllib3", "requests", "requests_oauthlib", "oauthlib"):
        logger = logging.getLogger(name)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    return apprise


def _service(url: str) -> Any:
    """Return Apprise's object for an address, or None if it is not valid."""
    apprise = _apprise()
    asset = apprise.AppriseAsset(app_id="Hushmote", app_desc="Hushmote", app_url="", async_mode=False)
    try:
        return apprise.Apprise.instantiate(url, asset=asset, suppress_exceptions=True)
    except Exception:  # its message contains the address
        return None
