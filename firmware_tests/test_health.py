"""Read the standard questions during a recorded lifetime: each reading is the recorded truth, in 64 KiB."""

import gc
import json

import ldp_client
import on_device
from health import Health, cause, chip, load, save
from on_device import raises

NEEDS = ("heap", "compiled")
HEAP = "64k"
FILE = "health_lifetime.jsonl"


def replay(health, event):
    """Give an event to the readers, as an application would."""
    now, kind, value = event
    if kind == "start":
        health.start(value, now)
    elif kind == "ack":
        health.acknowledged(value, now)
    elif kind == "heap":
        health.sample(value, now)
    elif kind == "newer":
        health.newer_version(now)
    elif kind == "updated":
        health.updated(value)
    elif kind == "why":
        health.restarting(value)
    else:
        health.battery(value, now)


def is_near(value, truth):
    if isinstance(truth, (int, float)) and not isinstance(truth, bool):
        return abs(value - truth) <= 1e-3 * max(1, abs(truth))
    return value == truth


def check(name):
    """Replay the lifetime for one question; each start restores the state from its JSON."""
    read = 0
    health = Health({})
    with open(FILE) as f:
        experiment = ldp_client.Experiment.parse(json.loads(f.readline())[name].encode())
        for line in f:
            if '"read"' in line:
                now, _, values = json.loads(line)
                truth, index = values[name]
                value = health.read(name, now)
                assert is_near(value, truth), (name, now, value, truth)
                assert experiment.bucket(value) in (index, None), (name, now, value, index)
                read += 1
            else:
                event = json.loads(line)
                if event[1] == "start":
                    health = Health(json.loads(json.dumps(health.state)))
                replay(health, event)
    assert read > 100
    gc.collect()


def test_readings_are_the_recorded_truth():
    assert gc.mem_free() + gc.mem_alloc() < 66000
    with open(FILE) as f:
        names = sorted(json.loads(f.readline()))
    assert len(names) == 10
    for name in names:
        check(name)


def test_clock_that_starts_anew_counts_no_time():
    health = Health({})
    health.start("watchdog", 1_000_000)
    health.start("power", 10)
    assert health.read("crashed", 20)
    assert health.read("uptime", 3_610) == 1
    assert not health.read("crashed", 20 + 86_400)


def test_clock_that_is_set_counts_no_time():
    health = Health({})
    health.start("watchdog", 5)
    health.acknowledged(-60, 800_000_000)
    assert health.read("boot_time", 800_000_000) == 0
    assert health.read("crashed", 800_000_100)
    assert health.read("uptime", 800_003_600) == 1


def test_state_survives_in_a_file():
    health = Health(load("health.json"))
    health.start("panic", 100)
    save("health.json", health.state)
    again = Health(load("health.json"))
    assert again.read("crashed", 200)
    with open("health.json", "w") as f:
        f.write("[1")
    assert load("health.json") == {}
    save("no/such/folder", {})  # prints why


def test_new_board_has_readings_of_the_right_type():
    health = Health({})
    for name in ("crashed", "unreachable"):
        assert health.read(name, 5) is False
    for name in ("update", "signal", "boot_time", "battery_life", "heap_low", "uptime", "restart"):
        assert health.read(name, 5) is None


def test_names_chips_and_causes():
    for text, name in (
        ("Generic ESP32 module with ESP32", "esp32"),
        ("ESP32S3 module with ESP32S3", "esp32-s3"),
        ("ESP32C3 module with ESP32C3", "esp32-c3"),
        ("Raspberry Pi Pico W with RP2040", "rp2040"),
        ("linux", "other"),
    ):
        assert chip(text) == name

    class Machine:
        PWRON_RESET, WDT_RESET = 1, 3

        def __init__(self, value):
            self.reset_cause = lambda: value

    assert [cause(Machine(value)) for value in (1, 3, 5)] == ["power", "watchdog", "other"]
    assert raises(AttributeError, cause, None)


on_device.run(globals())
