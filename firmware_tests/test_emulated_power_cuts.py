"""Test power cuts on the emulated Pico between and within all operations of its flash.

A lifetime is recorded on the board, since an interrupted lifetime is the same up to the cut. Every resulting
image is then mounted like the firmware does, and some are booted by the firmware itself.
"""

import ast
import json
import subprocess
import tempfile
from pathlib import Path

import on_device
from emulation.pico import board

NEEDS = ("pico", "compiled")
HOST = True
MODULES = ("ldp_client", "on_device", "flash_model", "board_lifetime", "recorded_lifetime", "broken_clients")
FILES = [name + ".mpy" for name in MODULES]


def boot(folder, script, image, **options):
    path = Path(folder) / "script.py"
    path.write_text(script)
    done = board.run(path, image, **options)
    assert not done.error, done.error
    return done


def lost(client):
    """Record a client's lifetime, cut the power everywhere, and return the number of broken conditions."""
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "flash.img"
        board.make_image(image, Path.cwd(), FILES)
        script = (
            f"import recorded_lifetime, broken_clients\nrecorded_lifetime.record(broken_clients.{client})"
        )
        done = boot(folder, script, image)
        events = json.loads(done.output.split("EVENTS", 1)[1])
        log = Path(folder) / "lifetime.json"
        log.write_text(json.dumps({**done.log, "events": events}))
        script = f"import recorded_lifetime; recorded_lifetime.cuts({str(log)!r}, {str(image)!r})"
        command = [*board.unix(), "-X", "heapsize=16m", "-c", script]
        checked = subprocess.run(
            command, capture_output=True, text=True, timeout=board.TIMEOUT_S, check=False
        )
        assert checked.returncode == 0, checked.stderr
        line, reasons = (text.strip() for text in checked.stdout.splitlines())
        operations, cuts, broken = (int(x) for x in line.split("|")[3:])
        if client == "Client":
            print(line, reasons, sep="\n")
        else:
            print("CONTROL", client, "emulated Pico", cuts, broken, reasons, sep="|")
        assert cuts == 2 * operations
        if client == "Client":
            assert "BROKEN" not in done.output, done.output
            assert operations > 30, operations
        return broken


def test_cut_at_any_flash_operation_loses_nothing():
    assert lost("Client") == 0


def test_detects_client_that_debits_after_sending():
    assert lost("DebitAfterSending") > 0


def test_board_restarts_after_power_failure():
    for cut, torn in ((9, True), (23, False)):
        with tempfile.TemporaryDirectory() as folder:
            image = Path(folder) / "flash.img"
            board.make_image(image, Path.cwd(), FILES)
            # The output before the power failed is the record.
            lifetime = """
import board_lifetime, ldp_client, recorded_lifetime
class Loud(recorded_lifetime.Journal):
    def _note(self, method, argument):
        print("%r, %r" % (method, argument))
board_lifetime.lifetime(ldp_client.Client, "/ldp", Loud())
print("THE END")
"""
            before = boot(folder, lifetime, image, keep=True, cut=cut, torn=torn)
            assert "THE END" not in before.output
            assert len(before.log["operations"]) == cut + 1, len(before.log["operations"])
            events = [ast.literal_eval(line) for line in before.output.splitlines()]
            check = f"""
import board_lifetime, ldp_client, recorded_lifetime
witness = recorded_lifetime.replay({events!r})
board_lifetime.check(ldp_client.Client, "/ldp", witness)
print("sound", len(witness.reports))
"""
            after = boot(folder, check, image)
            print(cut, torn, len(events), "events before the cut;", after.output.strip())
            assert after.output.startswith("sound"), after.output


on_device.run(globals())
