"""The JSON bridge between the page and ldp_client.py on MicroPython's WebAssembly port.

port.js provides the module `browser`. random(n) returns n bytes from crypto.getRandomValues in hex.
read(slot) returns a ledger slot in hex, "" if it was never written, or "!" if the browser denies access.
write(slot, hex) returns whether the browser stored the data.
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
import preview as board_preview

check_vectors.load_further()  # every mechanism that is installed with the client
os.urandom = lambda n: binascii.unhexlify(browser.random(n))  # this port has no urandom

# The same limits as in a board's firmware, which a server cannot change; the person at this browser chooses
# the names. The total is 8 or, for many small reports, (8, 1e-6); see docs/planning.md.
POLICY = {
    "sum": 8_000_000,
    "squares": 1_819_000_000_000,
    "epsilon": 4_000_000,
    "rules": ("sum", "squares", "count"),
    "experiments": (),
}


class BrowserSlots:
    """The ledger's two slots in localStorage, where a reload acts like a power cut."""

    def read(self, slot):
        text = browser.read(slot)
        if text == "!":
            raise OSError(5)
        try:
            return binascii.unhexlify(text) if text else None
        except ValueError:
            return b"?"  # overwritten by something else, so the slot is damaged

    def write(self, slot, data):
        if not browser.write(slot, binascii.hexlify(data).decode()):
            raise OSError(28)


class MemorySlots:
    """A simulated board's ledger, which is gone after the simulation."""

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
    """Return the experiment's fields that the page displays or uses in estimates, and its question."""
    payload = binascii.unhexlify(payload)
    exp = ldp_client.Experiment.parse(payload)
    if exp.type not in ("bool", "choice", "number"):
        raise ldp_client.ExperimentRefused(exp.name + ": this page has no field for a " + exp.type)
    names = "name type labels low high domain mechanism epsilon every rule cap window code_count code_bytes"
    result = {name: getattr(exp, name) for name in names.split()}
    result["edges"] = list(getattr(exp, "edges", ()))  # of logarithmic bins
    result["digest"] = _hex(exp.digest)
    result["question"] = _hex(consent.question(json.loads(payload)))
    result["levels"] = [
        {name: getattr(x, name) for name in ("domain", "g", "t", "seeds", "threshold", "code_count")}
        for x in exp.levels
        if isinstance(x, ldp_client.Level)
    ]
    return result


client = None  # the board in localStorage, after start()
agreed = {}  # name -> question with consent, as consent.question() returns it
questions = {}  # name -> the enrolled experiment's question
last = board_preview.LastReports()


def start(device, yes, name, lines):
    """Power on the board, which is silent for questions without consent; return the state.

    Args:
        device: The board's id.
        yes: The questions with consent, by experiment name.
        name: The experiment on the page.
        lines: Descriptions of the last reports.
    """
    global client, agreed
    agreed, last.lines = yes, lines
    questions.clear()
    client = ldp_client.Client(_policy(sorted(set(yes) | {name})), BrowserSlots(), device)
    if client.consent and not yes:  # an older page made the ledger, which does not count as consent
        new = client._ledger.state.copy()
        new.consent, new.unsent = None, ()
        client._ledger.commit(new)
    return state()


def provision(replace):
    """Create a ledger in localStorage; with `replace`, overwrite an existing one."""
    ldp_client.provision(BrowserSlots(), replace)


def enroll(payload):
    """Enroll in an experiment, whose JSON is given in hex; return the state."""
    payload = binascii.unhexlify(payload)
    name = client.enroll(payload).name
    questions[name] = _hex(consent.question(json.loads(payload)))
    return state()


def _has_consent(name):
    """Return whether someone has consented to the experiment's question, at its epsilon or a higher one."""
    question, yes = questions.get(name, ""), agreed.get(name, "")
    return bool(question) and yes[:16] == question[:16] and question[16:] <= yes[16:]


def answer(yes):
    """Record this person's answer, which is consent to the questions in `yes`; return the state."""
    global agreed
    agreed = yes
    client.consent = bool(yes)
    return state()


def state():
    """Return the board's status, its unsent reports and the questions with consent, for the page."""
    result = client.status()
    result["device"] = client.device_id
    result["policy"] = client._policy
    result["outbox"] = [_hex(report) for report in client.outbox()]
    result["agreed"] = agreed if client.consent else {}
    result["yes"] = [name for name in sorted(result["agreed"]) if name not in questions or _has_consent(name)]
    result["last"] = last.lines
    return result


def preview(name, value):
    """Return the report that a reading would produce, as lines of text, without spending anything."""
    return board_preview.preview(client, name, value)


def report(name, value):
    """Report one reading; return its index, the report or None, and the state."""
    index = client._experiments[name].bucket(value)
    data = client.report(name, value) if _has_consent(name) else None
    if data:
        last(board_preview.words(client, data))
    return {"index": index, "report": data and _hex(data), "state": state()}


def sent(data):
    """Remove an acknowledged report, given in hex, from the outbox; return the state."""
    client.sent(binascii.unhexlify(data))
    return state()


class FirstDrawPasses:
    """Randomness for a simulated board that always passes the draw of `every`; all other draws are random."""

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
    """Provision and enroll a new simulated board, and return its report, as report() does.

    The board is provisioned with consent, because its reading is simulated, and passes the draw of `every`.
    """
    payload = binascii.unhexlify(payload)
    slots = MemorySlots()
    ldp_client.provision(slots, consent=True)
    board = ldp_client.Client(_policy([ldp_client.Experiment.parse(payload).name]), slots, device)
    exp = board.enroll(payload)
    if exp.every > 1:
        board.rng = FirstDrawPasses(board.rng)
    data = board.report(exp.name, value)
    return {"index": exp.bucket(value), "report": data and _hex(data)}


def _all_cases():
    for name in ("/vectors.json", "/vectors_further.json"):
        with open(name) as lines:
            yield from check_vectors.cases(lines)


_check = {}  # the remaining test vectors and their experiments, while a check is running


def vectors(count):
    """Check the next `count` test vectors; return their number, the failures, and whether all are done."""
    if not _check:
        _check.update(cases=_all_cases(), experiments={})
    done, failed = 0, []
    for section, case in _check["cases"]:
        done += 1
        try:
            check_vectors.CHECKS[section](case, _check["experiments"])
        except Exception as e:
            failed.append(f"{section}: {type(e).__name__} {e}")
        if done == count:
            return {"done": done, "failed": failed, "end": False}
    _check.clear()
    return {"done": done, "failed": failed, "end": True}


def memory():
    """Return the number of heap bytes in use."""
    return gc.mem_alloc()


CALLS = (about, parse, start, provision, enroll, answer, state, preview, report, sent, crowd, vectors, memory)
_CALLS = {call.__name__: call for call in CALLS}


def call(text):
    """Call a function, given as JSON; return {"value": ...} or {"error": text, "kind": class name} as JSON.

    Args:
        text: A list with the function's name and its arguments.
    """
    name, *arguments = json.loads(text)
    try:
        return json.dumps({"value": _CALLS[name](*arguments)})
    except (ldp_client.LDPError, TypeError) as e:
        return json.dumps({"error": str(e), "kind": type(e).__name__})
