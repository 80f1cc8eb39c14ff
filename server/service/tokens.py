"""Named tokens for the page and the door, reloaded when their file changes."""

import hmac
import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from ..errors import UsageError, refusing
from ..private_file import readable_by_others

_MIN_TOKEN = 16  # characters
_MAX_BYTES = 65_536
_DEFAULT_NAME = "token"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,32}", re.ASCII)
# A file may change twice within one tick of the file system's clock, so wait before trusting its time.
_UNSETTLED_S = 2.0
_Mark = tuple[int, ...]

log = logging.getLogger(__name__)


class Tokens:
    """Tokens by their holders' names."""

    def __init__(self, by_name: Mapping[str, str]) -> None:
        self._by_name = by_name

    def current(self) -> Mapping[str, str]:
        """Return the valid tokens by name."""
        return self._by_name

    def name_of(self, candidate: str | None) -> str | None:
        """Return a token holder's name, or None for a wrong token; the comparison takes constant time."""
        holder = None
        for name, token in self.current().items():
            if candidate is not None and hmac.compare_digest(candidate.encode(), token.encode()):
                holder = name
        return holder


class TokenFile(Tokens):
    """The tokens in a file that only its owner may read; a change takes effect at the next request.

    Each line is NAME TOKEN, or only a token without a name; # starts a comment. While the file cannot be
    read, all access is refused.

    Raises:
        UsageError: If the file cannot be read initially.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._fault = path, ""
        self._mark = self._current_mark()
        super().__init__(_read(path))

    def current(self) -> Mapping[str, str]:
        """Return the valid tokens by name, reloading the file if it has changed."""
        mark = self._current_mark()
        if mark != self._mark or not mark:
            self._mark = mark
            try:
                self._by_name = _read(self._path)
                self._fault = ""
            except UsageError as e:
                self._by_name = {}
                self._log_fault(f"{e}; all access is refused until then")
        return self._by_name

    def _log_fault(self, fault: str) -> None:
        if fault != self._fault:
            self._fault = fault
            log.error("%s", fault)

    def _current_mark(self) -> _Mark:
        """Return a value that changes with the file, or () if a change could go unnoticed."""
        try:
            status = os.stat(self._path)
        except OSError:
            return ()
        if time.time() - status.st_mtime < _UNSETTLED_S:
            return ()
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _read(path: Path) -> dict[str, str]:
    """Return the tokens by name; error messages never quote the file, because it contains secrets."""
    rule = f"{path} must contain a token, or NAME TOKEN on each line"
    try:
        with refusing(UsageError, f"read the token {path}"), open(path, encoding="utf-8-sig") as f:
            mode = os.fstat(f.fileno()).st_mode
            lines = f.read(_MAX_BYTES).splitlines()
    except UnicodeDecodeError:
        raise UsageError(rule) from None
    if readable_by_others(path, mode):
        raise UsageError(f"{path} can be read by others; run `chmod 600` on it")
    tokens: dict[str, str] = {}
    for words in (line.split() for line in lines if not line.lstrip().startswith("#")):
        if not words:
            continue
        name, token = words if len(words) == 2 else (_DEFAULT_NAME, " ".join(words))
        if _NAME.fullmatch(name) is None:
            raise UsageError(f"{rule}: a name must be 1 to 32 letters, digits, ., _ and -")
        if name in tokens or token in tokens.values():
            raise UsageError(f"{rule}, without duplicates")
        tokens[name] = check_token(token, path)
    if not tokens:
        raise UsageError(rule)
    return tokens


def check_token(token: str, path: Path) -> str:
    """Return a token read from a file.

    Raises:
        UsageError: If the token is easy to guess or to mistype.
    """
    if len(token) < _MIN_TOKEN or not all("!" <= c <= "~" for c in token):
        raise UsageError(
            f"{path} must contain a token of {_MIN_TOKEN} or more letters and digits: openssl rand -hex 16"
        )
    return token
