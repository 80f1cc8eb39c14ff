"""The power-cut tests for a littlefs geometry, at every operation of the flash and with every outcome.

The short form cuts each operation once, with one of the nine outcomes, and lets every ninth operation fail
once.
"""

import board_lifetime
from on_device import LONG

STEP = 1 if LONG else 9


def cut_tests(medium, client_class, min_operations):
    """Return tests by name, for on_device.run().

    Args:
        medium: The flash model.
        client_class: The client's class.
        min_operations: Minimum number of flash operations in a complete lifetime.
    """

    def survives(mode):
        operations, uncut = board_lifetime.operations(medium, client_class)
        assert operations >= min_operations, operations
        assert uncut.broken == {}, uncut.broken
        tally = board_lifetime.every_cut(medium, client_class, mode, step=STEP)
        print("CUTS", medium.name, mode, operations, tally.cuts, tally.failures(), sep="|")
        assert tally.cuts * STEP >= 3 * operations, tally.cuts
        assert tally.broken == {}, tally.broken

    def fails_once():
        tally = board_lifetime.every_blip(medium, client_class, 2, step=STEP)
        print("BLIPS", medium.name, tally.cuts, tally.failures(), sep="|")
        assert tally.cuts * STEP > 6 * min_operations, tally.cuts
        assert tally.broken == {}, tally.broken

    return {
        "test_a_cut_that_stops_the_board_at_once": lambda: survives("raise"),
        "test_a_cut_after_which_the_code_runs_on_unaware": lambda: survives("silent"),
        "test_a_cut_after_which_every_write_fails": lambda: survives("eio"),
        "test_a_write_that_fails_once_and_then_a_cut": fails_once,
    }
