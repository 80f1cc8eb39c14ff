"""Test kept experiments, and that the modules beside the client can be imported, on real MicroPython."""

import os

import ldp_client
import on_device

NEEDS = ("urandom",)
MODULES = ("kept_experiments", "consent", "reporter_base", "reporter_status", "gap", "preview", "memory")
FOLDER = "kept"
KEY = bytes(64)
ROOM, DOOR = "room_temp", "door_open"
BODY = (
    '{"v":1,"name":"%s","type":"bool","mechanism":"rr","epsilon":1000000,"every":1,'
    '"budget":{"rule":"sum","cap":4000000},"window":"day"}'
)


def signed(name, serial, body=None):
    body = BODY % name if body is None else body
    return body.encode() + b"\x00" + serial.to_bytes(4, "big") + bytes(64)


class Memory:
    def __init__(self):
        self.slots = [None, None]

    def read(self, slot):
        return self.slots[slot]

    def write(self, slot, data):
        self.slots[slot] = data


_import_sibling = ldp_client._import_sibling


def import_sibling(name):
    """Import a module; accept every signature, as verifying one takes an emulated chip ten seconds."""
    module = _import_sibling(name)
    if name == "ldp_p256":
        module.verify = lambda key, digest, signature: True
    return module


def start(storage, names, ask=None):
    import kept_experiments

    policy = {"sum": 1 << 40, "squares": 0, "epsilon": 4000000, "rules": ("sum",), "experiments": names}
    if ask:
        policy["ask"] = ask
    client = ldp_client.Client(policy, storage, "board-1", None, KEY, "home")
    return kept_experiments.KeptExperiments(client, FOLDER)


def is_refused(kept, name, payload):
    try:
        kept.take(name, payload)
    except ldp_client.ExperimentRefused:
        return True
    return False


def clean():
    try:
        for name in os.listdir(FOLDER):
            os.remove(FOLDER + "/" + name)
    except OSError:  # the folder does not exist yet
        pass


def new_storage():
    clean()
    storage = Memory()
    ldp_client.provision(storage, consent=True)
    return storage


def test_modules_can_be_imported():
    for name in MODULES:
        __import__(name)


def test_serial_survives_firmware_without_the_name():
    storage = new_storage()
    kept = start(storage, (ROOM, DOOR))
    kept.take(ROOM, signed(ROOM, 5))
    kept.take(ROOM, signed(ROOM, 7, ""))
    kept = start(storage, (DOOR,))
    kept.take(DOOR, signed(DOOR, 6))
    kept = start(storage, (ROOM, DOOR))
    assert is_refused(kept, ROOM, signed(ROOM, 5))
    assert kept._client.report(DOOR, True) is not None
    assert not is_refused(kept, ROOM, signed(ROOM, 8))
    clean()


def test_opt_out_ends_consent_to_missing_name():
    storage = new_storage()
    kept = start(storage, (ROOM,), "each")
    assert is_refused(kept, ROOM, signed(ROOM, 5))
    kept.agree(ROOM)
    assert kept._client.report(ROOM, True) is not None
    other = start(storage, (DOOR,))
    other._client.consent = False
    other._client.consent = True
    kept = start(storage, (ROOM,), "each")
    assert kept._client.report(ROOM, True) is None
    assert is_refused(kept, ROOM, signed(ROOM, 6))
    clean()


ldp_client._import_sibling = import_sibling
on_device.run(globals())
