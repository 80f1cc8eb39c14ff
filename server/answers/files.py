"""The folders that results are written to."""

import os
from pathlib import Path

from ..errors import UsageError, refusing


def output_folder(path: Path) -> None:
    """Create the folder for results before they are calculated.

    Raises:
        UsageError: If nothing can be written there.
    """
    with refusing(UsageError, f"make the folder {path}"):
        path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise UsageError(f"cannot write into the folder {path}")
