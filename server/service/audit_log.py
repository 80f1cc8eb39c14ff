"""The audit log of a store: one JSON line for each act, without device ids, addresses or readings."""

import datetime
import getpass
import json
import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import HushmoteError, refusing
from ..store.database import parse_url

VARIABLE = "HUSHMOTE_AUDIT_LOG"


class AuditLogError(HushmoteError):
    """Raised when the audit log cannot be written; the text says why."""


class AuditLog:
    """A file to which lines are appended; without a path no log is kept.

    It is opened for each line, so that it may be renamed at any time.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def check(self) -> None:
        """Check that the log can be written, before the act.

        Raises:
            AuditLogError: If it cannot be written.
        """
        self._append(b"")

    def note(self, who: str, action: str, **facts: object) -> None:
        """Append an act.

        Args:
            who: The name of the actor.
            action: The action.
            facts: Further fields.

        Raises:
            AuditLogError: If the log cannot be written.
        """
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = json.dumps({"at": at, "who": who, "action": action, **facts})
        self._append(line.encode("ascii") + b"\n")

    def _append(self, line: bytes) -> None:
        if self.path is None:
            return
        with refusing(AuditLogError, f"write the audit log {self.path}"):
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                _give_away(file, self.path)
                os.write(file, line)  # in one write, because other processes append as well
            finally:
                os.close(file)


def _give_away(file: int, path: Path) -> None:
    """Give a file that root has just created to the owner of its folder, who appends to it as well."""
    if os.name == "posix" and os.geteuid() == 0 and not os.fstat(file).st_size:
        owner = path.parent.stat()
        os.fchown(file, owner.st_uid, owner.st_gid)


def audit_log(store: str, environ: Mapping[str, str] | None = None) -> AuditLog:
    """Return the log of a store: HUSHMOTE_AUDIT_LOG, or a file beside an SQLite store.

    A PostgreSQL store has a log only if the variable names one.

    Args:
        store: The store's URL.
        environ: The environment; None for this process's.

    Raises:
        StoreError: If the URL is invalid.
    """
    if path := (os.environ if environ is None else environ).get(VARIABLE):
        return AuditLog(Path(path))
    url = parse_url(store)
    if url.get_backend_name() != "sqlite" or not url.database or url.database.startswith((":", "file:")):
        return AuditLog(None)
    return AuditLog(Path(f"{url.database}.audit.jsonl"))


def system_user() -> str:
    """Return the name of the user that runs this process, from the system and not from the environment."""
    if os.name != "posix":
        return getpass.getuser()
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
