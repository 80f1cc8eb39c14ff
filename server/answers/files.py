"""Where results are written."""

import os
from pathlib import Path

from ..errors import UsageError, refusing


def output_folder(path: Path) -> None:
    """Make a folder for results before they are worked out; raises UsageError where none can be written."""
    with refusing(UsageError, f"make the folder {path}"):
        path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise UsageError(f"cannot write into the folder {path}")
