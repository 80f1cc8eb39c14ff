"""Checks that a fleet's experiments are in a public log, which witnesses watch, if the policy has "log".

    "log": {"origin": "example.org/questions", "keys": (LOG, WITNESS, WITNESS), "need": 2}

Every key is 128 hex digits, x and y of a P-256 key. A board takes an experiment only with a proof that it is
in the log's tree (RFC 6962), under a tree head that the log and `need` of the witnesses have signed. Each
witness signs only if its own rule holds: one version of an experiment at a time, and at most one change a
day. So nobody can ask one home what the others are not asked.

A proof, big-endian:
    4 index   4 size of the tree   1 n   n * 32 hashes, lowest first   64 r and s of the log
    and for each witness: the first 4 of its key   64 r and s

A board skips witnesses that its policy does not have, so boards with different policies can take one proof.
"""

# pyright: reportMissingImports=false

import binascii
import hashlib

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
else:
    import ldp_client

check = ldp_client.check


def verify(log, topic, payload, proof, feed):
    """Return an experiment's index in the log; raise ExperimentRefused if the proof does not show it.

    Args:
        log: The policy's "log".
        topic: The experiment's topic, without the prefix that a broker's address may have.
        payload: The message on it.
        proof: The message on its proof's topic; empty if there is none.
        feed: A function without arguments, called before each signature: one takes a chip a second.
    """
    check(proof, "its proof from the log is missing")
    number, size = int.from_bytes, len(proof)
    index, last = number(proof[:4], "big"), number(proof[4:8], "big") - 1
    end = 9 + 32 * (proof[8] if size > 8 else 0)
    good = 0 <= index <= last and size - end in range(64, 1601 - end, 68)
    check(good, "its proof is malformed")
    body = "%s\n%d\n" % (log["origin"], last + 1)
    node = hashlib.sha256(b"\0" + topic.encode() + b"\0" + payload).digest()
    for at in range(9, end, 32):
        check(last, "its proof is malformed")
        path = proof[at : at + 32]
        if index & 1 or index == last:
            node = hashlib.sha256(b"\1" + path + node).digest()
            while index and not index & 1:
                index >>= 1
                last >>= 1
        else:
            node = hashlib.sha256(b"\1" + node + path).digest()
        index >>= 1
        last >>= 1
    check(not last, "its proof is malformed")
    digest = hashlib.sha256(body.encode() + binascii.b2a_base64(node)).digest()
    is_valid = ldp_client._import_sibling("ldp_p256").verify
    count = 0
    for digits in log["keys"]:
        key, at = binascii.unhexlify(digits), end
        if count:  # a witness's
            at += 64
            while at < size and not proof.startswith(key[:4], at):
                at += 68
            at += 4
        # No more than are needed, however many a proof has.
        if count <= log["need"] and at < size:
            feed()
            good = is_valid(key, digest, proof[at : at + 64])
            check(good, "it is not in the log, or a signature in its proof is wrong")
            count += 1
    check(count > log["need"], "too few witnesses have signed its proof")
    return number(proof[:4], "big")
