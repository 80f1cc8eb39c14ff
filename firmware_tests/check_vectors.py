"""Check ldp_client against vectors.json, on a board or on CPython, using only ldp_client, json and binascii.

It imports the further mechanisms in ldp_NAME.py if they exist, and reads the vectors one line, and thus one
case, at a time to save memory.

    micropython check_vectors.py vectors.json
"""

import binascii
import json
import os
import sys

import ldp_client  # pyright: ignore[reportMissingImports]

POLICY = {
    "sum": (1 << 48) - 1,
    "squares": (1 << 64) - 1,
    "epsilon": 16000000,
    "rules": ("sum", "squares", "count", "unlimited"),
    "experiments": ("e", "f", "room_temp", "a" * 32),
    "groups": ("firmware", "m_0-" * 8, "model"),
}


def load_further():
    """Import every ldp_NAME on the module path, except those of the log, which add no mechanism."""
    for folder in sys.path:
        try:
            files = os.listdir(folder or ".")
        except OSError:  # the folder does not exist, or is frozen
            continue
        for file in files:
            name, _, kind = file.partition(".")
            if (
                name.startswith("ldp_") and not name.startswith("ldp_log") and kind in ("py", "mpy")
            ):  # endswith() takes no tuple before 1.25
                __import__(name)


class Storage:
    def __init__(self, slots):
        self.slots = [None if s is None else binascii.unhexlify(s) for s in slots]

    def read(self, slot):
        return self.slots[slot]

    def write(self, slot, data):
        self.slots[slot] = data


class Script:
    """An rng that plays back draws, and fails at an unexpected call."""

    def __init__(self, draws):
        self.draws = draws
        self.at = 0

    def _next(self, name, argument):
        draw = self.draws[self.at]
        self.at += 1
        if draw[0] != name or draw[1] != argument:
            raise AssertionError(f"drew {name}({argument}), not {draw[0]}({draw[1]})")
        return draw[2]

    def below(self, n):
        return self._next("below", n)

    def bernoulli(self, threshold):
        return bool(self._next("bernoulli", threshold))


def same(got, want, what=""):
    if got != want:
        raise AssertionError("{} is {}, not {}".format(what or "it", got, want))


def refused(call, error, text):
    try:
        call()
    except ldp_client.LDPError as e:
        same(type(e).__name__, error, "the error")
        same(str(e), text, "the text")
        return
    raise AssertionError("was not refused: " + text)


def check_thresholds(case, experiments):
    same(ldp_client.truth_threshold(case["epsilon"], case["g"]), case["threshold"])


_NUMBERS = ("epsilon", "every", "fanout", "cap", "domain", "weight_sum", "code_count", "code_bytes")


def check_experiments(case, experiments):
    exp = ldp_client.Experiment.parse(case["payload"].encode())
    for name in _NUMBERS:
        same(getattr(exp, name), case[name], name)
    same(binascii.hexlify(exp.sha256).decode(), case["sha256"], "sha256")
    same(exp.digest, exp.sha256[:4], "digest")
    if case["levels"]:  # otherwise the levels are of another kind, which the codes distinguish
        same(len(exp.levels), len(case["levels"]), "number of levels")
    if "group" in case:
        same(exp.group, case["group"], "group")
        same(list(exp.groups), case["groups"], "groups")
        same([exp.every_of(i) for i in range(len(exp.groups) + 1)], case["every_of"], "every_of")
    for i, want in enumerate(case["levels"]):
        x = exp.levels[i]
        same([x.domain, x.g, x.t, x.width, x.offset, x.threshold, x.weight], want, "level")
    experiments[case["sha256"][:8]] = exp


def check_codes(case, experiments):
    rng = Script(case["draws"])
    same(experiments[case["experiment"]].randomize(case["index"], rng), case["code"], "code")
    same(rng.at, len(case["draws"]), "number of draws")


_KINDS = {
    "int": int,
    "float": float,
    "text": str,
    "bool": bool,
    "bytes": lambda value: value.encode(),
    "list": list,
    "tuple": tuple,
    "none": lambda value: None,
}


def check_buckets(case, experiments):
    value = _KINDS[case["kind"]](case["value"])
    try:
        index = experiments[case["experiment"]].bucket(value)
    except TypeError:
        index = "TypeError"
    same(index, case["index"], "index")


def check_drbg(case, experiments):
    rng = ldp_client.DRBG(binascii.unhexlify(case["seed"]))
    for step in case["steps"]:
        if step[0] == "reseed":
            rng.reseed(binascii.unhexlify(step[1]))
        elif step[0] == "generate":
            same(binascii.hexlify(rng.generate(step[1])).decode(), step[2], "generate")
        elif step[0] == "below":
            same(rng.below(step[1]), step[2], "below")
        else:
            same(rng.bernoulli(step[1]), bool(step[2]), "bernoulli")


def check_reports(case, experiments):
    storage = Storage(case["before"])
    key = None if case["key"] is None else binascii.unhexlify(case["key"])
    client = ldp_client.Client(POLICY, storage, case["device"], key)
    exp = client.enroll(case["payload"].encode())
    client.rng = Script(case["draws"])
    report = client.report(exp.name, None, None, case.get("group"))
    same(report and binascii.hexlify(report).decode(), case["report"], "report")
    same(client.rng.at, len(case["draws"]), "number of draws")
    if report is None:
        same([binascii.hexlify(s).decode() for s in storage.slots], case["before"], "the ledger")
        return
    # Replace the random seed with the vector's zeros, and recompute the record's checksum.
    newer, older = storage.slots
    want = binascii.unhexlify(case["after"])[:-4]
    want = want[:6] + newer[6:22] + want[22:]
    want += (binascii.crc32(want) & 0xFFFFFFFF).to_bytes(4, "big")
    same(binascii.hexlify(newer), binascii.hexlify(want), "ledger")
    same(binascii.hexlify(older).decode(), case["before"][1], "the older ledger")


def check_policies(case, experiments):
    policy = dict(POLICY, groups=case["groups"])
    if case["groups"] is None:
        del policy["groups"]
    client = ldp_client.Client(policy, Storage([None, None]), "d")
    if case["refused"] is None:
        client.enroll(case["payload"].encode())
    else:
        refused(lambda: client.enroll(case["payload"].encode()), "ExperimentRefused", case["refused"])


def check_signatures(case, experiments):
    key = binascii.unhexlify(case["key"])
    client = ldp_client.Client(POLICY, Storage([None, None]), "d", None, key, case["fleet"])
    client.serials["e"] = case["least"]
    payload = binascii.unhexlify(case["payload"])
    if case["refused"] is None:
        client.enroll(payload)
    else:
        refused(lambda: client.enroll(payload), "ExperimentRefused", case["refused"])


def check_withdrawals(case, experiments):
    key = case["key"] and binascii.unhexlify(case["key"])
    client = ldp_client.Client(POLICY, Storage([None, None]), "d", None, key, case["fleet"])
    name = "e"
    client._experiments[name] = True  # in force, whatever its version
    client.serials[name] = case["least"]
    payload = binascii.unhexlify(case["withdrawal"])
    if case["refused"] is None:
        client.withdraw(name, payload)
        same(client._experiments, {}, "the experiments in force")
        same(client.serials[name], int.from_bytes(payload[1:5], "big"), "the serial")
    else:
        refused(lambda: client.withdraw(name, payload), "ExperimentRefused", case["refused"])
        same(
            (client._experiments, client.serials),
            ({name: True}, {name: case["least"]}),
            "the experiments and serials",
        )
    # Boards without support for signed withdrawals treat the payload as an invalid experiment.
    refused(lambda: client.enroll(payload), "ExperimentRefused", "not a JSON object")


LOCKED = {"consent": None, "sum": 0, "squares": 0, "reports": [0, 0], "outbox": []}


def check_ledgers(case, experiments):
    if case["locked"]:
        case.update(LOCKED)
    client = ldp_client.Client(POLICY, Storage(case["slots"]), "board-1")
    status = client.status()
    same(status["locked"], case["locked"], "locked")
    same(status["consent"], case["consent"], "consent")
    same(client.consent, case["consent"], "consent")
    for name in ("sum", "squares"):
        same(status[name], case[name], name)
    reports = [status["experiments"][name]["reports"] for name in ("e", "f")]
    same(reports, case["reports"], "reports of e and f")
    same([binascii.hexlify(r).decode() for r in client.outbox()], case["outbox"], "outbox")


def check_malformed(case, experiments):
    payload = binascii.unhexlify(case["hex"]) if "hex" in case else case["payload"].encode()
    refused(lambda: ldp_client.Experiment.parse(payload), "ExperimentRefused", case["text"])


# Numbers that binary floats of 32 bits hold to a thousandth.
_MAX_MILLI = 2000000


def check_scales(case, experiments):
    exp = ldp_client.Experiment.parse(case["payload"].encode())
    edges = case["edges"]
    same(list(exp.edges), edges, "edges")
    for edge in edges:
        for milli in (edge - 1, edge, edge + 1, edge - edge % 1000):
            index = sum([milli >= x for x in edges[1:-1]])
            if milli % 1000 == 0:
                same(exp.bucket(milli // 1000), index, f"index of {milli // 1000}")
            if milli < _MAX_MILLI:
                same(exp.bucket(milli / 1000), index, f"index of {milli} / 1000")
    last = len(edges) - 2
    for value, index in (
        (0, 0),
        (-1.5, 0),
        (-(10**30), 0),
        (10**30, last),
        (float("inf"), last),
        (None, exp.missing),
    ):
        same(exp.bucket(value), index, f"index of {value}")


def check_settings(case, experiments):
    def client():
        keys = [case[k] for k in ("key", "announce_key")]
        keys = [None if k is None else binascii.unhexlify(k) for k in keys]
        ldp_client.Client(POLICY, Storage([None] * 2), case["device"], keys[0], keys[1], case["fleet"])

    refused(client, "SettingsError", case["text"])


CHECKS = {
    "thresholds": check_thresholds,
    "experiments": check_experiments,
    "codes": check_codes,
    "buckets": check_buckets,
    "drbg": check_drbg,
    "reports": check_reports,
    "policies": check_policies,
    "signatures": check_signatures,
    "withdrawals": check_withdrawals,
    "ledgers": check_ledgers,
    "malformed": check_malformed,
    "scales": check_scales,
    "settings": check_settings,
}


def cases(lines):
    """Yield (section, case) from the lines of vectors.json."""
    section = ""
    for line in lines:
        line = line.strip().rstrip(",")
        if line.endswith("[") and line.startswith('"'):
            section = line.split('"')[1]
        elif len(line) > 1:
            yield section, json.loads(line)


# A chip verifies one in a second, an emulated one in ten.
_SIGNATURES_EVERY = 4 if sys.platform in ("rp2", "esp32") else 1


def run(lines):
    """Check every case; return the number of cases by section, and a list of failures."""
    load_further()
    counts = {}
    failures = []
    experiments = {}
    for section, case in cases(lines):
        counts[section] = counts.get(section, 0) + 1
        if section in ("signatures", "withdrawals") and counts[section] % _SIGNATURES_EVERY:
            continue
        try:
            CHECKS[section](case, experiments)
        except Exception as e:
            failures.append(f"{section} {counts[section]}: {type(e).__name__} {e}")
    return counts, failures


def main(path):
    with open(path) as lines:
        counts, failures = run(lines)
    for line in failures:
        print(line)
    print(counts)
    if failures or not counts:
        print("FAILED:", len(failures), "cases of", sum(counts.values()))
        sys.exit(1)
    print("passed:", sum(counts.values()), "cases")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "vectors.json")
