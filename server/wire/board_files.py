"""The files beside ldp_client.py that enter further mechanisms and types: which there are, what they need."""

from __future__ import annotations

import re
from pathlib import Path

from ...device import ldp_client

DEVICE = Path(ldp_client.__file__).parent
"""The folder of the board's files."""

_CORE = ("ldp_client", "ldp_p256")
_IMPORT = re.compile(rb"^\s*(?:from \. )?import (ldp_[a-z0-9_]+)", re.MULTILINE)


def shipped() -> dict[str, Path]:
    """The shipped files by their words: sw for device/ldp_sw.py."""
    paths = sorted(DEVICE.glob("ldp_*.py"))
    return {path.stem.removeprefix("ldp_"): path for path in paths if path.stem not in _CORE}


def with_imports(source: bytes) -> list[Path]:
    """The shipped files that a board file imports, those first that others need."""
    files = shipped()
    found: list[Path] = []
    for name in _IMPORT.findall(source):
        path = files.get(name.decode().removeprefix("ldp_"))
        if path is not None:
            found += [needed for needed in (*with_imports(path.read_bytes()), path) if needed not in found]
    return found
