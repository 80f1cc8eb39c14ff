"""Record a board's lifetime on the emulated Pico, then cut the power at each operation of its flash.

record() runs on the Pico and writes a number to a register at each event, so that the emulator's log shows
how many flash operations preceded it. cuts() runs on the unix port and uses that log.
"""

import binascii
import json

import board_lifetime
import flash_model
from ldp_client import Client

_MARK = 0x40060020
_BLOCKS = 352


class Journal(board_lifetime.Witness):
    """A witness that logs its calls."""

    def __init__(self):
        super().__init__()
        self.events = []

    def _note(self, method, argument):
        import machine

        self.events.append((method, argument))
        machine.mem32[_MARK] = len(self.events)

    def provisioning_done(self):
        self._note("provisioning_done", None)
        super().provisioning_done()

    def see(self, report):
        self._note("see", binascii.hexlify(report).decode())
        return super().see(report)

    def handed_out(self, report):
        self._note("handed_out", binascii.hexlify(report).decode())
        super().handed_out(report)

    def sending(self, report):
        self._note("sending", binascii.hexlify(report).decode())
        super().sending(report)

    def answering(self, value):
        self._note("answering", value)
        super().answering(value)

    def answered(self, value):
        self._note("answered", value)
        super().answered(value)


def record(client_class=Client):
    journal = Journal()
    try:
        board_lifetime.lifetime(client_class, "/ldp", journal)
    except AssertionError as e:  # the check failed already during the lifetime
        print("BROKEN", e)
    print("EVENTS" + json.dumps(journal.events))


def replay(events):
    """Return a witness that has recorded these events."""
    witness = board_lifetime.Witness()
    for method, argument in events:
        if argument is None:
            getattr(witness, method)()
        else:
            value = binascii.unhexlify(argument) if isinstance(argument, str) else argument
            getattr(witness, method)(value)
    return witness


def _apply(image, operation, share):
    """Apply a share of an operation's bytes, from its start, to an image {block: bytearray}."""
    block, off = divmod(operation["at"], 4096)
    done = int(operation["size"] * share)
    if done:
        data = image.setdefault(block, bytearray(b"\xff" * 4096))
        new = binascii.a2b_base64(operation["data"]) if operation["data"] else b"\xff" * done
        data[off : off + done] = new[:done]


def cuts(path, image_path):
    """Cut the power before and half-way through each operation.

    Args:
        path: The record of the lifetime.
        image_path: The flash before the lifetime.
    """
    with open(path) as f:
        log = json.load(f)
    medium = flash_model.pico(_BLOCKS)
    image = {}
    with open(image_path, "rb") as f:
        for n in range(_BLOCKS):
            data = f.read(4096)
            if data != b"\xff" * 4096:
                image[n] = bytearray(data)
    broken = {}
    count = 0
    operations = log["operations"]
    for number, operation in enumerate(operations):
        before = len([m for m in log["marks"] if m["operations"] <= number])
        for share in (0, 0.5):
            torn = {n: bytearray(data) for n, data in image.items()}
            _apply(torn, operation, share)
            reason = _check(medium, torn, replay(log["events"][:before]))
            count += 1
            if reason is not None:
                broken[reason] = broken.get(reason, 0) + 1
        _apply(image, operation, 1)
    print("CUTS", "emulated Pico", "raise", len(operations), count, sum(broken.values()), sep="|")
    print(broken)


def _check(medium, image, witness):
    try:
        storage = medium.mount(medium.chip(image))
    except OSError:
        return "the file system does not mount"
    try:
        board_lifetime.check(Client, storage, witness)
    except AssertionError as e:
        return str(e)
    except (OSError, board_lifetime.LedgerError) as e:
        return "after the power cut: " + str(e)
    finally:
        medium.umount()
    return None
