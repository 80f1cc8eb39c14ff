"""Power cuts at every operation of a flash without a file system; broken clients must fail."""

import board_lifetime
import broken_clients
import flash_model
import on_device
from ldp_client import Client
from littlefs_cuts import STEP

# Thousands of lifetimes, so run only code compiled for boards, on the runtime that is most like a board.
NEEDS = ("urandom", "fast", "littlefs", "memory", "compiled", "float32")
HEAP = "512k"

_raw = flash_model.RawFlash()


def test_client_survives_every_cut():
    operations, uncut = board_lifetime.operations(_raw, Client)
    assert operations > 80, operations
    assert uncut.broken == {}, uncut.broken
    tally = board_lifetime.every_cut(_raw, Client, "raise", step=STEP)
    print("CUTS", _raw.name, "raise", operations, tally.cuts, tally.failures(), sep="|")
    assert tally.cuts * STEP >= 3 * operations, tally.cuts
    assert tally.broken == {}, tally.broken


def test_client_survives_failed_write_followed_by_cut():
    tally = board_lifetime.every_blip(_raw, Client, 2, step=STEP)
    print("BLIPS", _raw.name, tally.cuts, tally.failures(), sep="|")
    assert tally.cuts * STEP > 480, tally.cuts
    assert tally.broken == {}, tally.broken


def test_in_place_slots_lock_board_and_never_overspend():
    medium = flash_model.RawFlash("raw NOR flash, in place", flash_model.SlotsInPlace)
    tally = board_lifetime.every_cut(medium, Client, "raise", step=STEP)
    print("IN PLACE", tally.cuts, tally.failures(), sep="|")
    assert list(tally.broken) == ["the board is locked: the ledger is damaged; provision again"], tally.broken


def finds(tally, control):
    print("CONTROL", control.__name__, _raw.name, tally.cuts, tally.failures(), tally.broken, sep="|")
    assert tally.failures() > 0, control


def test_detects_broken_clients():
    for control in broken_clients.CUT_CONTROLS:
        finds(board_lifetime.every_cut(_raw, control, "raise", ("none",), min(STEP, 3)), control)
    for control in broken_clients.BLIP_CONTROLS:
        finds(board_lifetime.every_blip(_raw, control, 4, ("none",), min(STEP, 3)), control)


on_device.run(globals())
