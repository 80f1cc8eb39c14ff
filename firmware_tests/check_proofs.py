"""Check ldp_log against vectors_log.json or more proofs in its form, line by line to need little memory.

Run it as `micropython check_proofs.py FILE`. A case's "refused" is the text of the refusal, null if the proof
is valid, or "" for any refusal.
"""

import binascii
import sys

import check_vectors
import ldp_client  # pyright: ignore[reportMissingImports]
import ldp_log  # pyright: ignore[reportMissingImports]

TEXTS = (
    "its proof from the log is missing",
    "its proof is malformed",
    "it is not in the log, or a signature in its proof is wrong",
    "too few witnesses have signed its proof",
)


def verdict(log, case):
    """Return the index in the log, or the text of the refusal."""
    topic = "hushmote/v1/{}/experiment/{}".format(case["fleet"], case["name"])
    payload, proof = binascii.unhexlify(case["payload"]), binascii.unhexlify(case["proof"])
    try:
        return ldp_log.verify(log, topic, payload, proof, bytes)
    except ldp_client.ExperimentRefused as e:
        return str(e)


def run(lines, most=None):
    """Check the cases, or the first `most`; return the numbers of valid and refused ones, and failures."""
    logs, valid, refused, failures = [], 0, 0, []
    for section, case in check_vectors.cases(lines):
        if section == "logs":
            logs.append(case)
            continue
        if valid + refused == most:
            break
        try:
            answer = verdict(logs[case["log"]], case)
        except Exception as e:
            answer = type(e).__name__
        want = case["index"] if case["refused"] is None else case["refused"]
        if answer != want and not (want == "" and answer in TEXTS):
            failures.append(f"proof {valid + refused} is {answer}, not {want or 'refused'}")
        if case["refused"] is None:
            valid += 1
        else:
            refused += 1
    return valid, refused, failures


if __name__ == "__main__":
    with open(sys.argv[1]) as lines:
        valid, refused, failures = run(lines)
    for line in failures[:20]:
        print(line)
    print(f"{valid} valid, {refused} refused, {len(failures)} failed")
