"""Random lives of a board on three clients: consent, changed questions and missing readings, with restarts.

Each step must answer the same on all three, and the state after it must be the same. Drawn codes differ, so
reports are compared without them. The client in Python asks about each question; what it takes, the others
enroll.
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
from c_client import CBoard, Refused, Source
from c_core import needs_gcc
from enumeration import MemoryStorage
from experiments import experiment_json

from hushmote.device import ldp_client
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.device.ldp_client import Client, ExperimentRefused, LDPError

RIG = Path(__file__).with_name("js_rig.mjs")
NODE = shutil.which("node")
LIVES = int(os.environ.get("LIVES", 0)) or (50_000 if os.environ.get("LONG") else 200)
BATCH = 200
DEVICE = "board-1"
NAMES = ("e", "f")
PLAIN = {"rules": ["sum", "squares", "count"], "experiments": list(NAMES), "epsilon": 4_000_000}
QUESTIONS: tuple[dict[str, Any], ...] = (
    {"type": "bool"},
    {"type": "bool", "missing": 1},
    {"type": "number", "low": 0, "high": 4_000, "bins": 4},
    {"type": "number", "low": 0, "high": 4_000, "bins": 5},
    {"type": "number", "low": 0, "high": 4_000, "bins": 4, "missing": 1},
    {"type": "choice", "labels": ["home", "away"]},
    {"type": "choice", "labels": ["away", "home"], "missing": 1},
)
VALUES = (True, 0, 3.5, 9999.5, "home", "else", None, float("nan"))

pytestmark = [
    needs_gcc,
    pytest.mark.micropython,
    pytest.mark.skipif(NODE is None, reason="no Node: apt-get install nodejs"),
]


class Storage(MemoryStorage):
    """Memory that calls then(), once, before a write."""

    then: Any = None

    def write(self, slot: int, data: bytes) -> None:
        then, self.then = self.then, None
        if then:
            then()
        super().write(slot, data)


def coded(x: Any) -> Any:
    """Return a value as js_rig.mjs reads it."""
    if isinstance(x, bytes):
        return {"$hex": x.hex()}
    if isinstance(x, float):
        return {"$float": "NaN" if x != x else str(x)}
    return [coded(v) for v in x] if isinstance(x, list | tuple) else x


def question(rng: Random) -> dict[str, Any]:
    """Return an experiment's fields."""
    fields: dict[str, Any] = {"name": rng.choice(NAMES), **rng.choice(QUESTIONS)}
    rule = rng.choice(("sum", "sum", "squares", "count"))
    cap = {"sum": 9_000_000, "squares": 9 * 10**12, "count": 4}[rule]
    fields["budget"] = {"rule": rule, "cap": cap}
    fields["epsilon"] = rng.choice((500_000, 1_000_000, 2_000_000, 5_000_000))
    fields["mechanism"] = "grr"
    return fields


class Life:
    """One life on two clients, and the steps for the third."""

    def __init__(self, rng: Random, folder: str) -> None:
        self.rng, self.folder = rng, folder
        self.policy = PLAIN | {"sum": rng.choice((4_000_000, 40_000_000)), "squares": 0}
        self.consent = rng.choice((None, True))
        self.each = rng.random() < 0.7
        self.storages = [Storage(), Storage()]
        self.agreed: dict[str, tuple[str, int]] = {}  # the model's: question, epsilon
        self.offered: dict[str, bytes] = {}
        self.steps: list[list[Any]] = []
        self.answers: list[list[Any]] = []
        self.counts: Counter[str] = Counter()
        ldp_client.provision(self.storages[0], consent=self.consent)
        CBoard(self.policy, self.storages[1], DEVICE, entropy=Source(1), begin=False).provision(
            consent=2 if self.consent else 0
        )
        self.start()

    def start(self) -> None:
        """Start both clients; the one in Python finds its experiments in its folder."""
        policy = self.policy | ({"ask": "each"} if self.each else {})
        self.python = Client(policy, self.storages[0], DEVICE, fleet="home")
        self.kept = KeptExperiments(self.python, self.folder)
        self.c = CBoard(self.policy, self.storages[1], DEVICE, entropy=Source(self.rng.getrandbits(32)))

    def play(self, count: int) -> None:
        for _ in range(count):
            getattr(self, "do_" + self.rng.choice(("report", "report", "publish", "more", "said", "rest")))()

    def both(self, step: list[Any], call: Any) -> None:
        """Call both clients, note the step for the third one, and compare."""
        found = []
        for client, storage in zip((self.python, self.c), self.storages, strict=True):
            try:
                answer = call(client, storage)
            except (LDPError, Refused, TypeError) as e:
                answer = type(e).__name__
                refused = isinstance(e, ExperimentRefused) or "REFUSED" in str(e)
                answer = "ExperimentRefused" if refused else answer
                answer = "TypeError" if "WRONG_TYPE" in str(e) else answer
            storage.then = None
            answer = answer[:9].hex() + f" {len(answer)}" if isinstance(answer, bytes) else answer
            found.append([answer, *self.state(client)])
        assert found[0] == found[1], (step, self.steps)
        self.steps.append(step)
        self.answers.append(found[0])
        answer = found[0][0]
        what = "none" if answer is None else "made" if " " in answer else "refused"
        self.counts[f"{step[0]} {what}"] += 1

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
        fields = json.loads(payload)
        name, epsilon = fields["name"], fields["epsilon"]
        asked = json.dumps([fields.get(k) for k in ("type", "low", "high", "bins", "labels", "missing")])
        before = self.kept.known.get(name)
        agreed, most = self.agreed.get(name, ("", 0))
        waits = self.each and not (asked == agreed and epsilon <= most)
        why = "taken"
        try:
            self.kept.take(name, payload)
        except ExperimentRefused as e:
            why = "waits" if "nobody has said yes" in str(e) else "refused"
        assert (why == "waits") == waits, (fields, self.agreed)
        assert waits or why == "refused" or name not in self.kept.asking
        self.counts[why] += 1
        if waits and self.rng.random() < 0.5:
            try:
                self.kept.agree(name, payload)
                self.agreed[name] = asked, epsilon
            except ExperimentRefused:  # outside the policy, or pinned otherwise: no yes to it
                self.counts["refused"] += 1
        if self.kept.known.get(name) != before:
            self.offered[name] = payload
        self.enroll_again(name)

    def enroll_again(self, name: str) -> None:
        """Have the other two take part in what the client in Python does."""
        if name in self.kept.known:
            payload = self.offered[name]
            self.both(["enroll", payload], lambda client, _: client.enroll(payload) and None)

    def do_more(self) -> None:
        name = self.rng.choice(NAMES)
        if self.rng.random() < 0.7:
            if name in self.offered:
                self.offer(self.offered[name])
            return
        self.kept.take(name, b"")
        self.agreed.pop(name, None)
        self.both(["withdraw", name, b""], lambda client, _: client.withdraw(name, b""))

    def do_report(self) -> None:
        name, value = self.rng.choice(NAMES), self.rng.choice(VALUES)
        self.both(["report", name, value], lambda client, _: client.report(name, value))

    def do_said(self) -> None:
        """Somebody says yes or no, perhaps while another call writes."""
        kind, name = self.rng.randrange(9), self.rng.choice(NAMES)
        value = self.rng.choice(VALUES)

        def no(client: Any, storage: Storage) -> None:
            storage.then = lambda: say_no(client)

        def report(client: Any, storage: Storage) -> Any:
            no(client, storage)
            return client.report(name, value)

        def yes(client: Any, storage: Storage) -> None:
            no(client, storage)
            client.consent = True

        def say(client: Any, _storage: Storage) -> None:
            client.consent = kind != 0

        if kind == 1:
            self.both(["reportThenNo", name, value], report)
        elif kind == 2:
            self.both(["yesThenNo"], yes)
        else:
            self.both(["setConsent", kind != 0], say)

    def do_rest(self) -> None:
        """Acknowledge the oldest report, or start again."""
        if self.rng.random() < 0.5:
            self.both(["sent"], acknowledge_oldest)
            return
        self.start()
        self.python._experiments.clear()  # what was kept in flash: the other two keep nothing here
        self.both(["restart"], lambda _client, _storage: None)
        for name in NAMES:
            self.enroll_again(name)


def acknowledge_oldest(client: Any, _storage: Storage) -> None:
    for report in client.outbox()[:1]:
        client.sent(report)


def say_no(client: Any) -> None:
    """Say no within another call, which raises nothing and silences at once."""
    if isinstance(client, CBoard):
        assert client.c.hushmote_set_consent(client.client, False) == 0
    else:
        client.consent = False
    assert client.consent is False


def of_javascript(answer: Any) -> list[Any]:
    """Return an answer of js_rig.mjs as Life has it."""
    found, consent, pending, total, squares, lines = answer
    if isinstance(found, str) and found.startswith("1"):
        found = f"{found[:18]} {len(found) // 2}"
    lines = [[state in ("reporting", "spent"), made, left] for state, made, left in lines]
    lines = [[known, made, left if known else None] for known, made, left in lines]
    return [found, consent, pending, total, squares, lines]


def test_three_clients_agree_step_by_step():
    """LONG=1 plays 50,000 lives."""
    counts: Counter[str] = Counter()
    assert NODE
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen([NODE, RIG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as node,
    ):
        assert node.stdin
        assert node.stdout
        assert node.stdout.readline() == "ready\n"
        for first in range(0, LIVES, BATCH):
            lives = []
            for seed in range(first, min(first + BATCH, LIVES)):
                life = Life(Random(seed), f"{folder}/{seed}")  # noqa: S311
                life.play(16)
                shutil.rmtree(f"{folder}/{seed}", ignore_errors=True)
                lives.append(life)
                counts += life.counts
            jobs = []
            for life in lives:
                settings = {"policy": life.policy, "deviceId": DEVICE}
                jobs.append(["life", settings, life.consent, coded(life.steps)])
            node.stdin.write(json.dumps(jobs) + "\n")
            node.stdin.flush()
            for life in lives:
                answers = json.loads(node.stdout.readline())
                for step, ours, theirs in zip(life.steps, life.answers, answers, strict=True):
                    assert of_javascript(theirs) == ours, (step, life.steps)
        node.stdin.close()
    least = LIVES // 20
    for what in ("waits", "taken", "refused", "report none", "report made", "reportThenNo none"):
        assert counts[what] > least, counts
    assert "reportThenNo made" not in counts
