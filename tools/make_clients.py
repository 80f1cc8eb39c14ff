"""Write each client's features into clients/README.md, by trying all experiments of the vectors on each.

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
    """Return (type, mechanism, JSON) of every experiment in the vectors."""
    experiments = []
    for name in ("vectors.json", "vectors_further.json"):
        for case in json.loads((ROOT / "tests" / name).read_text())["experiments"]:
            fields = json.loads(case["payload"])
            experiments.append((fields["type"], fields["mechanism"], case["payload"].encode()))
    return experiments


def on_boards(payload: bytes) -> bool:
    """Return whether a board accepts it, with all files beside its client."""
    try:
        return bool(Experiment.parse(payload))
    except ExperimentRefused:
        return False


def in_javascript(payloads: list[bytes]) -> list[bool]:
    """Return whether the client in Node accepts each."""
    jobs = json.dumps([["parse", {"$hex": payload.hex()}] for payload in payloads])
    command = [str(shutil.which("node")), str(RIG)]
    done = subprocess.run(command, input=jobs, capture_output=True, text=True, check=True)
    return [
        line.startswith("{") for line in done.stdout.splitlines()[1:]
    ]  # other lines are the reason for a refusal


def words_of(cases: list[tuple[str, str, bytes]], is_taken: list[bool]) -> tuple[set[str], set[str]]:
    """Return the types and the mechanisms that a client has: it accepts all their vectors.

    Vectors of a mechanism that the client does not have are not evidence about their types.
    """
    answers = list(zip(cases, is_taken, strict=True))
    refused = {case[1] for case, is_accepted in answers if not is_accepted}
    mechanisms = {case[1] for case in cases} - refused
    partly = {case[1] for case, is_accepted in answers if is_accepted}
    judged = [(case[0], is_accepted) for case, is_accepted in answers if case[1] in partly]
    return {kind for kind, _ in judged} - {
        kind for kind, is_accepted in judged if not is_accepted
    }, mechanisms


def table() -> str:
    """Return the rows: which types and mechanisms each client has."""
    experiments = cases()
    payloads = [payload for _, _, payload in experiments]
    with tempfile.TemporaryDirectory() as folder:
        core = Core(Path(folder))
        in_c = [core.parse(payload)[0] == 0 for payload in payloads]
    answers = (list(map(on_boards, payloads)), in_c, in_javascript(payloads))
    clients = [words_of(experiments, is_taken) for is_taken in answers]
    rows = ["| | MicroPython | C | JavaScript |", "|---|---|---|---|"]
    for of, what in ((0, "type"), (1, "mechanism")):
        for word in dict.fromkeys(case[of] for case in experiments):
            marks = ("yes" if word in client[of] else "no" for client in clients)
            rows.append(f"| {what} `{word}` | {' | '.join(marks)} |")
    return "\n".join(rows)


def build_page() -> str:
    """Return the whole page with the current table."""
    return re.sub(r"\| \| MicroPython (.|\n)*?(?=\n\n|\n\Z)", lambda _: table(), FILE.read_text(), count=1)


if __name__ == "__main__":
    FILE.write_text(build_page())
