"""The bridge between the page and ldp_client.py: JSON in, JSON out, on MicroPython's WebAssembly port.

port.js provides the module `browser`: random(n) -> n bytes of crypto.getRandomValues as hex; read(slot) ->
hex of a slot of the ledger, "" if it was never written, "!" if the browser refuses; write(slot, hex) ->
whether the browser stored it.
"""

# pyright: reportMissingImports=false, reportOptionalMemberAccess=false, reportAttributeAccessIssue=false
# pyright: reportIndexIssue=false

import binascii
import gc
import hashlib
import json
import os
import sys

import browser
import check_vectors
import consent
import ldp_client
import preview as shown

check_vectors.load_further()  # every mechanism that is installed beside the client
os.urandom = lambda n: binascii.unhexlify(browser.random(n))  # this port has no urandom

# The firmware's limits, whatever a server asks, as on a board; the names are those that the person at this
# browser chose. 8 in total or, for many small reports, (8, 1e-6): see docs/planning.md.
POLICY = {
    "sum": 8_000_000,
    "squares": 1_819_000_000_000,
    "epsilon": 4_000_000,
    "rules": ("sum", "squares", "count"),
    "experiments": (),
}


class BrowserSlots:
    """The ledger's two slots in localStorage: a reload is a power cut."""

    def read(self, slot):
        text = browser.read(slot)
        if text == "!":
            raise OSError(5)
        try:
            return binascii.unhexlify(text) if text else None
        except ValueError:
            return b"?"  # overwritten by something else: a damaged slot

    def write(self, slot, data):
        if not browser.write(slot, binascii.hexlify(data).decode()):
            raise OSError(28)


class MemorySlots:
    """The ledger of one board of a crowd, which exists as long as the crowd."""

    def __init__(self):
        self.slots = [None, None]

    def read(self, slot):
        return self.slots[slot]

    def write(self, slot, data):
        self.slots[slot] = data


def _hex(data):
    return binascii.hexlify(data).decode()


def _policy(names):
    policy = dict(POLICY)
    policy["experiments"] = tuple(names)
    return policy


def about():
    """Return the client's digest and size in bytes, and MicroPython's version."""
    with open("/ldp_client.py", "rb") as f:
        source = f.read()
    version = ".".join([str(x) for x in sys.implementation[1][:3]])
    return {"sha256": _hex(hashlib.sha256(source).digest()), "bytes": len(source), "micropython": version}


def parse(payload):
    """Return the fields of an experiment that the page displays and estimates with, and its question."""
    payload = binascii.unhexlify(payload)
    exp = ldp_client.Experiment.parse(payload)
    if exp.type not in ("bool", "choice", "number"):
        raise ldp_client.ExperimentRefused(exp.name + ": this page has no field for a " + exp.type)
    names = "name type labels low high domain mechanism epsilon every rule cap window code_count code_bytes"
    result = {name: getattr(exp, name) for name in names.split()}
    result["digest"] = _hex(exp.digest)
    result["question"] = _hex(consent.question(json.loads(payload)))
    result["levels"] = [
        {name: getattr(x, name) for name in ("domain", "g", "t", "seeds", "threshold", "code_count")}
        for x in exp.levels
        if isinstance(x, ldp_client.Level)
    ]
    return result


client = None  # the board in localStorage, once it is powered on
agreed = {}  # name -> question, as consent.question() makes it, to which someone here has consented
questions = {}  # name -> question of the current experiment
last = shown.LastReports()


def start(device, yes, name, lines):
    """Power on, silent for questions without consent.

    `yes` are the questions with consent, `lines` the last reports.
    """
    global client, agreed
    agreed, last.lines = yes, lines
    questions.clear()
    client = ldp_client.Client(_policy(sorted(set(yes) | {name})), BrowserSlots(), device)
    if client.consent and not yes:  # a ledger made by an older page, which is not consent
        new = client._ledger.state.copy()
        new.consent, new.unsent = None, ()
        client._ledger.commit(new)
    return state()


def provision(replace):
    """Make a new ledger in localStorage; `replace` one that is there."""
    ldp_client.provision(BrowserSlots(), replace)


def enroll(payload):
    """Enroll in an experiment, given as its JSON in hex; return the state."""
    payload = binascii.unhexlify(payload)
    name = client.enroll(payload).name
    questions[name] = _hex(consent.question(json.loads(payload)))
    return state()


def _has_yes(name):
    """Return whether someone has consented to the current experiment's question, at its epsilon or more."""
    question, yes = questions.get(name, ""), agreed.get(name, "")
    return bool(question) and yes[:16] == question[:16] and question[16:] <= yes[16:]


def answer(yes):
    """Record the answer of the person at this browser: consent to `yes`, or none if it is empty."""
    global agreed
    agreed = yes
    client.consent = bool(yes)
    return state()


def state():
    """Return the board's status, its unsent reports, and what it may answer, for the page."""
    result = client.status()
    result["device"] = client.device_id
    result["policy"] = client._policy
    result["outbox"] = [_hex(report) for report in client.outbox()]
    result["agreed"] = agreed if client.consent else {}
    result["yes"] = [name for name in sorted(result["agreed"]) if name not in questions or _has_yes(name)]
    result["last"] = last.lines
    return result


def preview(name, value):
    """Return what a reading would send, as lines of text; spends nothing."""
    return shown.preview(client, name, value)


def report(name, value):
    """Take one reading; return its index, and the report or None."""
    index = client._experiments[name].bucket(value)
    data = client.report(name, value) if _has_yes(name) else None
    if data:
        last(shown.words(client, data))
    return {"index": index, "report": data and _hex(data), "state": state()}


def sent(data):
    """Remove an acknowledged report, given in hex, from the outbox; return the state."""
    client.sent(binascii.unhexlify(data))
    return state()


class FirstDrawPasses:
    """Randomness for a crowd's board that always passes the draw of `every`; everything else is random."""

    def __init__(self, rng):
        self.bernoulli = rng.bernoulli
        self._rng = rng
        self._is_first = True

    def below(self, n):
        if self._is_first:
            self._is_first = False
            return 0
        return self._rng.below(n)


def crowd(device, payload, value):
    """Make one report of a new board: provisioned, enrolled, at a reading that `every` lets through.

    The reading is invented, so the board is provisioned with consent.
    """
    payload = binascii.unhexlify(payload)
    slots = MemorySlots()
    ldp_client.provision(slots, consent=True)
    one = ldp_client.Client(_policy([ldp_client.Experiment.parse(payload).name]), slots, device)
    exp = one.enroll(payload)
    if exp.every > 1:
        one.rng = FirstDrawPasses(one.rng)
    data = one.report(exp.name, value)
    return {"index": exp.bucket(value), "report": data and _hex(data)}


def _all_cases():
    for name in ("/vectors.json", "/vectors_further.json"):
        with open(name) as lines:
            yield from check_vectors.cases(lines)


_check = {}  # test vectors that remain to be checked, and the experiments in them


def vectors(many):
    """Check `many` further test vectors; return the failures and whether all are done."""
    if not _check:
        _check.update(cases=_all_cases(), experiments={})
    done, failed = 0, []
    for section, case in _check["cases"]:
        done += 1
        try:
            check_vectors.CHECKS[section](case, _check["experiments"])
        except Exception as e:
            failed.append(f"{section}: {type(e).__name__} {e}")
        if done == many:
            return {"done": done, "failed": failed, "end": False}
    _check.clear()
    return {"done": done, "failed": failed, "end": True}


def memory():
    """Return the bytes of the heap that are in use."""
    return gc.mem_alloc()


CALLS = (about, parse, start, provision, enroll, answer, state, preview, report, sent, crowd, vectors, memory)
_CALLS = {call.__name__: call for call in CALLS}


def call(text):
    """Call a function: [name, argument, ...] -> {"value": ...} or {"error": text, "kind": class name}."""
    name, *arguments = json.loads(text)
    try:
        return json.dumps({"value": _CALLS[name](*arguments)})
    except (ldp_client.LDPError, TypeError) as e:
        return json.dumps({"error": str(e), "kind": type(e).__name__})
