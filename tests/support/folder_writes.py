"""Record a client's writes to its folder, and check the folder after power cuts.

    python -m folder_writes STEPS FOLDER [LIBRARY]

STEPS names a constant in this module. LIBRARY is the compiled clients/c/posix/folder.c; without it the Python
client writes. The file `acknowledged` holds the number of the last step whose write returned.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import numpy as np
from enumeration import POLICY, memory
from write_log import ACKNOWLEDGED, Kind, Recording, power_cuts, record

from hushmote.device.kept_experiments import KeptExperiments
from hushmote.device.ldp_client import Client, FileStorage

Steps = list[tuple[str, bytes]]  # names and their new contents, b"" to remove them

LEDGER: Steps = [(f"ledger{i % 2}", bytes([i]) * 700) for i in range(1, 7)]
KEPT: Steps = [("e", b"1" * 700), ("f", b"2"), ("e", b"3" * 900), ("e", b""), ("f", b""), ("e", b"6")]
CUTS_SEED = 5
_KEPT_ALIVE: list[ctypes.c_char_p] = []  # the library holds pointers to these


def assert_survives_power_cuts(steps: str, folder: Path, *library: Path) -> None:
    """Check that after a power cut each file is either old or new, and that acknowledged writes are kept."""
    recording = record(folder, "-m", "folder_writes", steps, str(folder), *map(str, library))
    states = list(accumulate(globals()[steps], _after, initial={}))
    seen = set[int]()
    for cut in power_cuts(recording, np.random.default_rng(CUTS_SEED), draws=2, more=1.0):
        acknowledged = int(cut.acknowledged or 0)
        files = {name: data for name, data in cut.files.items() if not name.endswith(".new")}
        if (
            steps == "KEPT" and not library
        ):  # KeptExperiments puts a serial before the data and a CRC after it
            files = {name: data[4:-4] for name, data in files.items()}
        assert files in states[acknowledged : acknowledged + 2], str(cut)
        seen.add(acknowledged)
    assert seen == set(range(len(states)))


def assert_syncs_every_change(folder: Path, *library: Path) -> None:
    """Check that a new folder's parent is synced, and the folder after each removal, even a repeated one."""
    steps: Steps = [("e", b"1"), ("e", b""), ("e", b"")]
    code = "import folder_writes as w; write = w.open_writer(*{}); [write(*step) for step in {}]"
    arguments = ("KEPT", str(folder), *map(str, library))
    folder.parent.mkdir()
    parent = record(folder.parent, "-c", code.format(arguments, steps[:1]))
    assert Kind.FOLDER_SYNCED in _kinds_in(parent, folder.parent)
    removed = record(folder, "-c", code.format(arguments, steps[1:]))
    assert _kinds_in(removed, folder) == [Kind.UNLINKED, Kind.FOLDER_SYNCED, Kind.FOLDER_SYNCED]


def _kinds_in(recording: Recording, folder: Path) -> list[Kind]:
    """Return the kinds of changes, except those of other folders."""
    inode = folder.stat().st_ino
    return [o.kind for o in recording.operations if o.kind is not Kind.FOLDER_SYNCED or o.inode == inode]


def _after(files: dict[str, bytes], step: tuple[str, bytes]) -> dict[str, bytes]:
    name, data = step
    return {n: d for n, d in (files | {name: data}).items() if d}


def open_writer(steps: str, folder: str, library: str | None = None) -> Callable[[str, bytes], object]:
    """Return a function that writes a file, or removes it if its data is empty."""
    if library is None and steps == "KEPT":
        client = Client(POLICY, memory(), device_id="d", fleet="home")
        return KeptExperiments(client, folder)._write
    if library is None:
        storage = FileStorage(folder)
        return lambda name, data: storage.write(int(name[-1]), data)
    port = ctypes.CDLL(library)
    root = folder if steps == "LEDGER" else os.path.dirname(folder)  # kept experiments are in experiments/
    _KEPT_ALIVE.append(ctypes.c_char_p(root.encode()))
    context = ctypes.create_string_buffer(4096)
    assert port.hushmote_posix_open(context, _KEPT_ALIVE[-1]) == 0

    def write(name: str, data: bytes) -> None:
        size = ctypes.c_size_t(len(data))
        if steps == "LEDGER":
            assert port.hushmote_posix_write(context, int(name[-1]), data, size) == 0
        else:
            assert port.hushmote_posix_write_kept(context, name.encode(), data, size) == 0

    return write


def _work(steps: str, folder: str, library: str | None = None) -> None:
    write = open_writer(steps, folder, library)
    acknowledged = os.open(f"{folder}/{ACKNOWLEDGED}", os.O_WRONLY | os.O_CREAT)
    for number, (name, data) in enumerate(globals()[steps], 1):
        write(name, data)
        os.pwrite(acknowledged, str(number).encode(), 0)


if __name__ == "__main__":
    _work(*sys.argv[1:])
