"""The record of everything that a fleet's authority issued and revoked: JSON lines, in order.

{"name": "k3f9x1", "kind": "device", "serial": "1f...", "authority": "...", "until": "2036-..."}
{"revoke": "k3f9x1", "at": "2026-..."}       a device: everything it has and might get later
{"withdraw": "1f...", "at": "2026-..."}      one certificate

Forgetting a device rewrites its lines without its id; its certificates remain revoked by serial number.
"""

import datetime
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509

from ...server.errors import ProvisionError
from .authority import CertifiedKey, common_name

FORGOTTEN = "forgotten"
"""The kind of a credential whose device was forgotten."""


class JournalError(ProvisionError):
    """Raised if the journal cannot be read; the message names the damaged line and says what to do."""


@dataclass(frozen=True)
class Credential:
    """A certificate, or a device's login for the broker.

    Attributes:
        kind: "device", "broker", "aggregator", "door" or FORGOTTEN, which has no name.
        serial: Hex digits; None for a login.
        authority: Common name of the root that signed it or, for a login, that the device uses to check the
            broker.
        until: When the certificate expires.
        revoked: When the certificate was revoked, or the login removed.
    """

    name: str
    kind: str
    serial: str | None
    authority: str
    until: datetime.datetime | None
    revoked: datetime.datetime | None = None


@dataclass(frozen=True)
class Journal:
    """The current content of all lines.

    Attributes:
        credentials: The credentials, in order of issue.
        revoked: Device id to the time of revocation.
    """

    credentials: tuple[Credential, ...]
    revoked: Mapping[str, datetime.datetime]

    def valid(self, kind: str, now: datetime.datetime) -> list[Credential]:
        """Return the credentials of a kind that are neither revoked nor expired."""
        return [
            c
            for c in self.credentials
            if c.kind == kind and c.revoked is None and (c.until is None or c.until > now)
        ]


def parse(text: bytes, where: str) -> Journal:
    """Parse a journal file's bytes; raises JournalError with the damaged line's number."""
    credentials: list[Credential] = []
    revoked: dict[str, datetime.datetime] = {}
    for number, row in enumerate(text.splitlines(), 1):
        try:
            values = json.loads(row)
            if "name" in values:
                until = values["until"] and datetime.datetime.fromisoformat(values["until"])
                kind, serial = values["kind"], values["serial"]
                credentials.append(Credential(values["name"], kind, serial, values["authority"], until))
                continue
            at = datetime.datetime.fromisoformat(values["at"])
            if "revoke" in values:
                revoked.setdefault(values["revoke"], at)
            serial, name = values.get("withdraw", ""), values.get("revoke", "")
            for i, c in enumerate(credentials):
                if c.revoked is None and (c.serial == serial or (c.kind, c.name) == ("device", name)):
                    credentials[i] = replace(c, revoked=at)
        except (ValueError, KeyError, TypeError):
            raise JournalError(
                f"{where} is damaged in line {number}: restore it from a backup, or correct it"
            ) from None
    return Journal(tuple(credentials), revoked)


def forget(journal: Journal, text: bytes, device: str) -> bytes:
    """Return a journal's bytes without a revoked device's id; its certificates keep serials and dates."""
    rows = [row for row in text.splitlines(keepends=True) if not _names(json.loads(row), device)]
    for c in journal.credentials:
        if (c.kind, c.name) == ("device", device) and c.serial and c.until and c.revoked:
            fields = {"serial": c.serial, "authority": c.authority, "until": c.until.isoformat()}
            rows.append(line(name="", kind=FORGOTTEN, **fields))
            rows.append(line(withdraw=c.serial, at=c.revoked.isoformat()))
    return b"".join(rows)


def _names(row: Mapping[str, str | None], device: str) -> bool:
    return row.get("revoke") == device or (row.get("kind"), row.get("name")) == ("device", device)


def line(**values: str | None) -> bytes:
    """Return a line with these fields, such as revoke and at."""
    return json.dumps(values).encode() + b"\n"


def certificate_line(issued: CertifiedKey, kind: str) -> bytes:
    """Return the line for a certificate."""
    serial, until = issued.serial, issued.until.isoformat()
    return line(name=issued.name, kind=kind, serial=serial, authority=issued.issuer, until=until)


def login_line(device: str, root: x509.Certificate) -> bytes:
    """Return the line for a device's login for the broker."""
    return line(name=device, kind="device", serial=None, authority=common_name(root), until=None)


def add(path: Path, lines: bytes) -> None:
    """Append lines to an existing file; they are on disk when this returns. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    with os.fdopen(fd, "ab") as f:
        f.write(lines)
        f.flush()
        os.fsync(f.fileno())
