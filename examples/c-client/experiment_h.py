"""Writes an experiment down as C.

    hushmote experiment show FILE --json | python3 experiment_h.py > experiment.h

A firmware that takes experiments from the broker needs a JSON reader and SHA-256 instead, and refuses what
docs/wire-format.md does not allow. This script trusts its input: `hushmote experiment show` has checked it.
"""

import hashlib
import json
import sys


def initializer(payload: bytes) -> str:
    """The fields of an hm_experiment in braces; payload: the JSON's bytes as they are published."""
    fields = json.loads(payload)
    cells, labels, budget = fields.get("cells", []), fields.get("labels", []), fields["budget"]
    digest = ", ".join(f"0x{byte:02x}" for byte in hashlib.sha256(payload).digest()[:4])
    parts = {
        "name": json.dumps(fields["name"]),
        "digest": f"{{{digest}}}",
        "type": f"HM_{fields['type'].upper()}",
        "mechanism": f"HM_{fields['mechanism'].upper()}",
        "epsilon": fields["epsilon"],
        "every": fields.get("every", 1),
        "rule": f"HM_{budget['rule'].upper()}",
        "cap": f"{budget.get('cap', 0)}ULL",
    }
    if labels:
        parts["labels"] = f"(const char *const[]){{{', '.join(map(json.dumps, labels))}}}"
        parts["label_count"] = len(labels)
    if "bins" in fields:
        parts |= {"low": f"{fields['low']}LL", "high": f"{fields['high']}LL", "bins": fields["bins"]}
    parts |= {name: fields[name] for name in ("g", "fanout") if name in fields}
    if cells:
        weights = fields.get("weights", [1] * len(cells))
        parts |= {
            name: f"{{{', '.join(map(str, x))}}}" for name, x in (("cells", cells), ("weights", weights))
        }
        parts["cell_count"] = len(cells)
    return "{" + ", ".join(f".{name} = {value}" for name, value in parts.items()) + "}"


if __name__ == "__main__":
    print(f"#define EXPERIMENT {initializer(json.load(sys.stdin)['payload'].encode())}")
