"""The interpreters on this machine that can run board code: CPython and every MicroPython."""

import shutil

from hushmote.fleet.provisioning import interpreters
from hushmote.fleet.provisioning.board_runtimes import CPYTHON, Runtime


def runtimes_here() -> list[Runtime]:
    """Return CPython and the MicroPythons from $HUSHMOTE_MICROPYTHON, the clone's .rig/ and PATH."""
    runtimes = [CPYTHON, *(Runtime(name, argv) for name, argv in interpreters.commands())]
    rig = interpreters.rig_folder()
    node = shutil.which("node")
    if rig is not None and node and (rig / "wasm" / "run_wasm.mjs").exists():
        runtimes.append(Runtime("wasm", (node, str(rig / "wasm" / "run_wasm.mjs"))))
    return runtimes
