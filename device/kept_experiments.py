"""The experiments that a board takes part in, kept in flash across restarts.

A board that knows its experiments draws for `every` in advance, and needs its radio only when there is
something to send. A message that the broker repeats unchanged costs nothing: no parsing, no signature
verification, no write.

    kept = KeptExperiments(client, "/experiments")      takes part in the experiments stored in the folder
    kept.take("room_temp", payload)                     handles a retained message on an experiment's topic

Each file is named after its experiment and holds, big-endian:
    4 lowest accepted serial   the payload, an experiment or its withdrawal   4 CRC-32
The CRC also covers the fleet and its announce key, so another fleet's files are ignored. Damaged files are
ignored as well; the broker's next message replaces them.

With "log" in the policy, an experiment's payload is followed by 4 bytes, its index in the log, and 8 that
identify the log. Of a file without these, or with those of another log, only the serial counts.

A name that a firmware's policy lacks may come back with the next firmware, so its serial is kept: at the
start, the file shrinks to the serial and a zero byte as its payload. A board keeps the serials of 64 names,
as many as its ledger has entries, and refuses experiments with any further name.

With "ask": "each" in the policy, consent covers one question. The file name.yes stores it:
    8 first bytes of the question's SHA-256   4 epsilon   4 CRC-32
question() in consent.py derives the first two from an experiment's JSON. New consent is needed if the
question changes or epsilon exceeds that of the last consent, after a withdrawal, after an opt-out, and if the
file is damaged. The file name.ask stores the payload that is waiting for consent, and its CRC-32.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalOperand=false

import binascii
import gc
import hashlib
import json
import os

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
else:
    import ldp_client


def _name_in(payload):
    """Return the name in an experiment's JSON, or None for JSON that enroll() will refuse."""
    end = payload.find(b"\x00")
    try:
        name = json.loads(payload if end < 0 else payload[:end])["name"]
    except (ValueError, KeyError, TypeError, RuntimeError):  # RuntimeError: nested too deeply
        return None
    return name if isinstance(name, str) else None


def tidy():
    """Collect garbage on a board, so that free memory is contiguous."""
    if hasattr(gc, "mem_free"):  # MicroPython
        gc.collect()


class KeptExperiments:
    """A client's experiments, stored in a folder so that they survive a power cut.

    Args:
        client: The board's Client.
        folder: Created if missing; None to keep nothing in flash.

    Attributes:
        digests: name -> SHA-256 of the payload in force.
        fault: None, or why the flash could not be written; the board continues without it.
        asking: name -> payload that is waiting for its own consent.
        waiting: A list of [name, payload], the newest message on each topic that consider() has not taken;
            the name of a proof's topic is that of its experiment and "/proof".
    """

    def __init__(self, client, folder: "str | None" = "/experiments"):
        self._client = client
        self._folder = folder
        self.digests = {}
        self._last = {}  # like digests, but including withdrawals
        self.fault = None
        self.waiting = []
        self._refused = {}  # name -> SHA-256 of the last refused payload, and the reason
        self._each = client._policy.get("ask") == "each"
        self._agreed = {}  # name -> consent.question() of the last consent
        self.asking = {}
        self._opt_out = None  # the client's last opt-out at the time of the last take()
        names = client._policy["experiments"]
        files = self.files()
        if self._each or any(["." in name for name in files]):  # an opt-out ends every consent in the folder
            ldp_client._import_sibling("consent").load(self, names)
        for name in files:
            if "." not in name:
                self._load(name, name not in names)

    def files(self):
        """Return the names of the folder's files."""
        try:
            return [] if self._folder is None else os.listdir(self._folder)
        except OSError:  # the folder does not exist yet
            return []

    def take(self, name, payload, agreed=False):
        """Take part in a retained message's experiment, or stop if the message is a withdrawal.

        Args:
            name: The experiment's name, from its topic.
            payload: The message's bytes.
            agreed: Whether someone has consented to this exact question.

        Raises:
            ldp_client.ExperimentRefused: With the reason; the previous version then remains in force.
        """
        self._opt_out = self._client._opt_out
        digest = hashlib.sha256(payload).digest()
        if self._last.get(name) == digest:
            self._client._refusals.pop(name, None)  # another version may have been refused in the meantime
            if self._each:
                ldp_client._import_sibling("consent").settle(self, name, None)
            return
        if payload[:1] <= b"\x00":  # a withdrawal has no JSON: it is empty or only a serial and signature
            self._client.withdraw(name, payload)
            for table in (self.digests, self.asking, self._refused):
                table.pop(name, None)
            if self._each:
                ldp_client._import_sibling("consent").forget(self, name)
        else:
            stated_name = _name_in(payload)
            if stated_name is not None and stated_name != name:
                # Otherwise it could replace another experiment, and outlive its own topic.
                raise ldp_client.ExperimentRefused("its name is %s" % stated_name)
            if name in self._client._withdrawn and not agreed:
                return  # the application decides when to take part again
            if self._each and not agreed:
                ldp_client._import_sibling("consent").ask(self, name, payload)
            self._enroll(name, payload, False)
            if self._each:
                ldp_client._import_sibling("consent").settle(self, name, payload if agreed else None)
            self.digests[name] = digest
        self._last[name] = digest
        self._write(name, payload)

    def agree(self, name, payload=None):
        """Consent to a question in asking, on behalf of someone at the board.

        Args:
            name: The experiment's name.
            payload: The payload that was shown, which must still be waiting; None for any waiting payload.

        Raises:
            ldp_client.ExperimentRefused: As for take().
        """
        ldp_client._import_sibling("consent").agree(self, name, payload)

    def put_aside(self, name, payload):
        """Store a message for consider(), replacing an older one; fast, however many arrive."""
        for message in self.waiting:
            if message[0] == name:
                message[1] = payload
                return
        self.waiting.append([name, payload])

    def consider(self):
        """Take the message that has waited longest; return its name, and why it was refused or None.

        Verifying a signature takes a Pico more than a second. Refused payloads are not verified again.
        """
        name, payload = self.waiting.pop(0)
        tidy()  # verifying a signature needs memory
        log = self._client.log
        if log:
            name, payload = log.consider(self, name, payload)
            if payload is None:
                return name, None
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
        """Remove an experiment that the broker did not repeat, and return True, if the fleet is open.

        In an open fleet, this is how experiments are withdrawn, including those waiting for consent. An
        experiment that the application enrolled itself stays in force.
        """
        if self._client._announce_key is not None:
            return False
        if name in self.digests or name in self.asking:
            self.take(name, b"")
        return True

    def _enroll(self, name, payload, verified):
        try:
            ldp_client.check(self._has_room(name), "the serials of 64 other names are stored")
            self._client.enroll(payload, verified)
        except ldp_client.ExperimentRefused as e:
            # Use the topic's name: the client has no name for an experiment that it cannot read.
            self._client._refusals[name] = str(e)
            raise

    def _has_room(self, name):
        """Return whether a name's serial is stored, or may be."""
        if self._client._announce_key is None:
            return True
        names = [other for other in self.files() if "." not in other]
        return name in names or len(names) < 64

    def _seal(self, name, data):
        """Return the CRC-32 of data together with its fleet, announce key and name."""
        owner = (self._client.fleet + "/" + name).encode() + (self._client._announce_key or b"")
        return binascii.crc32(data, binascii.crc32(owner))

    def _load(self, name, unknown):
        """Take part in a stored experiment; if the policy does not know its name, keep only its serial."""
        try:
            with open(self._folder + "/" + name, "rb") as f:
                data = f.read()
        except OSError:  # unreadable, but the broker will send it again
            return
        if len(data) < 8 or self._seal(name, data[:-4]) != int.from_bytes(data[-4:], "big"):
            return
        payload = data[4:-4]
        least = int.from_bytes(data[:4], "big")
        if unknown:
            try:
                if not least:  # an open fleet has no serials
                    self._remove(name)
                elif payload != b"\x00":
                    self._put(name, data[:4] + b"\x00")
            except OSError:  # full or worn out: the whole file stays, with the same serial
                pass
            return
        if least:
            self._client.serials[name] = least
        if payload[:1] > b"\x00":  # not a withdrawal
            try:
                if self._client.log:
                    payload = self._client.log.load(name, payload)
                if self._each:
                    ldp_client._import_sibling("consent").ask(self, name, payload)
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
        if not self._has_room(name):  # its experiments are refused, so nothing brings an earlier one back
            return
        least = min(self._client.serials.get(name, 0), 0xFFFFFFFF)
        try:
            if self._client.log:
                payload = self._client.log.seal(name, payload)
            self._put(name, least.to_bytes(4, "big") + payload)
            self.fault = None
        except OSError as e:  # full or worn out: in force until the next start, and stored if it comes again
            self._last.pop(name, None)
            self.fault = "cannot store experiments: errno %s" % (e.args[0] if e.args else "unknown")

    def _put(self, file, data):
        path = self._folder + "/" + file
        data += self._seal(file, data).to_bytes(4, "big")
        if hasattr(os, "fsync"):  # on CPython; littlefs on a board syncs each file as it is closed
            disk = ldp_client._import_sibling("disk")
            disk.mkdir(self._folder)
            disk.replace(path, data)
            return
        try:
            os.mkdir(self._folder)  # pyright: ignore[reportArgumentType]
        except OSError:  # it exists, or open() will raise the reason
            pass
        with open(path, "wb") as f:
            f.write(data)

    def _remove(self, name):
        path = self._folder + "/" + name
        try:
            if hasattr(os, "fsync"):
                ldp_client._import_sibling("disk").remove(path)
            else:
                os.remove(path)
        except OSError as e:
            if not e.args or e.args[0] not in (2, 44):  # ENOENT (44 in WebAssembly): nothing to remove
                self.fault = "cannot remove experiments: errno %s" % (e.args[0] if e.args else "unknown")
