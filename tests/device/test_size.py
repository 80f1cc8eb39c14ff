"""Compiled board files stay within the documented flash size."""

from pathlib import Path

import pytest

from hushmote.device import ldp_client
from hushmote.fleet.provisioning.usb import compile_mpy

FILE = Path(ldp_client.__file__)
MAX_BYTES = {path.stem: 1_500 for path in sorted(FILE.parent.glob("ldp_*.py"))} | {
    "ldp_client": 13_312,
    "ldp_log": 900,
}
ANY_BOARD = 6  # sys.implementation._mpy; without native code, all architectures have the same bytes


@pytest.mark.parametrize("name", MAX_BYTES)
def test_compiled_files_leave_room_on_board(name: str):
    assert len(compile_mpy(FILE.with_stem(name), ANY_BOARD, f"{name}.py")) <= MAX_BYTES[name]
