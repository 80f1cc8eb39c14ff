"""How long the file that an auditor reads may be, and how large files are on a board."""

from pathlib import Path

import pytest

from hushmote.device import ldp_client
from hushmote.server.provisioning.usb import compile_mpy

FILE = Path(ldp_client.__file__)
MOST_LINES = 1_000
MOST_BYTES = {path.stem: 1_500 for path in sorted(FILE.parent.glob("ldp_*.py"))} | {"ldp_client": 11_264}
ANY_BOARD = 6  # its sys.implementation._mpy: without native code all architectures have the same bytes


def test_the_file_is_read_in_half_an_hour():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("name", MOST_BYTES)
def test_compiled_files_leave_room_on_a_board(name: str):
    assert len(compile_mpy(FILE.with_stem(name), ANY_BOARD, f"{name}.py")) <= MOST_BYTES[name]
