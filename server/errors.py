"""The errors whose text is for the user: one line that says what was wrong and what would be right."""

from __future__ import annotations


class HushmoteError(Exception):
    """The base of all errors but the board's own, LDPError.

    The command line prints the text as one line and ends with status 1.
    """


class UsageError(HushmoteError):
    """Options or arguments that do not go together, or a file that cannot be written."""


class ProvisionError(HushmoteError):
    """Settings, a folder or a certificate that cannot be made or used; the text says what is right."""
