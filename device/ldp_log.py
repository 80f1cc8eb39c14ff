"""Checks that a fleet's experiments are in a public log, which witnesses watch, if the policy has "log".

    "log": {"origin": "example.org/questions", "keys": (LOG, WITNESS, WITNESS), "need": 2}

Every key is 128 hex digits, x and y of a P-256 key. A board takes an experiment only with a proof that it is
in the log's tree (RFC 6962), under a tree head that the log and `need` of the witnesses have signed. Each
witness signs only if its own rule holds: one version of an experiment at a time, and at most one change a
day. So nobody can ask one home what the others are not asked.

A proof, big-endian:
    4 index   4 size of the tree   1 n   n * 32 hashes, lowest first
    and for each signature: 1 index of its key   64 r and s
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
    number = int.from_bytes
    index, last = number(proof[:4], "big"), number(proof[4:8], "big") - 1
    end = 9 + 32 * (proof[8] if len(proof) > 8 else 0)
    count, rest = divmod(len(proof) - end, 65)
    check(0 <= index <= last and count > 0 and not rest, "its proof is malformed")
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
    before = -1
    is_valid = ldp_client._import_sibling("ldp_p256").verify
    for at in range(end, len(proof), 65):
        key = proof[at]
        # In rising order, so that none counts twice.
        check(before < key < len(log["keys"]), "its proof is malformed")
        before = key
        feed()
        good = is_valid(binascii.unhexlify(log["keys"][key]), digest, proof[at + 1 : at + 65])
        check(good, "it is not in the log, or a signature in its proof is wrong")
    check(not proof[end] and count > log["need"], "too few witnesses have signed its proof")
    return number(proof[:4], "big")
