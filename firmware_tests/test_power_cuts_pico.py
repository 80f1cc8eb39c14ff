"""The power fails at every operation of the flash: littlefs with a Pico's geometry."""

import board_life
import flash_model
import on_device
from ldp_client import Client

# Hundreds of lives: as compiled for boards, on the runtime that is most like one.
NEEDS = ("urandom", "littlefs", "room", "compiled", "float32")
HEAP = "512k"

_medium = flash_model.pico(8)


def survives(mode):
    operations, uncut = board_life.operations(_medium, Client)
    assert operations > 40, operations
    assert uncut.broken == {}, uncut.broken
    tally = board_life.every_cut(_medium, Client, mode)
    print("CUTS", _medium.name, mode, operations, tally.cuts, tally.failures(), sep="|")
    assert tally.cuts >= 3 * operations, tally.cuts
    assert tally.broken == {}, tally.broken


def test_a_cut_that_stops_the_board_at_once():
    survives("raise")


def test_a_cut_after_which_the_code_runs_on_unaware():
    survives("silent")


def test_a_cut_after_which_every_write_fails():
    survives("eio")


def test_a_write_that_fails_once_and_then_a_cut():
    tally = board_life.every_blip(_medium, Client, 2)
    print("BLIPS", _medium.name, tally.cuts, tally.failures(), sep="|")
    assert tally.cuts > 250, tally.cuts
    assert tally.broken == {}, tally.broken


on_device.run(globals())
