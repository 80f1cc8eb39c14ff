"""Output folders for results."""

import os
from pathlib import Path

from ..errors import UsageError, refusing


def output_folder(path: Path) -> None:
    """Create the output folder before the results are computed.

    Raises:
        UsageError: If the folder cannot be created or is not writable.
    """
    with refusing(UsageError, f"create the folder {path}"):
        path.mkdir(parents=True, exist_ok=True)
    if not os.access(path, os.W_OK):
        raise UsageError(f"cannot write into the folder {path}")
