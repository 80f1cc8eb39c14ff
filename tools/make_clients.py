"""Write each client's features to clients/README.md, by trying all experiments in the vectors on each.

python tools/make_clients.py
"""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import _paths  # noqa: F401
from c_experiments import Core

from hushmote.device.ldp_client import Experiment, ExperimentRefused

ROOT = Path(__file__).parents[1]
FILE = ROOT / "clients" / "README.md"
RIG = ROOT / "tests" / "clients" / "js_rig.mjs"


def cases() -> list[tuple[str, str, bytes]]:
    """Return every experiment in the vectors as (type, mechanism, JSON)."""
    experiments = []
    for name in ("vectors.json", "vectors_further.json"):
        for case in json.loads((ROOT / "tests" / name).read_text())["experiments"]:
            fields = json.loads(case["payload"])
            experiments.append((fields["type"], fields["mechanism"], case["payload"].encode()))
    return experiments


def on_boards(payload: bytes) -> bool:
    """Return whether a board with every optional module accepts an experiment."""
    try:
        return bool(Experiment.parse(payload))
    except ExperimentRefused:
        return False


def in_javascript(payloads: list[bytes]) -> list[bool]:
    """Return, for each experiment, whether the JavaScript client on Node accepts it."""
    jobs = json.dumps([["parse", {"$hex": payload.hex()}] for payload in payloads])
    command = [str(shutil.which("node")), str(RIG)]
    done = subprocess.run(command, input=jobs, capture_output=True, text=True, check=True)
    # Other lines give the reason for a refusal.
    return [line.startswith("{") for line in done.stdout.splitlines()[1:]]


def words_of(experiments: list[tuple[str, str, bytes]], accepted: list[bool]) -> tuple[set[str], set[str]]:
    """Return the types and mechanisms that a client supports, which means that it accepts all their vectors.

    Vectors of a mechanism that the client does not support say nothing about their types.
    """
    answers = [(kind, word, taken) for (kind, word, _), taken in zip(experiments, accepted, strict=True)]
    refused = {word for _, word, taken in answers if not taken}
    partly = {word for _, word, taken in answers if taken}
    judged = [(kind, taken) for kind, word, taken in answers if word in partly]
    types = {kind for kind, _ in judged} - {kind for kind, taken in judged if not taken}
    return types, partly - refused


def table() -> str:
    """Return the table's rows: the types and mechanisms that each client supports."""
    experiments = cases()
    payloads = [payload for _, _, payload in experiments]
    with tempfile.TemporaryDirectory() as folder:
        core = Core(Path(folder))
        in_c = [core.parse(payload)[0] == 0 for payload in payloads]
    answers = (list(map(on_boards, payloads)), in_c, in_javascript(payloads))
    clients = [words_of(experiments, accepted) for accepted in answers]
    rows = ["| | MicroPython | C | JavaScript |", "|---|---|---|---|"]
    for i, kind in ((0, "type"), (1, "mechanism")):
        for word in dict.fromkeys(case[i] for case in experiments):
            marks = ("yes" if word in client[i] else "no" for client in clients)
            rows.append(f"| {kind} `{word}` | {' | '.join(marks)} |")
    return "\n".join(rows)


def build_page() -> str:
    """Return the whole page with the current table."""
    return re.sub(r"\| \| MicroPython (.|\n)*?(?=\n\n|\n\Z)", lambda _: table(), FILE.read_text(), count=1)


if __name__ == "__main__":
    FILE.write_text(build_page())
