"""A MicroPython on this machine with the features that a test needs, and modules from firmware_tests."""

import functools
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def find_runtime(*features: str) -> tuple[str, ...]:
    """Return the command of the first MicroPython with sockets and these features; skip if there is none."""
    for install in (False, True):
        for runtime in _find(install)[0]:
            if runtime.features.issuperset({"socket", "heap", "mpy", *features}):
                return runtime.argv
    needs = " and ".join(("sockets", *features))
    reasons = "; ".join(f"{m.name}: {m.reason}, {m.command}" for m in _find(True)[1])
    pytest.skip(f"no MicroPython with {needs} ({reasons})")


@functools.cache  # so that each test does not retry an unavailable runtime
def _find(install: bool) -> Any:
    folder = str(ROOT / "firmware_tests")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("runtimes").find(install=install)


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
