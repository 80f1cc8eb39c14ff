"""The part of a client whose policy has "log": it takes only experiments that a public log has.

ldp_log.py describes the policy's "log", and checks proofs. Boards import this file only if they need it.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
else:
    import ldp_client

_TAIL_BYTES = 12


class Log:
    """A client's view of the log that its policy names.

    Args:
        client: The Client.

    Attributes:
        proofs: An experiment's name -> the newest message on the topic of its proof, until it was used.
        feed: A function without arguments, called before each signature is verified, to feed a watchdog; not
            needed with a Reporter, whose own is called.

    Raises:
        ldp_client.SettingsError: If the policy's "log" is wrong, or the fleet has no announce key.
    """

    def __init__(self, client):
        self._client = client
        self._log = log = client._policy["log"]
        ldp_client._import_sibling("ldp_log_policy").check(log, client._announce_key)
        text = "%s %s %d" % (log["origin"], " ".join(log["keys"]).lower(), log["need"])
        self._identity = ldp_client._sha256(text.encode())[:8]
        self.proofs = {}
        self.feed = bytes  # a function that does nothing
        self._reporter = None
        self._payloads = {}  # name -> the newest message on its topic, while its proof may still come
        self._found = {}  # name -> up to two of (SHA-256, index): the version in force, and one in question

    def _index(self, name, payload):
        digest = ldp_client._sha256(payload)
        for found, index in self._found.get(name, ()):
            if found == digest:
                return index
        return None

    def _add(self, name, payload, index):
        entry = (ldp_client._sha256(payload), index)
        self._found[name] = self._found.get(name, [])[-1:] + [entry]

    def words(self, exp=None):
        """Return what the log means for the people at the board, or a sentence about an experiment."""
        text = ldp_client._import_sibling("ldp_log_policy").words(self._log)
        return text if exp is None else "A%s; entry %d of %s." % (text[1:], exp.leaf, self._log["origin"])

    def verify(self, name, payload):
        """Return an experiment's index in the log; a message that was found before is not verified again.

        Args:
            name: The experiment's name.
            payload: The message on its topic.

        Raises:
            ldp_client.ExperimentRefused: If the log does not have this message.
        """
        index = self._index(name, payload)
        if index is None:
            # The serial is compared first, so a replayed old message costs no verification.
            serial = int.from_bytes(payload.partition(b"\0")[2][:4], "big")
            least = self._client.serials.get(name, 0)
            ldp_client.check(serial >= least, "a newer version was published")
            ldp_client._import_sibling("ldp_log_policy").check_every(payload)
            topic = "hushmote/v1/%s/experiment/%s" % (self._client.fleet, name)
            proof, feed = self.proofs.get(name, b""), getattr(self._reporter, "_feed", self.feed)
            ldp_log = ldp_client._import_sibling("ldp_log")
            index = ldp_log.verify(self._log, topic, payload, proof, feed)
            feed()  # the message's own signature comes next
            self._add(name, payload, index)
            del self.proofs[name]
        # Someone may have consented to the version before the one that waits.
        if self._payloads.get(name) == payload:
            del self._payloads[name]
        return index

    # For KeptExperiments and reporters

    def subscribe(self, reporter):
        """Add the topics of proofs to those of a reporter; the name of each is NAME/proof."""
        self._reporter = reporter
        topics = reporter._names
        for name in list(topics):
            root = topics[name].rsplit(b"/", 2)[0]
            topics[name + "/proof"] = root + b"/proof/" + name.encode()

    def consider(self, experiments, name, payload):
        """Store a message; return the experiment's name and the payload to take, or None if there is none.

        An experiment is considered again when a new proof comes. A proof that comes again changes nothing,
        and neither does an empty message, which deletes a retained one.

        Args:
            experiments: The KeptExperiments.
            name: The experiment's name, or NAME/proof.
            payload: The message.
        """
        if "/" not in name:
            self._payloads.pop(name, None)
            # A withdrawal needs no proof, and neither does a message that was found before.
            if payload[:1] > b"\0" and self._index(name, payload) is None:
                self._payloads[name] = payload
            return name, payload
        name = name[:-6]
        if not payload or self.proofs.get(name) == payload:
            return None, None
        self.proofs[name] = payload
        experiments._refused.pop(name, None)  # even if nothing waits: the refused message may be repeated
        payload = self._payloads.get(name)
        return (None if payload is None else name), payload

    def seal(self, name, payload):
        """Return what to keep in flash: an experiment is followed by its index and the log's identity."""
        if payload[:1] <= b"\0":  # a withdrawal, which needs no proof
            return payload
        return payload + self._index(name, payload).to_bytes(4, "big") + self._identity

    def load(self, name, data):
        """Return the payload in what seal() returned, which then needs no proof.

        Raises:
            ldp_client.ExperimentRefused: If it was found in another log or in none.
        """
        ldp_client.check(data[-8:] == self._identity, "its proof from the log is missing")
        payload = data[:-_TAIL_BYTES]
        self._add(name, payload, int.from_bytes(data[-_TAIL_BYTES:-8], "big"))
        return payload
