"""The optional modules that add mechanisms and reading types to a board's ldp_client.py."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...device import ldp_client
from .experiments import log_edges

DEVICE = Path(ldp_client.__file__).parent
"""The folder with the board files."""

_CORE = ("ldp_client", "ldp_p256", "ldp_log", "ldp_log_client", "ldp_log_policy")
_IMPORT = re.compile(rb"^\s*(?:from \. )?import (ldp_[a-z0-9_]+)", re.MULTILINE)


def shipped_files() -> dict[str, Path]:
    """Return the shipped files by short name, such as sw for device/ldp_sw.py."""
    paths = sorted(DEVICE.glob("ldp_*.py"))
    return {path.stem.removeprefix("ldp_"): path for path in paths if path.stem not in _CORE}


def needed_files(experiment: ldp_client.Experiment) -> dict[str, Path]:
    """Return the files that boards need for an experiment, by their names in `hushmote flash --with`.

    A custom mechanism is listed under its full name. The files that it imports are flashed with it and are
    not listed.
    """
    readings = (experiment, *vars(experiment).get("parts", ()))
    files = {"scale": DEVICE / "ldp_scale.py"} if any(map(log_edges, readings)) else {}
    words = {path: word for word, path in shipped_files().items()}
    tables: Mapping[str, Any] = vars(ldp_client)
    for setup, _ in (tables["TYPES"][experiment.type], tables["MECHANISMS"][experiment.mechanism]):
        path = Path(setup.__code__.co_filename)
        if path.stem not in (*_CORE, "ldp_scale"):  # ldp_scale supports all numbers, but few need it
            files[words.get(path, experiment.mechanism)] = path
    dependencies = {path for file in files.values() for path in with_imports(file.read_bytes())}
    return {word: path for word, path in files.items() if path not in dependencies}


def with_imports(source: bytes) -> list[Path]:
    """Return the shipped files that a board file imports, dependencies first.

    Args:
        source: The board file's source code.
    """
    files = shipped_files()
    paths: list[Path] = []
    for name in _IMPORT.findall(source):
        path = files.get(name.decode().removeprefix("ldp_"))
        if path is not None:
            paths += [file for file in (*with_imports(path.read_bytes()), path) if file not in paths]
    return paths
