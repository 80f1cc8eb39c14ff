"""Test hours of sleep on the RP2040, whose deepsleep() rejects long times, with its watchdog running."""

import json
import tempfile
from pathlib import Path

import on_device
from emulation.pico import board

from hushmote.fleet.provisioning.flash import MODULES
from hushmote.fleet.provisioning.usb import compile_mpy

NEEDS = ("pico", "compiled")
HOST = True


def run(script):
    """Run a script on a board with the application; return the result and its duration."""
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for module in (*MODULES, "main"):
            path = board.DEVICE / f"{module}.py"
            (folder / f"{module}.mpy").write_bytes(compile_mpy(path, 6, path.name))
        board.make_image(folder / "flash.img", folder, [f"{m}.mpy" for m in (*MODULES, "main")])
        (folder / "script.py").write_text(script)
        return board.run(folder / "script.py", folder / "flash.img")


def slept_s(done):
    return done.log["seconds"] - done.log["started"]["seconds"]


def test_deepsleep_refuses_time_beyond_its_timer():
    done = run("import machine\nmachine.deepsleep(4_294_968)")
    assert "ValueError: sleep too long" in done.error, done.error
    assert done.log["resets"] == 0


def test_deepsleep_ends_in_a_reset():
    done = run("import machine\nmachine.deepsleep(4_000_000)")
    assert done.log["resets"] == 1
    assert 4000 <= slept_s(done) < 4001, slept_s(done)


def test_unfed_watchdog_ends_in_a_reset():
    done = run("import main, time\nmain.watch()\ntime.sleep(60)")
    assert done.log["resets"] == 1
    assert 8 < slept_s(done) < 9, slept_s(done)


LOOK_UP = """
import main, time
main.watch()
def getaddrinfo(*where):
    time.sleep(SECONDS)
    raise OSError(-2)
try:
    main.look_up(getaddrinfo, "broker.example", 1883)
except OSError:
    print("not found")
"""


def test_dns_lookup_with_dead_servers_does_not_reset_board():
    done = run(LOOK_UP.replace("SECONDS", "14"))
    assert done.log["resets"] == 0
    assert done.output.strip() == "not found", done.output


def test_watchdog_ends_hanging_lookup():
    done = run(LOOK_UP.replace("SECONDS", "90"))
    assert done.log["resets"] == 1
    assert 30 < slept_s(done) < 40, slept_s(done)


def test_application_sleeps_for_hours_and_feeds_watchdog():
    script = """
import json, machine, main, time
main.watch()
hours = []
for ms in (3_600_000, 1, 5_000_001):
    since = time.ticks_ms()
    main.sleep(ms)
    hours.append(time.ticks_diff(time.ticks_ms(), since))
print(json.dumps(hours))
"""
    done = run(script)
    assert done.log["resets"] == 0
    assert not done.error, done.error
    for wanted_ms, took_ms in zip((3_600_000, 1, 5_000_001), json.loads(done.output), strict=True):
        assert wanted_ms <= took_ms <= wanted_ms * 1.001 + 10, (wanted_ms, took_ms)


on_device.run(globals())
