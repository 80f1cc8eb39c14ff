"""How long the file that an auditor reads may be, and how large it is on a board."""

from pathlib import Path

import pytest

from hushmote.device import ldp_client
from hushmote.server.provisioning.usb import compile_mpy

FILE = Path(ldp_client.__file__)
MOST_LINES = 1_000
MOST_BYTES = 11_264
ARCHITECTURES = {"armv6m": 6 | 4 << 10, "xtensawin": 6 | 10 << 10}  # sys.implementation._mpy of such boards


def test_the_file_is_read_in_half_an_hour():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_compiled_file_leaves_room_on_a_board(architecture: str):
    assert len(compile_mpy(FILE, ARCHITECTURES[architecture], FILE.name)) <= MOST_BYTES
