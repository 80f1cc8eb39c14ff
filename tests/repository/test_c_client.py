"""examples/c-client: written from docs/wire-format.md, held to the vectors, counted by a real aggregator."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
from running import until
from served import served
from traffic import needs_mosquitto, publish

from hushmote.device.ldp_client import Experiment
from hushmote.server.store import Store
from hushmote.server.wire import report, topics
from hushmote.simulator.broker import MosquittoBroker

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples" / "c-client"
VECTORS = json.loads((ROOT / "tests" / "vectors.json").read_text())
EXPERIMENTS = [case["payload"] for case in VECTORS["experiments"]]
OPEN = [case for case in VECTORS["reports"] if case["key"] is None]
WARNINGS = ["-std=c99", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"]
SANITIZE = ("-fsanitize=undefined,address", "-fno-sanitize-recover=all")
initializer = runpy.run_path(str(SOURCE / "experiment_h.py"))["initializer"]
DIGESTS = [case["sha256"][:8] for case in VECTORS["experiments"]]

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler (gcc)")


def compiled(folder: Path, *sources: str) -> Path:
    """A program of the client's files and the folder's header; with gcc's sanitizers where they are."""
    program = folder / "program"
    command = ["gcc", *WARNINGS, f"-I{folder}", "-o", str(program), *(str(SOURCE / name) for name in sources)]
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    probe = ["gcc", *SANITIZE, "-o", str(folder / "empty"), str(folder / "empty.c")]
    sanitized = subprocess.run(probe, capture_output=True, check=False).returncode == 0
    done = subprocess.run(
        [*command, *(SANITIZE if sanitized else ()), "-lm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return program


def checker(folder: Path, payloads: list[str]) -> Path:
    """check.c with these experiments."""
    rows = ", \\\n".join(initializer(payload.encode()) for payload in payloads)
    (folder / "experiments.h").write_text(f"#define EXPERIMENTS {{ \\\n{rows}}}\n")
    return compiled(folder, "hushmote.c", "kernel_random.c", "check.c")


@pytest.fixture(scope="module")
def check(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checker(tmp_path_factory.mktemp("check"), EXPERIMENTS)


def answers(check: Path, questions: list[str]) -> list[str]:
    done = subprocess.run(
        [check], input="\n".join(questions) + "\n", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    return done.stdout.splitlines()


# What hm_derive() judges; whoever reads the JSON has to judge the rest.
DERIVED = re.compile(
    "(epsilon|every|low|bins|g|cap|fanout|cells|weights) must|rr is|cells:|the last of|more than 1677"
    "|epsilon is too small"
)


def fits_c(fields: dict) -> bool:
    """Whether hm_experiment can hold the numbers, right or wrong."""
    numbers = [fields.get(name, 1) for name in ("epsilon", "every", "bins", "g", "fanout")]
    lists = [fields.get(name, []) for name in ("cells", "weights")]
    if not all(type(x) is list for x in lists):
        return False
    cap = fields["budget"].get("cap", 0)
    wide = [fields.get("low", 0), fields.get("high", 1)]
    return (
        all(type(x) is int for x in (*numbers, *lists[0], *lists[1], *wide, cap))
        and all(0 <= x < 2**32 for x in (*numbers, *lists[0], *lists[1]))
        and all(abs(x) < 2**63 for x in (*wide, cap))
        and cap >= 0
    )


def test_what_the_vectors_refuse_is_refused(tmp_path: Path):
    payloads = [c["payload"] for c in VECTORS["malformed"] if DERIVED.match(c["text"]) and "payload" in c]
    wrong = [payload for payload in payloads if fits_c(json.loads(payload))]
    assert len(wrong) > 25
    check = checker(tmp_path, [*wrong, EXPERIMENTS[0]])
    found = answers(check, [f"levels {i}" for i in range(len(wrong) + 1)])
    assert [line.split()[0] for line in found] == ["0"] * len(wrong) + ["1"]


def draws(case: dict) -> str:
    return " ".join(f"{name} {argument} {outcome}" for name, argument, outcome in case["draws"])


def test_thresholds_are_those_of_the_vectors(check: Path):
    cases = VECTORS["thresholds"]
    assert answers(check, [f"threshold {c['epsilon']} {c['g']}" for c in cases]) == [
        str(c["threshold"]) for c in cases
    ]
    assert answers(check, ["threshold 999 2", "threshold 16000001 2", "threshold 1000 1"]) == ["0"] * 3


def test_levels_are_those_of_the_vectors(check: Path):
    wanted = [
        [
            1,
            c["domain"],
            c["weight_sum"],
            c["code_count"],
            c["code_bytes"],
            *(x for level in c["levels"] for x in level),
        ]
        for c in VECTORS["experiments"]
    ]
    found = answers(check, [f"levels {i}" for i in range(len(wanted))])
    assert [[int(x) for x in line.split()] for line in found] == wanted


def test_readings_fall_into_the_indices_of_the_vectors(check: Path):
    kinds = {"int": "number", "float": "number", "bool": "number", "text": "text"}
    # No reading draws its index: test_codes_are_those_of_the_vectors has it.
    cases = [c for c in VECTORS["buckets"] if c["index"] not in (None, "TypeError")]
    assert len(cases) > 90
    assert {c["kind"] for c in cases} == set(kinds)
    questions = [f"{kinds[c['kind']]} {DIGESTS.index(c['experiment'])} {c['value']}" for c in cases]
    assert [int(x) for x in answers(check, questions)] == [c["index"] for c in cases]


def test_codes_are_those_of_the_vectors(check: Path):
    cases = VECTORS["codes"]
    asked = ["none {}" if c["index"] is None else f"code {{}} {c['index']}" for c in cases]
    questions = [
        f"{question.format(DIGESTS.index(c['experiment']))} {draws(c)}"
        for question, c in zip(asked, cases, strict=True)
    ]
    assert [int(x) for x in answers(check, questions)] == [c["code"] for c in cases]


def test_reports_of_open_fleets_are_those_of_the_vectors(check: Path):
    assert len(OPEN) >= 5
    questions = [
        f"report {EXPERIMENTS.index(c['payload'])} {int(c['report'][10:18], 16)} {draws(c)}" for c in OPEN
    ]
    assert answers(check, questions) == [c["report"] for c in OPEN]


def test_its_draws_have_their_chances(check: Path):
    """Each count of 200,000 draws is within 7 standard deviations: chance of a false alarm below 1e-10."""
    n = 200_000
    for outcomes in (2, 3, 5, 129):
        (line,) = answers(check, [f"below {outcomes} {n}"])
        mean, deviation = n / outcomes, (n / outcomes * (1 - 1 / outcomes)) ** 0.5
        counts = [int(x) for x in line.split()]
        assert (len(counts), sum(counts)) == (outcomes, n)
        assert all(abs(count - mean) < 7 * deviation for count in counts), counts
    for threshold in (510_421_307, 1_073_741_703):
        (line,) = answers(check, [f"bernoulli {threshold} {n}"])
        p = threshold / 2**30
        assert abs(int(line.split()[1]) - n * p) < 7 * (n * p * (1 - p)) ** 0.5 + 7


def experiment(**changes: object) -> bytes:
    fields = {"v": 1, "name": "room", "type": "number", "low": -14000, "high": 50000, "bins": 256}
    fields |= {"mechanism": "olh", "g": 7, "epsilon": 2_000_000}
    fields |= {"budget": {"rule": "sum", "cap": 6_000_000}, "window": "day"}
    return json.dumps(fields | changes).encode()


def program(folder: Path, payload: bytes) -> Path:
    (folder / "experiment.h").write_text(f"#define EXPERIMENT {initializer(payload)}\n")
    return compiled(folder, "hushmote.c", "kernel_random.c", "report.c")


def run(made: Path, *arguments: str) -> tuple[int, bytes]:
    done = subprocess.run([made, *arguments], cwd=made.parent, capture_output=True, check=False)
    assert b"runtime error" not in done.stderr
    assert b"Sanitizer" not in done.stderr
    return done.returncode, done.stdout


def test_a_report_is_debited_kept_until_it_is_sent_and_the_budget_ends(tmp_path: Path):
    payload = experiment()
    made, parsed = program(tmp_path, payload), Experiment.parse(payload)
    record = tmp_path / "spent"
    assert run(made, "spent", "21.4") == (1, b"")  # no record: nothing may be spent
    assert run(made, "spent", "new") == (0, b"")
    assert run(made, "spent", "new") == (1, b"")
    assert run(made, "spent", "warm") == (1, b"")
    for number in (1, 2, 3):
        status, first = run(made, "spent", "21.4")
        sent = report.decode(first)
        assert (status, sent.digest, sent.number) == (0, parsed.digest, number)
        assert int.from_bytes(sent.code, "big") < parsed.code_count
        assert len(sent.code) == parsed.code_bytes
        assert first.hex().encode() in record.read_bytes()
        assert run(made, "spent", "-3") == (0, first)  # the same bytes, whatever is read now
        assert run(made, "spent", "sent") == (0, b"")
    assert run(made, "spent", "21.4") == (3, b"")  # 3 reports of ε = 2 are all that a cap of 6 allows
    whole = record.read_text()
    for damaged in ("", whole[:-1], whole.replace("1 room", "2 room"), whole[: len(whole) // 2]):
        record.write_text(damaged)
        assert run(made, "spent", "nan") == (1, b"")
    record.write_text(whole.replace("room", "other"))
    assert run(made, "spent", "nan") == (1, b"")


def test_the_policy_holds_whatever_the_experiment_says(tmp_path: Path):
    made = program(tmp_path, experiment(epsilon=4_000_000, budget={"rule": "count", "cap": 100}))
    run(made, "spent", "new")
    for _ in range(2):
        assert run(made, "spent", "nan")[0] == 0
        run(made, "spent", "sent")
    assert run(made, "spent", "nan") == (3, b"")  # 8 for life
    for refused in ({"epsilon": 5_000_000}, {"budget": {"rule": "unlimited"}}, {"g": 9}, {"high": -14000}):
        made = program(tmp_path, experiment(**refused))
        assert run(made, "spent", "21.4") == (1, b"")


@needs_mosquitto
def test_an_aggregator_counts_its_reports(tmp_path: Path):
    payload = experiment(mechanism="hh", g=None, fanout=4, cells=[4, 3, 3, 3])
    fields = json.loads(payload)
    payload = json.dumps({k: v for k, v in fields.items() if v is not None}).encode()
    made = program(tmp_path, payload)
    messages = []
    for i in range(20):
        run(made, f"spent{i}", "new")
        messages.append((topics.report_topic("home", f"c-{i}"), run(made, f"spent{i}", "21.4")[1]))
    url = f"sqlite:///{tmp_path}/store.sqlite"
    with Store(url) as store, MosquittoBroker() as broker:
        store.add_fleet("home", keyed=False)
        store.add_experiment("home", payload)
        with served("--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}") as process:
            process.ready()
            publish(broker, messages + messages)
            until(lambda: store.histogram("home", Experiment.parse(payload).digest).sum() == 20, process.log)
            assert process.end() == 0
        assert store.rejects()["home"] == {"duplicate": 20}
