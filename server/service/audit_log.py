"""A store's audit log: one JSON line per action, without device ids, addresses or readings."""

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
    """Raised when the audit log cannot be written; the message says why."""


class AuditLog:
    """A file to which lines are appended; without a path, there is no log.

    The file is opened for each line, so that it may be renamed at any time.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def check(self) -> None:
        """Check that the log can be written, before an action is performed.

        Raises:
            AuditLogError: If it cannot be written.
        """
        self._append(b"")

    def note(self, who: str, action: str, **facts: object) -> None:
        """Append an action to the log.

        Args:
            who: The name of the user who performs the action.
            action: The action's name.
            facts: Additional fields of the JSON line.

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
                _set_owner(file, self.path)
                os.write(file, line)  # in one write, because other processes append as well
            finally:
                os.close(file)


def _set_owner(file: int, path: Path) -> None:
    """Give a file that root has just created to its folder's owner, who also appends to it."""
    if os.name == "posix" and os.geteuid() == 0 and not os.fstat(file).st_size:
        owner = path.parent.stat()
        os.fchown(file, owner.st_uid, owner.st_gid)


def audit_log(store: str, environ: Mapping[str, str] | None = None) -> AuditLog:
    """Return a store's log: the file in HUSHMOTE_AUDIT_LOG, or a file next to a SQLite store.

    A PostgreSQL store has a log only if the variable is set.

    Args:
        store: The store's URL.
        environ: The environment variables; None for this process's.

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
    """Return the name of the user running this process, from the system rather than the environment."""
    if os.name != "posix":
        return getpass.getuser()
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
