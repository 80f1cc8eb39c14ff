"""Test that a board whose ring oscillator is stuck, so that os.urandom repeats, does not report."""

import tempfile
from pathlib import Path

import on_device
from emulation.pico import board

NEEDS = ("pico", "compiled")
HOST = True

SCRIPT = """
import binascii, os, ldp_client
from on_device import DOOR, KEY, POLICY
data = os.urandom(384)
print("period", data.find(data[:32], 1))
try:
    ldp_client.provision("/ldp", consent=True)
    client = ldp_client.Client(POLICY, "/ldp", "board-1", KEY)
    client.enroll(DOOR.encode())
    print("report", binascii.hexlify(client.report("door", True)).decode())
    with open("/ldp/ledger0", "rb") as f: print("ledger", binascii.hexlify(f.read()).decode())
except ldp_client.EntropyError as e:
    print("EntropyError", e)
"""


def fresh_board(stuck):
    """Return the output lines of a new board, optionally with its oscillator stuck."""
    with tempfile.TemporaryDirectory() as folder:
        image, script = Path(folder) / "flash.img", Path(folder) / "script.py"
        script.write_text(SCRIPT)
        board.make_image(image, Path.cwd(), ["ldp_client.mpy", "on_device.mpy"])
        done = board.run(script, image, stuck=stuck)
        assert not done.error, done.error
        return done.output.splitlines()


def test_board_with_stuck_oscillator_refuses_to_report():
    first, second = fresh_board(True), fresh_board(True)
    assert first[0] == second[0] == "period 93", first
    print(first, second, "the same" if first == second else "different")
    for lines in (first, second):
        assert [line.split()[0] for line in lines[1:]] == ["EntropyError"], lines


def test_two_boards_with_running_oscillators_share_nothing():
    first, second = fresh_board(False), fresh_board(False)
    assert first[0] == second[0] == "period -1", first
    assert [line.split()[0] for line in first[1:]] == ["report", "ledger"], first
    assert first[2] != second[2]  # 16 random bytes each: equal in 1 of 2**128 runs


on_device.run(globals())
