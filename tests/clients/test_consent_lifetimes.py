"""Random lifetimes of a board on three clients: consent, changed questions, missing readings, restarts.

Each step must give the same answer and the same state on all three clients. Drawn codes differ, so reports
are compared without them, but with their group. Most lifetimes ask about each question; the waiting
questions and the opt-ins must also be the same on all three clients.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from c_client import NAMES as NAMES_OF_CODES
from c_client import CBoard, Refused, Source
from c_core import needs_gcc
from c_reporter import Board
from enumeration import MemoryStorage
from experiments import experiment_json

from hushmote.device import ldp_client
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.device.ldp_client import Client, ExperimentRefused, LDPError

RIG = Path(__file__).with_name("js_rig.mjs")
NODE = shutil.which("node")
LIFETIMES = int(os.environ.get("LIFETIMES", 0)) or (50_000 if os.environ.get("LONG") else 200)
BATCH = 200
DEVICE = "board-1"
NAMES = ("e", "f")
PLAIN = {"rules": ["sum", "squares", "count"], "experiments": list(NAMES), "epsilon": 4_000_000}
PLAIN["groups"] = ["firmware", "model"]
GROUPS = (
    {},
    {},
    {"group": "firmware", "groups": ["2.3.1"]},
    {"group": "firmware", "groups": ["2.3.1", "2.4.0"]},
    {"group": "model", "groups": ["2.4.0"]},
)
GROUP_VALUES = (None, "2.3.1", "2.4.0", "not listed")
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"type": "bool"},
    {"type": "bool", "missing": 1},
    {"type": "number", "low": 0, "high": 4_000, "bins": 4},
    {"type": "number", "low": 0, "high": 4_000, "bins": 5},
    {"type": "number", "low": 0, "high": 4_000, "bins": 4, "missing": 1},
    {"type": "choice", "labels": ["home", "away"]},
    {"type": "choice", "labels": ["away", "home"], "missing": 1},
)
QUESTION_FIELDS = ("type", "low", "high", "bins", "labels", "missing", "group")
VALUES = (True, 0, 3.5, 9999.5, "home", "else", None, float("nan"))

pytestmark = [
    needs_gcc,
    pytest.mark.micropython,
    pytest.mark.skipif(NODE is None, reason="no Node: apt-get install nodejs"),
]


class Storage(MemoryStorage):
    """Memory that calls before_write() once, before a write."""

    before_write: Any = None

    def write(self, slot: int, data: bytes) -> None:
        before_write, self.before_write = self.before_write, None
        if before_write:
            before_write()
        super().write(slot, data)


def encode(x: Any) -> Any:
    """Return a value as js_rig.mjs reads it."""
    if isinstance(x, bytes):
        return {"$hex": x.hex()}
    if isinstance(x, float):
        return {"$float": "NaN" if x != x else str(x)}
    return [encode(v) for v in x] if isinstance(x, list | tuple) else x


def question(rng: Random) -> dict[str, Any]:
    """Return an experiment's fields."""
    fields: dict[str, Any] = {"name": rng.choice(NAMES), **rng.choice(QUESTIONS)}
    rule = rng.choice(("sum", "sum", "squares", "count"))
    cap = {"sum": 9_000_000, "squares": 9 * 10**12, "count": 4}[rule]
    fields["budget"] = {"rule": rule, "cap": cap}
    fields["epsilon"] = rng.choice((500_000, 1_000_000, 2_000_000, 5_000_000))
    fields["mechanism"] = "grr"
    return fields | rng.choice(GROUPS)


def without_code(report: bytes) -> str:
    """Return a report's bytes before its code, and its length."""
    start = 10 if report[0] & 2 else 9
    return report[:start].hex() + f" {len(report)}"


class PythonBoard:
    """The Python client and its kept experiments."""

    def __init__(self, lifetime: Lifetime, storage: Storage) -> None:
        self.client = Client(lifetime.policy, storage, DEVICE, fleet="home")
        self.storage = storage
        self.kept = KeptExperiments(self.client, lifetime.folder)

    def take(self, name: str, payload: bytes) -> None:
        self.kept.take(name, payload)

    def agree(self, name: str, payload: bytes) -> None:
        self.kept.agree(name, payload)

    def asking(self) -> list[str]:
        return sorted(self.kept.asking)


class CReporter:
    """The C client and its reporter."""

    def __init__(self, lifetime: Lifetime, storage: Storage) -> None:
        self.board = Board(storage, lifetime.flash, lifetime.policy, lifetime.rng.getrandbits(16))
        self.client, self.storage = self.board.board, storage

    def _checked(self, code: int) -> None:
        if code:
            raise Refused(NAMES_OF_CODES[code])

    def take(self, name: str, payload: bytes) -> None:
        self._checked(self.board.take(name, payload))

    def agree(self, name: str, payload: bytes) -> None:
        self._checked(self.board.agree(name, payload))

    def asking(self) -> list[str]:
        self.board.tick()  # firmware calls this at least once a second
        return sorted(self.board.asking())


class Lifetime:
    """A lifetime on two clients, which records the steps for the third."""

    def __init__(self, rng: Random, folder: str) -> None:
        self.rng, self.folder = rng, folder
        self.policy = PLAIN | {"sum": rng.choice((4_000_000, 40_000_000)), "squares": 0}
        self.consent = rng.choice((None, True))
        self.each = rng.random() < 0.7
        if self.each:
            self.policy["ask"] = "each"
        self.storages = [Storage(), Storage()]
        self.flash: dict[str, bytes] = {}  # the C reporter's kept experiments
        self.agreed: dict[str, tuple[str, int]] = {}  # the model's opt-ins: (question, epsilon)
        self.retained: dict[str, bytes] = {}  # the broker's retained messages
        self.in_force: dict[str, bytes] = {}
        self.unrepeated: set[str] = set()  # names that JavaScript does not yet know after a restart
        self.steps: list[list[Any]] = []
        self.answers: list[list[Any]] = []
        self.counts: Counter[str] = Counter()
        ldp_client.provision(self.storages[0], consent=self.consent)
        CBoard(self.policy, self.storages[1], DEVICE, entropy=Source(1), begin=False).provision(
            consent=2 if self.consent else 0
        )
        self.start()

    def start(self) -> None:
        """Start both clients, which load their kept experiments."""
        self.python = PythonBoard(self, self.storages[0])
        self.boards = (self.python, CReporter(self, self.storages[1]))

    def play(self, count: int) -> None:
        for _ in range(count):
            getattr(
                self,
                "do_" + self.rng.choice(("report", "report", "publish", "repeat", "answer", "acknowledge")),
            )()

    def both(self, step: list[Any], call: Any) -> Any:
        """Call both clients, compare their answers, record the step for the third, and return the answer."""
        results = []
        for board in self.boards:
            try:
                answer = call(board)
            except (LDPError, Refused, TypeError) as e:
                answer = type(e).__name__
                refused = isinstance(e, ExperimentRefused) or "REFUSED" in str(e)
                answer = "ExperimentRefused" if refused else answer
                answer = "TypeError" if "WRONG_TYPE" in str(e) else answer
            board.storage.before_write = None
            answer = without_code(answer) if isinstance(answer, bytes) else answer
            asking = [name for name in board.asking() if name not in self.unrepeated]
            results.append([answer, *self.state(board.client), asking])
        assert results[0] == results[1], (step, self.steps)
        self.steps.append(step)
        self.answers.append(results[0])
        answer = results[0][0]
        what = "none" if answer is None else "made" if " " in answer else "refused"
        self.counts[f"{step[0]} {what}"] += 1
        return answer

    @staticmethod
    def state(client: Any) -> list[Any]:
        status = client.status()
        lines = []
        for line in status["experiments"].values():
            known = line["enrolled"] if "enrolled" in line else line["state"] in ("reporting", "spent")
            lines.append([known, line["reports"], line["left"] if known else None])
        return [status["consent"], status["pending"], str(status["sum"]), str(status["squares"]), lines]

    def do_publish(self) -> None:
        self.offer(experiment_json(**question(self.rng)))

    def offer(self, payload: bytes) -> None:
        """Deliver a message; half of the pending questions get an opt-in."""
        fields = json.loads(payload)
        name, epsilon = fields["name"], fields["epsilon"]
        text = json.dumps([fields.get(k) for k in QUESTION_FIELDS])
        agreed, max_epsilon = self.agreed.get(name, ("", 0))
        waits = self.each and not (text == agreed and epsilon <= max_epsilon)
        self.retained[name] = payload
        self.unrepeated.discard(name)
        answer = self.both(["enroll", payload], lambda board: board.take(name, payload))
        assert (self.python.kept.asking.get(name) == payload) == waits, (fields, self.agreed)
        assert answer == "ExperimentRefused" or not waits
        self.counts["waits" if waits else "refused" if answer else "enrolled"] += 1
        if answer is None:
            self.in_force[name] = payload
        if waits and self.rng.random() < 0.5:
            self.agree(name, payload, text, epsilon)

    def agree(self, name: str, payload: bytes, text: str, epsilon: int) -> None:
        """Opt in to a pending question. The experiment may still be refused by the policy or a pin."""
        is_no = self.python.client.consent is False
        if self.both(["agree", name, payload], lambda board: board.agree(name, payload)) is None:
            assert not is_no
            self.agreed[name] = text, epsilon
            self.in_force[name] = payload

    def do_repeat(self) -> None:
        """Repeat a retained message, or withdraw an experiment."""
        name = self.rng.choice(NAMES)
        if self.rng.random() < 0.7:
            if name in self.retained:
                self.offer(self.retained[name])
            return
        self.both(["withdraw", name, b""], lambda board: board.take(name, b""))
        for held in (self.agreed, self.retained, self.in_force):
            held.pop(name, None)

    def do_report(self) -> None:
        name, value = self.rng.choice(NAMES), self.rng.choice(VALUES)
        group = self.rng.choice(GROUP_VALUES)
        step = ["report", name, value, group]
        answer = self.both(step, lambda board: board.client.report(name, value, group=group))
        # According to the model, there are no reports without an opt-in to the question.
        assert not self.each or name in self.agreed or answer is None

    def do_answer(self) -> None:
        """Opt in or out, in some cases during another call's write."""
        kind, name = self.rng.randrange(9), self.rng.choice(NAMES)
        value = self.rng.choice(VALUES)

        def no(board: Any) -> None:
            board.storage.before_write = lambda: self.say_no(board.client)

        def report(board: Any) -> Any:
            no(board)
            return board.client.report(name, value)

        def yes(board: Any) -> None:
            no(board)
            board.client.consent = True

        def say(board: Any) -> None:
            board.client.consent = kind != 0

        self.has_no = kind == 0
        if kind == 1:
            self.both(["reportThenNo", name, value], report)
        elif kind == 2:
            self.both(["yesThenNo"], yes)
        else:
            self.both(["setConsent", kind != 0], say)
        if self.has_no and self.each:
            self.agreed.clear()
            self.in_force.clear()

    def say_no(self, client: Any) -> None:
        """Opt out during another call, which raises no error and takes effect immediately."""
        self.has_no = True
        if isinstance(client, CBoard):
            assert client.c.hushmote_set_consent(client.client, False) == 0
        else:
            client.consent = False
        assert client.consent is False

    def do_acknowledge(self) -> None:
        """Acknowledge the oldest report, or restart."""
        if self.rng.random() < 0.5:
            self.both(["sent"], lambda board: acknowledge_oldest(board.client))
            return
        self.start()
        assert set(self.in_force) == set(self.python.kept.digests), self.steps
        self.repeat()

    def repeat(self) -> None:
        """Send JavaScript the other clients' kept experiments, and send retained messages to all three."""
        self.steps.append(["restart"])
        self.answers.append([])  # not compared
        for payload in self.in_force.values():
            self.steps.append(["enroll", payload])
            self.answers.append([])
        self.unrepeated = set(self.retained)
        for name in NAMES:
            if name in self.retained:
                self.offer(self.retained[name])


def acknowledge_oldest(client: Any) -> None:
    for report in client.outbox()[:1]:
        client.sent(report)


def convert_javascript(answer: Any) -> list[Any]:
    """Convert an answer of js_rig.mjs to the format of Lifetime.answers."""
    result, consent, pending, total, squares, lines, asking = answer
    if isinstance(result, str) and result.startswith("1"):
        result = without_code(bytes.fromhex(result))
    lines = [[state in ("reporting", "spent"), made, left] for state, made, left in lines]
    lines = [[known, made, left if known else None] for known, made, left in lines]
    return [result, consent, pending, total, squares, lines, asking]


def test_clients_agree_step_by_step():
    """With LONG=1, play 50,000 lifetimes."""
    counts: Counter[str] = Counter()
    assert NODE
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([NODE, RIG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node,
    ):
        assert node.stdin
        assert node.stdout
        assert node.stdout.readline() == "ready\n"
        for first in range(0, LIFETIMES, BATCH):
            lifetimes = []
            for seed in range(first, min(first + BATCH, LIFETIMES)):
                lifetime = Lifetime(Random(seed), f"{folder}/{seed}")  # noqa: S311
                lifetime.play(16)
                shutil.rmtree(f"{folder}/{seed}", ignore_errors=True)
                lifetimes.append(lifetime)
                counts += lifetime.counts
            jobs = []
            for lifetime in lifetimes:
                settings = {"policy": lifetime.policy, "deviceId": DEVICE}
                jobs.append(["lifetime", settings, lifetime.consent, encode(lifetime.steps)])
            node.stdin.write(json.dumps(jobs) + "\n")
            node.stdin.flush()
            for lifetime in lifetimes:
                answers = json.loads(node.stdout.readline())
                for step, ours, theirs in zip(lifetime.steps, lifetime.answers, answers, strict=True):
                    assert not ours or convert_javascript(theirs) == ours, (step, lifetime.steps)
        node.stdin.close()
    min_count = LIFETIMES // 20
    for what in (
        "waits",
        "enrolled",
        "refused",
        "agree none",
        "agree refused",
        "report none",
        "report made",
        "reportThenNo none",
    ):
        assert counts[what] > min_count, counts
    assert "reportThenNo made" not in counts
