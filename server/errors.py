"""The errors whose text is for the user: one line that says what was wrong and what would be right."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class HushmoteError(Exception):
    """The base of all errors but the board's own, LDPError.

    The command line prints the text as one line and ends with status 1.
    """


class UsageError(HushmoteError):
    """Options or arguments that do not go together, or a file that cannot be written."""


class ProvisionError(HushmoteError):
    """Settings, a folder or a certificate that cannot be made or used; the text says what is right."""


@contextlib.contextmanager
def refusing(error: type[HushmoteError], action: str, exists: str | None = None) -> Iterator[None]:
    """Raise `error` with "cannot <action>: <reason>" for an OSError in the block.

    exists: the text where a file is there already, None for that of the system.
    """
    try:
        yield
    except OSError as e:
        there = exists if isinstance(e, FileExistsError) else None
        raise error(there or f"cannot {action}: {e.strerror}") from None
