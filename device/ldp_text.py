"""Texts that need not be listed beforehand: a text's index is its slot, a salted hash of its bytes.

Copy this file next to ldp_client.py. It adds the type "text", for labels such as firmware versions:

    slot   first 8 bytes of SHA-256(salt, byte 0, text), an integer, modulo `slots`, a power of 2
    text   a str in UTF-8, or bytes; only the first 255 bytes are used

With `prefixes`, lengths in bytes, a text has a slot for each: level l, from 1, hashes salt, byte l and the
text's first bytes, padded with zeros. The index is the sum of slot_l * slots**(l - 1).

Every text has a slot, so whether a report is made never depends on the text. Texts that share a slot cannot
be distinguished; which texts share one differs from salt to salt.
"""

# pyright: reportMissingImports=false

import hashlib

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
else:
    import ldp_client


def take(reading, fields):
    """Set salt, slots, prefixes (a tuple, usually empty) and domain, or raise ExperimentRefused."""
    if "missing" in fields:
        raise ldp_client.ExperimentRefused("a text does not support missing readings")
    salt = ldp_client.take(fields, "salt")
    if type(salt) is not str or not 1 <= len(salt.encode()) <= 32:
        raise ldp_client.ExperimentRefused("salt must be 1 to 32 bytes")
    slots = ldp_client.take_int(fields, "slots", 2, 1 << 20)
    if slots & (slots - 1):
        raise ldp_client.ExperimentRefused("slots must be a power of 2")
    prefixes = fields.get("prefixes", ())
    if prefixes != ():
        count = min(len(prefixes), 16) if type(prefixes) is list else 1
        prefixes = ldp_client.take_ints(fields, "prefixes", max(count, 1), 1, 16)
        if prefixes != sorted(prefixes):
            raise ldp_client.ExperimentRefused("prefixes must not decrease")
    reading.salt = salt.encode()
    reading.slots = slots
    reading.prefixes = tuple(prefixes)
    reading.domain = slots ** max(len(prefixes), 1)


def bucket(reading, value):
    """Return the index of a str or bytes, or -1 for any other type."""
    if isinstance(value, str):
        value = value[:255]
        try:
            value = value.encode()
        except ValueError:  # half of a surrogate pair, which MicroPython encodes unchanged
            value = value.encode("utf-8", "surrogatepass")
    elif not isinstance(value, (bytes, bytearray)):
        return -1
    text = bytes(value[:255])
    prefixes = reading.prefixes
    if not prefixes:
        return _slot(reading, 0, text)
    index = 0
    for level in range(len(prefixes), 0, -1):
        size = prefixes[level - 1]
        index = index * reading.slots + _slot(reading, level, (text + bytes(size))[:size])
    return index


def _slot(reading, level, text):
    # slots is at most 2**20, so the last three of the eight bytes suffice, and fit into a small integer.
    digest = hashlib.sha256(reading.salt + bytes((level,)) + text).digest()
    return int.from_bytes(digest[5:8], "big") & (reading.slots - 1)


ldp_client.TYPES["text"] = (take, bucket)
