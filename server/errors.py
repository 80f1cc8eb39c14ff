"""The error that a user of `hushmote provision` can put right."""

from __future__ import annotations


class ProvisionError(ValueError):
    """Settings, a folder or a certificate that cannot be made or used; the text says what is right."""
