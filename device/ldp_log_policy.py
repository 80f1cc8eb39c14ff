"""Check the "log" of a policy, and put it into words. Boards import this file only while they need it."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import binascii
import json

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
else:
    import ldp_client


def _is_origin(text):
    """Return whether a text can name a key in signed notes: it is printable, without spaces and plus."""
    good = type(text) is str and 1 <= len(text) <= 255
    for c in text if good else ():
        good = good and "!" <= c <= "~" and c != "+"
    return good


def _key(text):
    """Return the bytes of a P-256 key, or None if it is not 128 hex digits."""
    try:
        return binascii.unhexlify(text) if type(text) is str and len(text) == 128 else None
    except ValueError:
        return None


def check(log, announce_key):
    """Raise SettingsError if a policy's "log" is malformed, or if the fleet has no announce key."""
    good = type(log) is dict and set(log) == {"origin", "keys", "need"} and type(log["keys"]) in (tuple, list)
    text = "policy: log must have origin, keys (a tuple) and need, and no more"
    ldp_client.check(good, text, ldp_client.SettingsError)
    text = "policy: log's origin must be 1 to 255 printable ASCII characters without spaces and +"
    ldp_client.check(_is_origin(log["origin"]), text, ldp_client.SettingsError)
    keys = set([(_key(key) or b"")[:4] for key in log["keys"]])  # a proof names witnesses by 4 bytes
    good = 2 <= len(keys) == len(log["keys"]) <= 8 and b"" not in keys
    text = (
        "policy: log's keys must be 2 to 8 of 128 hex digits, first the log's own, and differ in the first 8"
    )
    ldp_client.check(good, text, ldp_client.SettingsError)
    # Two groups of more than half have a witness in common, so honest witnesses cannot sign two histories.
    least, most = (len(keys) + 1) // 2, len(keys) - 1
    good = type(log["need"]) is int and least <= log["need"] <= most
    text = "policy: log's need must be more than half of the witnesses, at least %d of %d" % (least, most)
    ldp_client.check(good, text, ldp_client.SettingsError)
    text = "policy: log requires announce_key, as earlier versions could return without serials"
    ldp_client.check(announce_key is not None, text, ldp_client.SettingsError)


def check_every(payload):
    """Raise ExperimentRefused if `every` is a list: then one group could answer while others are silent."""
    every = json.loads(payload.partition(b"\0")[0]).get("every")
    ldp_client.check(type(every) is not list, "every must be one number with a log")


def words(log, names=()):
    """Return one line that says what a policy's "log" means for the people who are asked.

    Args:
        log: The policy's "log".
        names: Pairs of a witness's key and name; others are named by the first 16 digits of their keys.
    """
    names = dict(names)
    witnesses = [names.get(key, key[:16]) for key in log["keys"][1:]]
    text = ", ".join(witnesses[:-1]) + (" and " if witnesses[1:] else "") + witnesses[-1]
    if log["need"] < len(witnesses):
        text = "%d of %s" % (log["need"], text)
    return "asked of every device alike, checked by " + text
