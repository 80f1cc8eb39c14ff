"""Consent: how someone at a board opts in or out, and what the network may change.

attend(client, 14, "LED", feed)     handle a pressed button, or ask if nobody has opted in
offer(experiments, 14, "LED", feed) ask about a question that needs its own consent
from_network(client, False)         apply an opt-out that came over the network
question(fields)                    return what consent covers if the policy has "ask": "each"
"""

# pyright: reportMissingImports=false, reportOptionalMemberAccess=false

import hashlib
import json

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
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
_PROMPT = (80, 120, 80, 0)  # on, off, on, off
_CHECKS, _CHECK_MS = 86, 20  # button checks between two rounds of flashes, and their interval
_OFFER_ROUNDS = 5  # how many times it flashes for a question that is waiting
_YES = (1_000, 0)
_NO = (120, 120, 120, 120, 120, 0)


def _no_light(on):
    pass


class Button:
    """A button that pulls its pin to 0. If it is stuck or wired the other way round, it never counts.

    Args:
        pin: The button's pin, or None if there is no button.
        released: Whether the button was seen released since it was last pressed.
    """

    def __init__(self, pin, released):
        self._pin = pin
        self._released = released

    def was_held(self, feed):
        """Return whether the button is pressed now and held for 3 s; True only once per press.

        A press counts only if the button was seen released before.
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
    """Switch the light on and off alternately for the pattern's times in ms, and leave it off."""
    on = 1
    for ms in pattern:
        light(on)
        feed()
        sleep_ms(ms)
        on ^= 1
    light(0)


def flash_and_watch(button, light, feed):
    """Flash the light and watch the button until the next flash is due; return whether it was held."""
    blink(light, _PROMPT, feed)
    for _ in range(_CHECKS):
        if button.was_held(feed):
            return True
        feed()
        sleep_ms(_CHECK_MS)
    return False


def toggle_consent(client, light, feed):
    """Opt out if there is consent, otherwise opt in."""
    client.consent = not client.consent
    print("hushmote: this board %s part" % ("takes" if client.consent else "no longer takes"))
    blink(light, _YES if client.consent else _NO, feed)


def offer(experiments, button, led, feed):
    """Flash the light for 10 s for a waiting question; holding the button in that time consents to it.

    Holding it at any other time opts out, as always, so nobody consents to a question that was not signalled.
    """
    light = machine.Pin(led, machine.Pin.OUT).value
    button = Button(machine.Pin(button, machine.Pin.IN, machine.Pin.PULL_UP), False)
    name = list(experiments.asking)[0]
    payload = experiments.asking[name]
    group = _fields(payload).get("group")
    text = "it sends %s unprotected; " % group if group else ""
    if experiments._client.log:
        text = experiments._client.log.words() + "; " + text
    print("hushmote: %s needs its own consent: %shold the button for 3 s" % (name, text))
    button.was_held(feed)  # a button that is down now was pressed before the light flashed
    for _ in range(_OFFER_ROUNDS):
        if flash_and_watch(button, light, feed):
            agreed = accept(experiments, name, payload)
            blink(light, _YES if agreed else _NO, feed)
            return


def accept(experiments, name, payload=None):
    """Consent to the question waiting under a name, and print the result; return whether it was accepted."""
    try:
        experiments.agree(name, payload)
    except ldp_client.LDPError as e:
        print("hushmote: %s: refused: %s" % (name, e))
        return False
    print("hushmote: %s: yes" % name)
    return True


def attend(client, button, led, feed, released=False):
    """Handle a pressed button, or the case that nobody has opted in.

    If there is a button, wait until someone opts in; otherwise return a text that says what to do.

    Args:
        client: The board's Client.
        button: The button's pin, or None.
        led: The light's pin, or None.
        feed: Called while waiting, to feed a watchdog.
        released: Whether the button was seen released since it was last pressed.
    """
    light, pin = _no_light, None
    if led is not None:
        light = machine.Pin(led, machine.Pin.OUT).value
    if button is not None:
        pin = machine.Pin(button, machine.Pin.IN, machine.Pin.PULL_UP)
    button = Button(pin, released)
    if client.consent and button.was_held(feed):
        toggle_consent(client, light, feed)
    if client.consent:
        return None
    why = "someone said no" if client.consent is False else "nobody has said yes yet"
    names = ", ".join(client._policy["experiments"])
    text = "silent, as %s; with a yes it answers %s" % (why, names)
    groups = client._policy.get("groups")
    if groups:
        text += " and may send %s unprotected" % ", ".join(groups)
    if client.log:
        text += "; each question is " + client.log.words()
    if pin is None:
        return text + ": yes() says it"
    print("hushmote: %s: hold the button for 3 s" % text)
    while not client.consent:
        if flash_and_watch(button, light, feed):
            toggle_consent(client, light, feed)
    return None


def answer(client, value):
    """Store the consent that someone gave or withdrew at the prompt."""
    client.consent = value
    print("hushmote: " + ("yes: Ctrl-D starts the board" if value else "no: this board is silent"))


def from_network(client, value):
    """Set consent in response to a message from the network.

    False always stops a board. True starts it only if its policy has "consent_from": "network".

    Raises:
        ldp_client.SettingsError: For True under any other policy, as only someone at the board can opt in.
    """
    allowed = value is False or client._policy.get("consent_from") == "network"
    ldp_client.check(allowed, "only someone at the board can say yes", ldp_client.SettingsError)
    client.consent = value


_YES_FILE, _ASKING_FILE = ".yes", ".ask"  # experiment names contain no dots
# Fields that are not part of an experiment's question: frequency, cost, code layout, and the values of a
# group. Epsilon is compared as a number.
_NON_QUESTION_FIELDS = (
    "v", "epsilon", "every", "budget", "window", "g", "q", "reach", "fanout", "cells", "weights", "groups"
)  # fmt: skip


def _canonical(value):
    """Return a JSON value as text, with sorted names and no spaces; its strings need no escapes."""
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
    """Return 12 bytes: the first 8 of the question's SHA-256, and its epsilon.

    The hash covers the experiment's JSON without _NON_QUESTION_FIELDS, with sorted names and no spaces.

    Raises:
        ldp_client.ExperimentRefused: If an experiment cannot have such fields.
    """
    content = {name: fields[name] for name in fields if name not in _NON_QUESTION_FIELDS}
    try:
        digest = hashlib.sha256(_canonical(content).encode()).digest()
        return digest[:8] + ldp_client.take_int(dict(fields), "epsilon", 0, 0xFFFFFFFF).to_bytes(4, "big")
    except (TypeError, RuntimeError):  # an experiment cannot have such a value
        raise ldp_client.ExperimentRefused("its fields cannot be read")


def _fields(payload):
    end = payload.find(b"\x00")
    try:
        fields = json.loads(payload if end < 0 else payload[:end])
    except (ValueError, TypeError, RuntimeError):  # RuntimeError: nested too deeply
        fields = None
    ldp_client.check(isinstance(fields, dict), "not a JSON object")
    return fields


def _question(payload):
    return question(_fields(payload))


# KeptExperiments uses the following if the policy has "ask": "each".


def load(experiments, names):
    """Read each name's last consent and waiting question; an opt-out clears both."""
    experiments._client._on_opt_out = lambda: forget_all(experiments)
    if experiments._client.consent is False:
        forget_all(experiments)
    if experiments._folder is None:
        return
    for name in names:
        for table, file in (
            (experiments._agreed, name + _YES_FILE),
            (experiments.asking, name + _ASKING_FILE),
        ):
            try:
                with open(experiments._folder + "/" + file, "rb") as f:
                    data = f.read()
            except OSError:  # the file does not exist
                continue
            if experiments._seal(file, data[:-4]) != int.from_bytes(data[-4:], "big"):
                continue
            data = data[:-4]
            if file[-4:] == _ASKING_FILE and experiments._client.log:
                try:
                    data = experiments._client.log.load(name, data)
                except ldp_client.ExperimentRefused:  # of another log: the broker sends it again
                    continue
            table[name] = data


def _write(experiments, file, data):
    """Write data to a file in the folder, if there is a folder; set fault if that fails."""
    if experiments._folder is None:
        return
    try:
        experiments._put(file, data)
    except OSError as e:  # flash full or worn out: the question is asked again after the next start
        experiments.fault = "cannot store consent: errno %s" % (e.args[0] if e.args else "unknown")


def _remove(experiments, file):
    if experiments._folder is not None:
        experiments._remove(file)


def ask(experiments, name, payload):
    """Store the payload in `asking` and raise, unless the last consent covers its question and epsilon.

    If the policy has "log", the payload's proof and signature are verified first.
    """
    new, agreed = _question(payload), experiments._agreed.get(name, b"")
    if new[:8] != agreed[:8] or new[8:] > agreed[8:]:
        if experiments.asking.get(name) != payload:
            client, data = experiments._client, payload
            if client.log:  # nobody is asked what others are not asked
                client.log.verify(name, payload)
                client._check_signature(name, payload, payload.find(b"\x00"))
                data = client.log.seal(name, payload)
            experiments.asking[name] = payload
            _write(experiments, name + _ASKING_FILE, data)
        raise ldp_client.ExperimentRefused("nobody has consented to it: call agree(name)")


def agree(experiments, name, payload):
    """Accept the waiting question; after an opt-out, someone must opt in first."""
    ldp_client.check(experiments._client.consent is not False, "someone said no to everything")
    ldp_client.check(name in experiments.asking, "no question is waiting")
    ldp_client.check(payload in (None, experiments.asking[name]), "another question is waiting now")
    experiments._refused.pop(name, None)
    _remove(experiments, name + _ASKING_FILE)
    experiments.take(name, experiments.asking.pop(name), True)


def settle(experiments, name, payload):
    """Remove the waiting question, because an experiment is now in force; store the consent to a payload.

    If the payload is None, no consent is stored.

    Raises:
        ldp_client.ExperimentRefused: If someone has opted out in the meantime.
    """
    if experiments._client._opt_out is not experiments._opt_out:
        experiments._client._experiments.pop(name, None)
        raise ldp_client.ExperimentRefused("someone said no meanwhile")
    if experiments.asking.pop(name, None):
        experiments._refused.pop(name, None)  # the same payload may be asked about again
        _remove(experiments, name + _ASKING_FILE)
    if payload is None:
        return
    experiments._agreed[name] = _question(payload)
    _write(experiments, name + _YES_FILE, experiments._agreed[name])


def forget(experiments, name):
    """Forget a withdrawn experiment's last consent and waiting question."""
    experiments._agreed.pop(name, None)
    for file in (_YES_FILE, _ASKING_FILE):
        _remove(experiments, name + file)


def forget_all(experiments):
    """Forget all consent, as someone opted out; repeated experiments then need new consent."""
    for table in (
        experiments._client._experiments,
        experiments.digests,
        experiments._last,
        experiments._refused,
    ):
        table.clear()
    for file in experiments.files():  # including those of names that this firmware's policy lacks
        if file[-4:] in (_YES_FILE, _ASKING_FILE):
            _remove(experiments, file)
    for name in experiments._client._policy["experiments"]:
        forget(experiments, name)
