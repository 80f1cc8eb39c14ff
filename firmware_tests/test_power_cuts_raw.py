"""The power fails at every operation of a flash without a file system; clients with mistakes must fail."""

import board_life
import broken_clients
import flash_model
import on_device
from ldp_client import Client

# Some thousand lives: as compiled for boards, on the runtime that is most like one.
NEEDS = ("urandom", "fast", "littlefs", "room", "compiled", "float32")
HEAP = "512k"

_raw = flash_model.RawFlash()


def test_the_client_survives_every_cut():
    operations, uncut = board_life.operations(_raw, Client)
    assert operations > 100, operations
    assert uncut.broken == {}, uncut.broken
    tally = board_life.every_cut(_raw, Client, "raise")
    print("CUTS", _raw.name, "raise", operations, tally.cuts, tally.failures(), sep="|")
    assert tally.cuts >= 3 * operations, tally.cuts
    assert tally.broken == {}, tally.broken


def test_the_client_survives_a_failed_write_and_then_a_cut():
    tally = board_life.every_blip(_raw, Client, 2)
    print("BLIPS", _raw.name, tally.cuts, tally.failures(), sep="|")
    assert tally.cuts > 600, tally.cuts
    assert tally.broken == {}, tally.broken


def finds(tally, client_class):
    print("CONTROL", client_class.__name__, _raw.name, tally.cuts, tally.failures(), tally.broken, sep="|")
    assert tally.failures() > 0


def test_a_debit_after_sending_is_found():
    control = broken_clients.DebitAfterSending
    finds(board_life.every_cut(_raw, control, "raise", ("none",)), control)


def test_a_single_slot_is_found():
    control = broken_clients.OneSlot
    finds(board_life.every_cut(_raw, control, "raise", ("none",)), control)


def test_a_slot_toggled_after_a_failed_commit_is_found():
    control = broken_clients.SlotToggledAfterFailure
    finds(board_life.every_blip(_raw, control, 2, ("none",)), control)


on_device.run(globals())
