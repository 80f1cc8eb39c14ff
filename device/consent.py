"""Asking first: how somebody at a board says yes or no, and what the network may say.

attend(client, 14, "LED", feed)     the button on a pin is pressed, or nobody has said yes
offer(kept, 14, "LED", feed)        a question waits for a yes of its own
from_network(client, False)         a stop that came over the network
question(fields)                    what a yes applies to under the policy's "ask": "each"
"""

# pyright: reportMissingImports=false, reportOptionalMemberAccess=false

import hashlib
import json

if "." in __name__:  # the package on CPython; on a board the files lie side by side
    from . import ldp_client
    from .reporter_base import sleep_ms, ticks_diff, ticks_ms
else:
    import ldp_client
    from reporter_base import sleep_ms, ticks_diff, ticks_ms

try:
    import machine
except ImportError:  # CPython
    machine = None

_HOLD_MS = 3_000
_ASKS = (80, 120, 80, 0)  # on, off, on, off
_LOOKS, _LOOK_MS = 86, 20  # at the button, between two of these
_OFFERS = 5  # so often it asks about a question that waits
_YES = (1_000, 0)
_NO = (120, 120, 120, 120, 120, 0)


def _dark(on):
    pass


class Button:
    """A button that pulls its pin to 0. One that is stuck, or wired the other way round, is never pressed.

    pin: None where there is no button. released: whether it was seen released since it was last pressed.
    """

    def __init__(self, pin, released):
        self._pin = pin
        self._released = released

    def was_held(self, feed):
        """Return whether it is pressed now and for 3 s; True once for each press.

        A pin that reads "down" counts only after it was seen released.
        """
        if self._pin is None:
            return False
        if self._pin.value():
            self._released = True
        if not self._released:
            return False
        since = ticks_ms()
        while not self._pin.value():
            if ticks_diff(ticks_ms(), since) >= _HOLD_MS:
                self._released = False
                return True
            feed()
            sleep_ms(20)
        return False


def blink(light, pattern, feed):
    """Switch the light on and off in turn, for each of the pattern's times in ms, and leave it off."""
    on = 1
    for ms in pattern:
        light(on)
        feed()
        sleep_ms(ms)
        on ^= 1
    light(0)


def asks(button, light, feed):
    """Ask by the light, and watch the button until it is time to ask again; returns whether it was held."""
    blink(light, _ASKS, feed)
    for _ in range(_LOOKS):
        if button.was_held(feed):
            return True
        feed()
        sleep_ms(_LOOK_MS)
    return False


def turn(client, light, feed):
    """Say no where there was a yes, else yes."""
    client.consent = not client.consent
    print("hushmote: this board %s part" % ("takes" if client.consent else "no longer takes"))
    blink(light, _YES if client.consent else _NO, feed)


def offer(kept, button, led, feed):
    """Ask by the light for 10 s about a question that waits: a hold that begins meanwhile is a yes to it.

    A hold at any other time is a no, as ever: nobody says yes to a question that the light has not shown.
    """
    light = machine.Pin(led, machine.Pin.OUT).value
    button = Button(machine.Pin(button, machine.Pin.IN, machine.Pin.PULL_UP), False)
    name = list(kept.asking)[0]
    payload = kept.asking[name]
    print("hushmote: %s waits for a yes of its own: hold the button for 3 s" % name)
    button.was_held(feed)  # one that is down now was pressed before
    for _ in range(_OFFERS):
        if asks(button, light, feed):
            agreed = accept(kept, name, payload)
            blink(light, _YES if agreed else _NO, feed)
            return


def accept(kept, name, payload=None):
    """Say yes to the question that waits for a name, and print what came of it; returns whether it counts."""
    try:
        ldp_client.check(name in kept.asking, "no question waits")
        kept.agree(name, payload)
    except ldp_client.LDPError as e:
        print("hushmote: %s: refused: %s" % (name, e))
        return False
    print("hushmote: %s: yes" % name)
    return True


def attend(client, button, led, feed, released=False):
    """Serve somebody at a board: its button is pressed, or nobody has said yes.

    button, led: pins, or None. released: whether the button was seen released since it was last pressed.
    Waits for a yes where there is a button; else returns what to do.
    """
    light, pin = _dark, None
    if led is not None:
        light = machine.Pin(led, machine.Pin.OUT).value
    if button is not None:
        pin = machine.Pin(button, machine.Pin.IN, machine.Pin.PULL_UP)
    button = Button(pin, released)
    if client.consent and button.was_held(feed):
        turn(client, light, feed)
    if client.consent:
        return None
    why = "somebody said no" if client.consent is False else "nobody has said yes yet"
    names = ", ".join(client._policy["experiments"])
    text = "silent, as %s; with a yes it answers %s" % (why, names)
    if pin is None:
        return text + ": yes() says it"
    print("hushmote: %s: hold the button for 3 s" % text)
    while not client.consent:
        if asks(button, light, feed):
            turn(client, light, feed)
    return None


def answer(client, value):
    """Set what somebody said at the prompt."""
    client.consent = value
    print("hushmote: " + ("yes: ctrl-D starts the board" if value else "no: this board is silent"))


def from_network(client, value):
    """Set consent by what came over the network.

    False always stops a board. True starts one where its policy has "consent_from": "network", else
    SettingsError: only somebody at the board can say yes.
    """
    allowed = value is False or client._policy.get("consent_from") == "network"
    ldp_client.check(allowed, "only somebody at the board can say yes", ldp_client.SettingsError)
    client.consent = value


_YES_FILE, _ASKING_FILE = ".yes", ".ask"  # no name of an experiment has a dot
# Fields of an experiment that change nothing about what is asked: how often, what it may cost, how its codes
# are laid out. Epsilon is compared as a number.
_NO_QUESTION = ("v", "epsilon", "every", "budget", "window", "g", "q", "reach", "fanout", "cells", "weights")


def _canonical(value):
    """Return a JSON value as text, names sorted, without spaces; its strings need no escapes."""
    if isinstance(value, dict):
        pairs = ['"%s":%s' % (name, _canonical(value[name])) for name in sorted(value)]
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join([_canonical(x) for x in value]) + "]"
    if isinstance(value, str):
        return '"%s"' % value
    if type(value) is not int:
        raise TypeError
    return "%d" % value


def question(fields):
    """Return 12 bytes: the first 8 of the SHA-256 of what these fields ask, and their epsilon.

    Hashed is the experiment's JSON without the fields of _NO_QUESTION: its names sorted, without spaces.
    Raises ldp_client.ExperimentRefused where no experiment has such fields.
    """
    content = {name: fields[name] for name in fields if name not in _NO_QUESTION}
    try:
        digest = hashlib.sha256(_canonical(content).encode()).digest()
        return digest[:8] + ldp_client.take_int(dict(fields), "epsilon", 0, 0xFFFFFFFF).to_bytes(4, "big")
    except (TypeError, RuntimeError):  # a value that no experiment has
        raise ldp_client.ExperimentRefused("its fields cannot be read")


def _question(payload):
    end = payload.find(b"\x00")
    try:
        fields = json.loads(payload if end < 0 else payload[:end])
    except (ValueError, TypeError, RuntimeError):  # the last: nested too deep
        fields = None
    ldp_client.check(isinstance(fields, dict), "not a JSON object")
    return question(fields)


# What KeptExperiments asks of this file, where the policy has "ask": "each".


def load(kept, names):
    """Read the last yes to each name, and the question that waits; a board that says no has no yes."""
    kept._client._on_no = lambda: forget_all(kept)
    if kept._client.consent is False:
        forget_all(kept)
    if kept._folder is None:
        return
    for name in names:
        for table, file in ((kept._agreed, name + _YES_FILE), (kept.asking, name + _ASKING_FILE)):
            try:
                with open(kept._folder + "/" + file, "rb") as f:
                    data = f.read()
            except OSError:  # there is none
                continue
            if kept._seal(file, data[:-4]) == int.from_bytes(data[-4:], "big"):
                table[name] = data[:-4]


def _write(kept, file, data):
    """Write data into a file of the folder, if there is one; fault says why it cannot be kept."""
    if kept._folder is None:
        return
    try:
        kept._put(file, data)
    except OSError as e:  # full, or worn: asked again after the next start
        kept.fault = "a yes cannot be kept: errno %s" % (e.args[0] if e.args else "unknown")


def _remove(kept, file):
    if kept._folder is not None:
        kept._remove(file)


def ask(kept, name, payload):
    """Let a payload wait in kept.asking, and raise, unless the last yes was to its question and epsilon."""
    new, agreed = _question(payload), kept._agreed.get(name, b"")
    if new[:8] != agreed[:8] or new[8:] > agreed[8:]:
        if kept.asking.get(name) != payload:
            kept.asking[name] = payload
            _write(kept, name + _ASKING_FILE, payload)
        raise ldp_client.ExperimentRefused("nobody has said yes to it: agree(name) says it")


def agree(kept, name, payload):
    """Take the question that waits; after a no to everything somebody says yes to that first."""
    ldp_client.check(kept._client.consent is not False, "somebody said no to everything")
    same = payload is None or kept.asking.get(name) == payload
    ldp_client.check(same, "another question waits now")
    kept._refused.pop(name, None)
    _remove(kept, name + _ASKING_FILE)
    kept.take(name, kept.asking.pop(name), True)


def settle(kept, name, payload):
    """Let nothing wait any more, as an experiment is in force; keep the yes to a payload, None for no yes.

    Raises ldp_client.ExperimentRefused if somebody said no to everything meanwhile.
    """
    if kept._client._no is not kept._no:
        kept._client._experiments.pop(name, None)
        raise ldp_client.ExperimentRefused("somebody said no meanwhile")
    if kept.asking.pop(name, None):
        kept._refused.pop(name, None)  # the same bytes may be asked about again
        _remove(kept, name + _ASKING_FILE)
    if payload is None:
        return
    kept._agreed[name] = _question(payload)
    _write(kept, name + _YES_FILE, kept._agreed[name])


def forget(kept, name):
    """Forget the last yes to a name, and what waits: its question was withdrawn."""
    kept._agreed.pop(name, None)
    for file in (_YES_FILE, _ASKING_FILE):
        _remove(kept, name + file)


def forget_all(kept):
    """Forget every yes, as somebody said no to everything: what the broker repeats is asked about again."""
    for table in (kept._client._experiments, kept.digests, kept._last, kept._refused):
        table.clear()
    for name in kept._client._policy["experiments"]:
        forget(kept, name)
