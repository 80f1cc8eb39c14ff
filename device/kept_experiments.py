"""The experiments that a board takes part in, kept in flash from one start to the next.

A board that knows its experiments draws for `every` in advance, and needs its radio only when there
is something to send. A message that the broker repeats byte by byte costs nothing: no parsing, no
verification of a signature, no write.

    kept = KeptExperiments(client, "/experiments")      takes part in what the folder holds
    kept.take("room_temp", payload)                     a retained message of the experiment's topic

A file has the experiment's name and holds, big-endian:
    4 least serial that is accepted   the payload, an experiment or its withdrawal   4 CRC-32
The CRC covers the fleet and its announce key as well, so that another fleet's files are ignored. So is a
damaged file; the broker's next message makes a new one.

With "ask": "each" in the policy, consent covers one question. The name's file with ".yes" appended holds it:
    8 first bytes of the question's SHA-256   4 epsilon   4 CRC-32
question() in consent.py makes the first two from an experiment's JSON. New consent is needed if the question
changes or epsilon is above that of the last consent, after a withdrawal, after an opt-out, and after damage
to the file. With ".ask" appended, the file holds the payload that waits for consent, and its CRC-32.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalOperand=false

import binascii
import gc
import hashlib
import json
import os

if "." in __name__:  # the package on CPython; on a board the files lie side by side
    from . import ldp_client
else:
    import ldp_client


def load_further(names):
    """Import files with further mechanisms; return a text for each that fails.

    Experiments that need it are then refused by name, and the others continue.
    """
    faults = []
    for name in names or ():
        try:
            __import__(name)
        except Exception as e:  # an imported file may raise anything
            faults.append("%s.py: %s: %s: flash it again" % (name, type(e).__name__, e))
    return faults


def _name_in(payload):
    """Return the name in an experiment's JSON, or None if it cannot be read, which enroll() refuses."""
    end = payload.find(b"\x00")
    try:
        name = json.loads(payload if end < 0 else payload[:end])["name"]
    except (ValueError, KeyError, TypeError, RuntimeError):  # the last: nested too deep
        return None
    return name if isinstance(name, str) else None


def beside_ledger(client):
    """Return a client's KeptExperiments in the folder "experiments" of its storage, which is a folder."""
    storage = client._ledger._storage
    folder = storage if isinstance(storage, str) else getattr(storage, "_folder", None)
    ldp_client.check(
        folder, "the storage is no folder: give kept, a KeptExperiments", ldp_client.SettingsError
    )
    return KeptExperiments(client, folder + "/experiments")


def tidy():
    """Collect garbage on a board, so that free memory is in one piece."""
    if hasattr(gc, "mem_free"):  # MicroPython
        gc.collect()


class KeptExperiments:
    """A client's experiments and, in a folder, their state when the power went.

    Args:
        client: The board's Client.
        folder: Made if missing; None to keep nothing in flash.

    Attributes:
        digests: name -> SHA-256 of the payload in force.
        fault: None, or why the flash could not be written; the board continues without it.
        asking: name -> payload that waits for consent of its own.
        waiting: [name, payload], the newest message of each topic, until consider() takes it.
    """

    def __init__(self, client, folder: "str | None" = "/experiments"):
        self._client = client
        self._folder = folder
        self.digests = {}
        self._last = {}  # like digests, but withdrawals as well
        self.fault = None
        self.waiting = []  # [name, payload]: the newest message of each topic, until consider() takes it
        self._refused = {}  # name -> SHA-256 of the last payload that was refused, and the reason
        self._each = client._policy.get("ask") == "each"
        self._agreed = {}  # name -> consent.question() of the last consent
        self.asking = {}  # name -> payload that waits for consent of its own
        self._no = None  # the client's last opt-out when a message was taken
        names = client._policy["experiments"]
        if self._each:
            ldp_client._beside("consent").load(self, names)
        if folder is None:
            return
        try:
            files = os.listdir(folder)
        except OSError:  # there is none yet
            return
        for name in files:
            if name in names:
                self._load(name)
            elif "." not in name:  # no longer in the policy
                self._remove(name)

    def take(self, name, payload, agreed=False):
        """Take part in the experiment of a retained message, or stop: it may be a withdrawal.

        Args:
            name: The experiment's name, of its topic.
            payload: The message.
            agreed: Whether someone has consented to this very question.

        Raises:
            ldp_client.ExperimentRefused: With the reason; the version before it then stays in force.
        """
        self._no = self._client._no
        digest = hashlib.sha256(payload).digest()
        if self._last.get(name) == digest:
            self._client._refusals.pop(name, None)  # of another version, meanwhile
            if self._each:
                ldp_client._beside("consent").settle(self, name, None)
            return
        if payload[:1] <= b"\x00":  # a withdrawal has no JSON: it is empty, or a serial and a signature
            self._client.withdraw(name, payload)
            for table in (self.digests, self.asking, self._refused):
                table.pop(name, None)
            if self._each:
                ldp_client._beside("consent").forget(self, name)
        else:
            called = _name_in(payload)
            if called is not None and called != name:
                # Otherwise it could replace another one, and outlive its own topic.
                raise ldp_client.ExperimentRefused("it calls itself %s" % called)
            if self._each and not agreed:
                ldp_client._beside("consent").ask(self, name, payload)
            self._enroll(name, payload, False)
            if self._each:
                ldp_client._beside("consent").settle(self, name, payload if agreed else None)
            self.digests[name] = digest
        self._last[name] = digest
        self._write(name, payload)

    def agree(self, name, payload=None):
        """Consent to a question that waits in asking, for someone at the board.

        Args:
            name: The experiment's name.
            payload: What was shown, which must still wait; None for whatever waits.

        Raises:
            ldp_client.ExperimentRefused: As for take().
        """
        ldp_client._beside("consent").agree(self, name, payload)

    def put_aside(self, name, payload):
        """Let a message wait for consider(), replacing an older one; quick, however many come."""
        for message in self.waiting:
            if message[0] == name:
                message[1] = payload
                return
        self.waiting.append([name, payload])

    def consider(self):
        """Take the message that has waited longest; return its name, and why it is refused or None.

        A signature takes a Pico more than a second. Refused bytes are not looked at again.
        """
        name, payload = self.waiting.pop(0)
        tidy()  # a signature's numbers need room
        digest = hashlib.sha256(payload).digest()
        before, why = self._refused.get(name, (None, None))
        if digest != before:
            why = None
            try:
                self.take(name, payload)
            except ldp_client.LDPError as e:
                why = str(e)
                self._refused[name] = digest, why
            except MemoryError:
                why = "out of memory"
        return name, why

    def absent(self, name):
        """Remove an experiment that the broker does not repeat, and return True, if the fleet is open.

        In an open fleet that is how an experiment is withdrawn, also one that waits for consent. One that the
        application enrolled by itself stays in force.
        """
        if self._client._announce_key is not None:
            return False
        if name in self.digests or name in self.asking:
            self.take(name, b"")
        return True

    def _enroll(self, name, payload, verified):
        try:
            self._client.enroll(payload, verified)
        except ldp_client.ExperimentRefused as e:
            # Under the topic's name: the client has none for an experiment that it cannot read.
            self._client._refusals[name] = str(e)
            raise

    def _seal(self, name, data):
        """Return CRC-32 of data and of the fleet, the key and the name that it belongs to."""
        whose = (self._client.fleet + "/" + name).encode() + (self._client._announce_key or b"")
        return binascii.crc32(data, binascii.crc32(whose))

    def _load(self, name):
        try:
            with open(self._folder + "/" + name, "rb") as f:
                data = f.read()
        except OSError:  # it cannot be read: the broker will bring it again
            return
        if len(data) < 8 or self._seal(name, data[:-4]) != int.from_bytes(data[-4:], "big"):
            return
        payload = data[4:-4]
        least = int.from_bytes(data[:4], "big")
        if least:
            self._client.serials[name] = least
        if payload[:1] > b"\x00":  # no withdrawal
            try:
                if self._each:
                    ldp_client._beside("consent").ask(self, name, payload)
                self._enroll(name, payload, True)
            except ldp_client.LDPError:  # the policy has changed; status() has the reason
                return
            self.digests[name] = hashlib.sha256(payload).digest()
        self._last[name] = hashlib.sha256(payload).digest()

    def _write(self, name, payload):
        if self._folder is None:
            return
        if not payload:
            self._remove(name)
            return
        least = min(self._client.serials.get(name, 0), 0xFFFFFFFF)
        try:
            self._put(name, least.to_bytes(4, "big") + payload)
            self.fault = None
        except OSError as e:  # full, or worn: in force until the next start, or kept when it comes again
            self._last.pop(name, None)
            self.fault = "experiments cannot be kept: errno %s" % (e.args[0] if e.args else "unknown")

    def _put(self, file, data):
        try:
            os.mkdir(self._folder)  # pyright: ignore[reportArgumentType]
        except OSError:  # it is there; or open() says what is wrong
            pass
        with open(self._folder + "/" + file, "wb") as f:
            f.write(data + self._seal(file, data).to_bytes(4, "big"))

    def _remove(self, name):
        try:
            os.remove(self._folder + "/" + name)
        except OSError:  # there is none
            pass
