"""Where results are written."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import UsageError


def output_folder(path: Path) -> Path:
    """Make a folder for results before they are worked out; raises UsageError where none can be written."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise UsageError(f"cannot make the folder {path}: {e.strerror}") from None
    if not os.access(path, os.W_OK):
        raise UsageError(f"cannot write into the folder {path}")
    return path
