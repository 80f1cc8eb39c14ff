"""clients/js, checked against the vectors, the MicroPython client, the privacy bound, and power cuts."""

import functools
import hashlib
import json
import os
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import numpy as np
import pytest
from client_vectors import vectors
from doors import Opened, open_door
from enumeration import BranchingRng, assert_private, distribution, memory
from experiments import TEXTS, experiment_json, number_json
from failing_storage import Witness, parse_record
from npm_packages import npm_file
from random_experiments import candidates, parse_in_python, readings
from retained_messages import WAITING, WAITING_NAMES, WAITING_POLICY, digests_in_force, digests_of
from running_aggregator import until
from settings_mistakes import MISTAKES
from traffic import publish

from hushmote._version import VERSION
from hushmote.device.ldp_client import Client, Experiment, ExperimentRefused, provision
from hushmote.server.wire import topics
from hushmote.server.wire.keys import public_key_bytes, sign_experiment
from hushmote.simulator.broker import MosquittoBroker

ROOT = Path(__file__).parents[2]
RIG = Path(__file__).with_name("js_rig.mjs")
NODE = shutil.which("node")
VECTORS = vectors("JavaScript", "vectors.json", "vectors_further.json")
GROUPS = vectors("JavaScript", "vectors_groups.json", "vectors_text.json")
SCALE = vectors("JavaScript", "vectors_scale.json")
POLICY = {
    "sum": 2**47,
    "squares": 0,
    "epsilon": 16_000_000,
    "rules": ["sum", "squares", "count", "unlimited"],
    "experiments": ["e", "f", "room_temp", "a" * 32, "__proto__"],
}
DEVICE = "k3f9x1"
E = experiment_json()

pytestmark = [
    pytest.mark.micropython,
    pytest.mark.skipif(NODE is None, reason="no Node: apt-get install nodejs"),
]


def encode(x: Any) -> Any:
    """Encode values for the rig: bytes, and values that JSON rounds or lacks."""
    if isinstance(x, bytes | bytearray):
        return {"$hex": x.hex()}
    if isinstance(x, float):
        return {"$float": str(x).replace("inf", "Infinity").replace("nan", "NaN")}
    if isinstance(x, int) and not isinstance(x, bool) and abs(x) > 1 << 53:
        return {"$big": str(x)}
    if isinstance(x, dict):
        return {k: encode(v) for k, v in x.items()}
    return [encode(v) for v in x] if isinstance(x, list | tuple) else x


def start() -> subprocess.Popen[str]:
    """Start the rig, which then waits for requests."""
    assert NODE
    process = subprocess.Popen([NODE, RIG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


shared_process = functools.cache(start)  # handles all sequential requests


@pytest.fixture(scope="module", autouse=True)
def ended_process() -> Iterator[None]:
    yield
    if shared_process.cache_info().currsize:
        shared_process().communicate()
        assert shared_process().returncode == 0


def ask(requests: list[Any]) -> list[Any]:
    """Return the client's answer to each [job, argument, ...]."""
    process = shared_process()
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(encode(requests)) + "\n")
    process.stdin.flush()
    return [json.loads(process.stdout.readline()) for _ in requests]


def payloads() -> dict[str, bytes]:
    return {case["sha256"][:8]: case["payload"].encode() for case in VECTORS["experiments"]}


class Recorder:
    """A random source that records its calls."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.draws: list[Any] = []

    def below(self, n: int) -> int:
        self.draws.append(["below", n, self.rng.randrange(n)])
        return self.draws[-1][2]

    def bernoulli(self, threshold: int) -> bool:
        self.draws.append(["bernoulli", threshold, self.rng.getrandbits(1)])
        return bool(self.draws[-1][2])


BUDGET: dict[str, Any] = {"budget": {"rule": "unlimited"}}
LABELS = {"name": "v", "type": "choice", "labels": ["a", "b"]}
PAIR = {"type": "pair", "of": [LABELS, {"name": "c", "type": "bool"}]}
SHAPES: dict[str, dict[str, Any]] = {
    "rr": {},
    "grr": {"bins": 5},
    "olh": {"bins": 9, "mechanism": "olh", "g": 3},
    "hh": {"bins": 9, "mechanism": "hh", "fanout": 3, "cells": [2, 5], "weights": [1, 4]},
    "sw": {"bins": 5, "mechanism": "sw", "reach": 2},
    "pgr": {"bins": 13, "mechanism": "pgr", "q": 3},
    "missing": {"bins": 8, "missing": 1, "mechanism": "hh", "fanout": 3, "cells": [2, 5]},
    "prefix": {"type": "text", "salt": "s", "slots": 4, "prefixes": [2, 3], "mechanism": "prefix", "q": 3},
    "pair": PAIR | {"mechanism": "olh", "g": 3},
    "views": PAIR
    | {"mechanism": "views", "views": [[0], [1], [0, 1]], "cells": [2, 2, 5], "weights": [1, 0, 3]},
}


class TestRandomizer:
    def test_codes_and_draws_match_boards(self):
        """Try 40 random indices and draws for each experiment in the vectors, which reaches every level."""
        rng = Random(1)  # noqa: S311
        requests, codes = [], []
        for payload in payloads().values():
            exp = Experiment.parse(payload)
            for _ in range(40):
                index = rng.choice((None, rng.randrange(exp.domain)))
                recorder = Recorder(rng)
                codes.append(exp.randomize(index, recorder))
                requests.append(["code", payload, index, recorder.draws])
        assert ask(requests) == codes

    def test_text_hashes_match_boards(self):
        pgr, prefix = {"mechanism": "pgr", "q": 5}, {"mechanism": "prefix", "q": 3}
        shapes = [{"slots": 4096} | pgr, {"slots": 4, "prefixes": [1, 2, 2]} | pgr]
        for shape in [*shapes, {"slots": 4, "prefixes": [3] * 16} | prefix]:
            payload = experiment_json(type="text", salt="pepper", epsilon=2_000_000, **shape)
            texts = [t for t in TEXTS if t != "\ud800"]  # JavaScript encodes it differently in UTF-8
            exp = Experiment.parse(payload)
            indices = ask([["bucket", payload, t] for t in texts])
            assert [str(x) for x in indices] == [str(exp.bucket(t)) for t in texts]

    def test_draws_have_correct_probabilities(self):
        """Draw 30,000 times each: the probability that any of 37 outcomes is off by 7 sigma is 1e-11."""
        n, chances = 30_000, [("below", k, [1 / k] * k) for k in (1, 2, 3, 5, 24)]
        chances.append(("bernoulli", 2**30 // 10, [0.9, 0.1]))
        frequencies = ask([["frequencies", n, name, argument, len(p)] for name, argument, p in chances])
        for counts, (_, _, expected) in zip(frequencies, chances, strict=True):
            assert sum(counts) == n
            for count, p in zip(counts, expected, strict=True):
                assert abs(count - n * p) <= 7 * (n * p * (1 - p)) ** 0.5

    @pytest.mark.parametrize(("byte", "bits"), [(0, 0), (7, 0x07070707), (255, 2**30 - 1)])
    def test_draw_is_true_below_the_threshold(self, byte, bits):
        assert ask([["stuck", byte, "bernoulli", bits + more] for more in (0, 1)]) == [False, True]

    def test_repeating_source_makes_no_report(self):
        calls = [["stick"], SPENT[0], ["status"]]
        _, report, status = play(calls, {"records": FRESH}, payloads=[E])["answers"]
        assert report == "EntropyError: crypto.getRandomValues is missing or stuck"
        assert status["sum"] == "0"

    @pytest.mark.parametrize("epsilon", [200_000, 1_000_000, 5_000_000])
    @pytest.mark.parametrize("name", SHAPES)
    def test_probabilities_match_boards_and_bound(self, name, epsilon):
        shape = SHAPES[name]
        make = number_json if "bins" in shape else experiment_json
        payload = make(**{"epsilon": epsilon} | BUDGET | shape)
        exp = Experiment.parse(payload)
        values: list[Any] = [None, *(i / exp.domain + 1e-3 for i in range(exp.domain))]
        if exp.type == "pair":
            values = [None, *([label, c] for label in ("a", "b", "?") for c in (True, False))]
        elif exp.type != "number":
            values = [None, True, False] if exp.type == "bool" else [None, "a", "ab", "abc", "b", "", "xyz"]
        answers = ask([["distribution", payload, v] for v in values])
        exact = {
            i: {code: sum((Fraction(int(o), int(u)) for u, o in sums), Fraction()) for code, sums in answer}
            for i, answer in enumerate(answers)
        }
        for i, value in enumerate(values):
            index = exp.bucket(value)

            def run(rng: BranchingRng, index: int | None = index) -> int:
                return exp.randomize(index, rng)

            assert exact[i] == distribution(run)
        assert_private(exact, epsilon)

    @pytest.mark.slow
    def test_matches_boards_on_random_experiments_and_readings(self):
        """The seed is fixed, so failures are reproducible."""
        rng = np.random.default_rng(7)
        odd = (b"Infinity", b"1.5e9", b"-0", b"-", b"1.", b".5", b"+1", b"1.0")
        payloads = [E[:-1] + b',"v":%s,"v":1}' % number for number in odd]
        payloads += [b'{"x":NaN,' + E[1:], E + b"\n"]
        payloads += candidates(rng, 50_000 if os.environ.get("LONG") else 4_000)
        experiments = [parse_in_python(payload) for payload in payloads]
        refused = [str(x).startswith("ExperimentRefused") for x in ask([["parse", p] for p in payloads])]
        pairs = zip(payloads, experiments, refused, strict=True)
        assert [p for p, python, no in pairs if no != (python is None)] == []
        accepted = {p: python for p, python in zip(payloads, experiments, strict=True) if python}
        assert len(accepted) > 500
        requests: list[Any] = []
        answers: list[Any] = []
        for payload, python in accepted.items():
            for reading in readings(python, rng):
                if reading == "\ud800":
                    continue  # JavaScript encodes it differently in UTF-8
                try:
                    answers.append(str(python.bucket(reading)))
                except TypeError:
                    answers.append("TypeError")
                requests.append(["bucket", payload, reading])
            for index in (None, 0, python.domain - 1, int(rng.integers(min(python.domain, 2**62)))):
                recorder = Recorder(Random(int(rng.integers(2**63))))  # noqa: S311
                answers.append(str(python.randomize(index, recorder)))
                requests.append(["code", payload, index, recorder.draws])
        found = [str(answer).split(":")[0] for answer in ask(requests)]
        wrong = [x for x in zip(requests, answers, found, strict=True) if x[1] != x[2]]
        assert wrong[:5] == []


def lifetime_of(calls: list[Any], storage: Any = None, settings: Any = None, **more: Any) -> list[Any]:
    """Return a rig request for a client's lifetime, which answers with results and final records."""
    usual = {"policy": POLICY, "deviceId": DEVICE} | (settings or {})
    return ["play", {"storage": storage or {}, "settings": usual} | more, calls]


def play(*arguments: Any, **more: Any) -> dict[str, Any]:
    return ask([lifetime_of(*arguments, **more)])[0]


def record(number: int, **state: Any) -> list[Any]:
    """Return a ledger record."""
    defaults = {"format": 1, "number": number, "device": DEVICE, "consent": True, "sum": "0", "squares": "0"}
    text = json.dumps(defaults | {"entries": {}, "serials": {}, "unsent": []} | state)
    return [number, hashlib.sha256(text.encode()).hexdigest() + text]


def keys(case: dict[str, Any], **names: str) -> dict[str, Any]:
    return {ours: case[name] and bytes.fromhex(case[name]) for ours, name in names.items()}


def lifetime_before(case: dict[str, Any]) -> list[Any]:
    """Return a lifetime that starts from the vector's ledger, in this client's format, and reports."""
    old, now = (parse_record(bytes.fromhex(r)) for r in sorted(case["before"], key=lambda r: r[4:12]))
    entry = now["entries"].get(hashlib.sha256(b"e").digest()[:4])
    spent = {".e": [*entry[:2], *map(str, entry[2:])]} if entry else {}
    state = {name: str(now[name]) for name in ("sum", "squares")} | {
        "device": case["device"],
        "entries": spent,
    }
    records = [record(n, **state) for n in (old["sequence"], now["sequence"])]
    more = {"draws": case["draws"], "payloads": [case["payload"].encode()]}
    settings = keys(case, key="key") | {"deviceId": case["device"]}
    if "group" in case:
        settings["policy"] = POLICY | {"groups": [json.loads(case["payload"])["group"]]}
    call = ["report", "e", None, *([case["group"]] if "group" in case else [])]
    return lifetime_of([call, ["status"]], {"records": records}, settings, **more)


class TestVectors:
    def test_thresholds(self):
        cases = VECTORS["thresholds"]
        assert ask([["threshold", c["epsilon"], c["g"] - 1] for c in cases]) == [
            c["threshold"] for c in cases
        ]

    def test_experiments(self):
        cases = VECTORS["experiments"]
        for case, result in zip(cases, ask([["parse", c["payload"].encode()] for c in cases]), strict=True):
            names = {"cap": "cap", "domain": "domain", "code_count": "codes", "code_bytes": "codeBytes"}
            names |= {"sha256": "sha256", "epsilon": "epsilon", "every": "every"}
            assert {k: str(case[k]) for k in names} == {k: str(result[v]) for k, v in names.items()}
        assert str(2**54 - 1) in {str(case["cap"]) for case in cases}

    def test_groups(self):
        cases = GROUPS["experiments"]
        for case, result in zip(cases, ask([["parse", c["payload"].encode()] for c in cases]), strict=True):
            names = {"group": "group", "groups": "groups", "every_of": "everyOf", "every": "every"}
            assert {k: case[k] for k in names} == {k: result[v] for k, v in names.items()}
        payloads = [
            bytes.fromhex(c["hex"]) if "hex" in c else c["payload"].encode() for c in GROUPS["malformed"]
        ]
        assert all(
            str(result).startswith("ExperimentRefused: ") for result in ask([["parse", c] for c in payloads])
        )

    def test_reports_with_a_group(self):
        cases = GROUPS["reports"]
        for case, lifetime in zip(cases, ask([lifetime_before(case) for case in cases]), strict=True):
            assert lifetime["answers"][0] == case["report"], case

    def test_labels_in_other_alphabets(self):
        [payload] = {c["payload"].encode() for c in GROUPS["experiments"] if "日本" in c["payload"]}
        indices = ask([["bucket", payload, case["value"]] for case in GROUPS["buckets"]])
        assert indices == [case["index"] for case in GROUPS["buckets"]]

    def test_policies_for_groups(self):
        cases = GROUPS["policies"]
        lifetimes = [
            lifetime_of(
                [["enroll", case["payload"].encode()]],
                settings={"policy": POLICY | ({"groups": groups} if groups is not None else {})},
            )
            for case in cases
            for groups in [case["groups"]]
        ]
        for case, lifetime in zip(cases, ask(lifetimes), strict=True):
            refused = str(lifetime["answers"][0]).startswith("ExperimentRefused")
            assert refused == (case["refused"] is not None)
            assert not refused or lifetime["answers"] == [f"ExperimentRefused: {case['refused']}"]

    def test_questions(self):
        cases = json.loads((ROOT / "tests" / "vectors_questions.json").read_text())["questions"]
        refused = ['{"epsilon":1,"a":"\\u0041"}', '{"epsilon":1,"a":"\u200f"}', '{"epsilon":1}' + " " * 1012]
        cases += [{"payload": payload, "question": None} for payload in refused]
        results = ask([["question", case["payload"].encode()] for case in cases])
        for case, answer in zip(cases, results, strict=True):
            assert answer == case["question"] or (
                case["question"] is None and answer.startswith("ExperimentRefused: ")
            ), case

    def test_question_needs_short_and_plain_text(self):
        longest = b'{"epsilon":1000000,"note":"%s"}' % (b"a" * 995)
        assert len(longest) == 1024
        payloads = [
            longest,
            longest + b" ",
            b'{"epsilon":1000000,"note":"\\u0041"}',
            b'{"epsilon":1000000,\n"a":1}',
        ]
        accepted, *refused = ask([["question", payload] for payload in payloads])
        assert len(accepted) == 24
        plain = "ExperimentRefused: not UTF-8, or has a backslash or a control character"
        assert refused == ["ExperimentRefused: larger than 1024 bytes", plain, plain]

    def test_rejects_malformed_experiments(self):
        cases = [
            bytes.fromhex(c["hex"]) if "hex" in c else c["payload"].encode() for c in VECTORS["malformed"]
        ]
        assert all(
            str(result).startswith("ExperimentRefused: ") for result in ask([["parse", c] for c in cases])
        )

    def test_readings(self):
        converters = {"float": float, "bytes": str.encode, "bool": bool}
        # JavaScript does not distinguish 1.0 from 1.
        cases = [c for c in VECTORS["buckets"] if (c["kind"], c["value"]) != ("float", 1.0)]
        assert len(cases) == len(VECTORS["buckets"]) - 1
        values = [converters.get(c["kind"], lambda x: x)(c["value"]) for c in cases]
        indices = ask(
            [["bucket", payloads()[c["experiment"]], v] for c, v in zip(cases, values, strict=True)]
        )
        for case, index in zip(cases, indices, strict=True):
            index = "TypeError" if str(index).startswith("TypeError") else index
            assert (None if index is None else str(index)) == (
                None if case["index"] is None else str(case["index"])
            ), case

    def test_logarithmic_bins(self):
        for case in SCALE["scales"]:
            payload, edges = case["payload"].encode(), case["edges"]
            millis = [-5, 0, *(edge + off for edge in edges for off in (-1, 0, 1))]
            expected = [sum(milli >= edge for edge in edges[1:-1]) for milli in millis]
            assert ask([["bucket", payload, milli / 1000] for milli in millis]) == expected
            beyond = [-(10**30), 10**30, float("inf"), float("nan")]
            assert ask([["bucket", payload, value] for value in beyond]) == [
                Experiment.parse(payload).bucket(value) for value in beyond
            ]
        refused = ask([["parse", case["payload"].encode()] for case in SCALE["malformed"]])
        assert all(str(result).startswith("ExperimentRefused: ") for result in refused)

    def test_codes(self):
        cases = VECTORS["codes"]
        assert ask([["code", payloads()[c["experiment"]], c["index"], c["draws"]] for c in cases]) == [
            c["code"] for c in cases
        ]

    def test_rejects_invalid_settings(self):
        cases = [
            keys(c, key="key", announceKey="announce_key") | {"deviceId": c["device"], "fleet": c["fleet"]}
            for c in VECTORS["settings"]
        ]
        odd = [POLICY | {"sum": 1.5}, POLICY | {"rules": "sum"}, POLICY | {"more": 1}, {}]
        lifetimes = ask(
            [lifetime_of([], settings=case) for case in [*cases, *({"policy": policy} for policy in odd)]]
        )
        assert all(lifetime["answers"][0].startswith("SettingsError: ") for lifetime in lifetimes)

    def test_reports(self):
        cases = VECTORS["reports"]
        for case, lifetime in zip(cases, ask([lifetime_before(case) for case in cases]), strict=True):
            report, status = lifetime["answers"]
            after = parse_record(bytes.fromhex(case["after"]))
            assert report == case["report"]
            assert (status["sum"], status["squares"]) == (str(after["sum"]), str(after["squares"]))

    @pytest.mark.parametrize(("section", "field"), [("signatures", "payload"), ("withdrawals", "withdrawal")])
    def test_signatures_and_withdrawals(self, section, field):
        lifetimes = []
        for case in VECTORS[section]:
            payload = bytes.fromhex(case[field])
            call = ["enroll", payload] if section == "signatures" else ["withdraw", "e", payload]
            records = [record(n, serials={".e": case["least"]}) for n in (1, 2)]
            lifetimes.append(
                lifetime_of(
                    [call], {"records": records}, keys(case, announceKey="key") | {"fleet": case["fleet"]}
                )
            )
        for case, lifetime in zip(VECTORS[section], ask(lifetimes), strict=True):
            serial = case["least"]
            if case["refused"] is None:
                assert not str(lifetime["answers"][0]).startswith("ExperimentRefused")
                serial = int.from_bytes(bytes.fromhex(case[field])[-68:-64], "big") if case["key"] else serial
            else:
                assert lifetime["answers"] == [f"ExperimentRefused: {case['refused']}"]
            assert json.loads(lifetime["records"][-1][1][64:])["serials"] == {".e": serial}


SPENT = [["report", "e", True]] * 6
FRESH = [record(1), record(2)]
FAULTS = ["raise", "raise-after", "lost", "torn", "cut", "cut-after", "torn-cut"]


class TestConsent:
    def test_is_required_for_readings_and_opt_out_drops_queue(self):
        wrong, right = ["report", "e", "no bool"], ["report", "e", True]
        calls = [["consent"], wrong, ["setConsent", True], wrong, right, ["unsent"], ["setConsent", False]]
        lifetime = play(
            [*calls, right, ["unsent"], ["setConsent", True], right, ["status"]],
            provision={"deviceId": DEVICE},
            payloads=[E],
        )
        asked, silent, _, loud, first, waiting, _, no, none, _, second, status = lifetime["answers"]
        assert (asked, silent, no, none) == (None, None, None, [])
        assert loud.startswith("TypeError: e must be a bool")
        assert waiting == [first]
        assert (second[10:18], status["sum"], status["pending"]) == ("00000002", "2000000", 1)

    @pytest.mark.parametrize(
        ("word", "at"),
        [(["setConsent", False], 0), (["yesThenNo"], 1)],
        ids=["opt-out", "opt-in and opt-out"],
    )
    def test_opt_out_silences_even_if_storage_fails(self, word, at):
        storage = {"records": FRESH, "fault": "raise", "at": at}
        no, consent, report = play([word, ["consent"], SPENT[0]], storage, payloads=[E])["answers"]
        assert no is None if at else no.startswith("LedgerError: storage failed: Error: no space")
        assert (consent, report) == (False, None)

    def test_opt_out_withholds_report_in_progress(self):
        lifetime = play([["reportThenNo"], ["status"]], {"records": FRESH}, payloads=[E])
        answers = play([["status"], ["unsent"]], {"records": lifetime["records"]})["answers"]  # a restart
        for status in (lifetime["answers"][1], answers[0]):
            assert (status["consent"], status["sum"], status["pending"]) == (False, "1000000", 0)
        assert (lifetime["answers"][0], answers[1]) == (None, [])


class TestWithdrawal:
    SIGNING = bytes(31) + b"\x07"

    @pytest.mark.parametrize("restart", [[], [["restart"]]], ids=["same", "restart"])
    def test_by_application_ends_every_published_version(self, restart: list[Any]):
        def signed(name: str, serial: int) -> bytes:
            topic = topics.experiment_topic("home", name)
            return sign_experiment(self.SIGNING, topic, experiment_json(name=name), serial)

        before = [["enroll", signed("e", 5)], ["enroll", signed("f", 5)], ["withdraw", "e"], *restart]
        after = [["enroll", signed("e", 5)], ["report", "e", True], ["enroll", signed("f", 5)]]
        after += [["report", "f", True], ["enroll", signed("e", 6)], ["report", "e", True]]
        settings = {"fleet": "home", "announceKey": public_key_bytes(self.SIGNING)}
        answers = play([*before, *after], {"records": FRESH}, settings)["answers"]
        assert answers[-6:-4] == ["ExperimentRefused: a newer version was published", None]
        assert [len(answers[i]) for i in (-3, -1)] == [20, 20]

    def test_serial_survives_program_without_the_name(self):
        def signed(name: str, serial: int, body: bytes | None = None) -> bytes:
            topic = topics.experiment_topic("home", name)
            body = experiment_json(name=name) if body is None else body
            return sign_experiment(self.SIGNING, topic, body, serial)

        settings = {"fleet": "home", "announceKey": public_key_bytes(self.SIGNING)}
        without = settings | {"policy": POLICY | {"experiments": ["f"]}}
        first = [["enroll", signed("e", 5)], ["withdraw", "e", signed("e", 7, b"")]]
        records = play(first, {"records": FRESH}, settings)["records"]
        records = play([["enroll", signed("f", 6)], ["report", "f", True]], {"records": records}, without)[
            "records"
        ]
        for renewed in (None, {"replace": True, "consent": True, "deviceId": DEVICE}):
            again = play([["enroll", signed("e", 5)]], {"records": records}, settings, provision=renewed)
            assert again["answers"] == ["ExperimentRefused: a newer version was published"]


@pytest.fixture(scope="module")
def broker() -> Iterator[MosquittoBroker]:
    with MosquittoBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def door(broker: MosquittoBroker) -> Iterator[Opened]:
    publish(broker, [("hushmote/v1/open/experiment/e", E)], retain=True)
    with open_door(broker, fleets=["open"], protocol="3.1.1") as door:
        yield door


@pytest.mark.broker
class TestDoor:
    """door.js with a real door and broker."""

    @staticmethod
    def play(door: Opened, calls: list[Any], storage: Any = None, consent: bool | None = None) -> list[Any]:
        """Return the answers of one of the fleet's clients."""
        provision = None if storage else {"deviceId": DEVICE, "consent": consent}
        more = {"provision": provision, "url": f"http://127.0.0.1:{door.port}"}
        return play(calls, storage, {"fleet": "open"}, **more)["answers"]

    @pytest.mark.parametrize("word", [None, False], ids=["not asked", "opt-out"])
    def test_is_not_contacted_without_consent(self, door: Opened, word: bool | None):
        contacts = door.door.answers.total()
        calls = [["door", "enroll", ["e", "f"]], ["report", "e", True], ["door", "flush", {"tries": 2}]]
        assert self.play(door, calls, consent=word) == [[None, None], None, [0, None]]
        assert door.door.answers.total() == contacts
        second_run = self.play(door, [["setConsent", True], *calls])
        assert door.door.answers.total() == contacts + 3, "two experiments and a report"
        assert len(second_run[2]) == 20

    @pytest.mark.parametrize("fault", [None, "raise"], ids=["stored", "not stored"])
    def test_is_not_contacted_after_opt_out(self, door: Opened, fault: str | None):
        contacts = door.door.answers.total()
        calls = [["door", "enroll", ["e"]], ["report", "e", True], ["setConsent", False], ["door", "flush"]]
        storage = {"records": FRESH, "fault": fault, "at": 1}
        answers = self.play(door, [*calls, ["door", "enroll", ["e"]]], storage)
        assert len(answers[1]) == 20
        assert answers[3:] == [[0, None], [None, None]]
        assert door.door.answers.total() == contacts + 1, "only the experiment before"

    def test_does_not_undo_the_applications_withdrawal(self, door: Opened):
        fetch, report = ["door", "enroll", ["e"]], ["report", "e", True]
        calls = [fetch, report, ["withdraw", "e"], fetch, report, ["enroll", E], fetch, report]
        answers = self.play(door, calls, {"records": FRESH})
        assert (answers[3], answers[4]) == ([None, None], None)
        assert [len(answers[i]) for i in (1, 7)] == [20, 20]

    def test_waiting_messages_decide_what_it_answers(self, broker: MosquittoBroker, door: Opened):
        """Check the boards' cases on one client, which forgets its experiments at a restart."""
        messages = [(topics.experiment_topic("open", case.name), case.message) for case in WAITING]
        publish(broker, messages, retain=True)
        until(lambda: door.ask("GET", "/v1/open/experiment/wrong_rule").status == 200, "the experiments")
        reports = [["report", name, True] for name in WAITING_NAMES]
        earlier = [["enroll", case.before] for case in WAITING if case.before is not None]
        calls = [*earlier, *reports, ["acknowledge"], ["door", "enroll", WAITING_NAMES], *reports]
        settings = {"fleet": "open", "policy": WAITING_POLICY}
        provision = {"deviceId": DEVICE, "consent": True}
        more = {"provision": provision, "url": f"http://127.0.0.1:{door.port}"}
        answers = play(calls, None, settings, **more)["answers"][-len(reports) :]
        assert digests_of([bytes.fromhex(answer) for answer in answers if answer]) == digests_in_force()

    @pytest.mark.parametrize(
        ("status", "page", "error"),
        [
            (503, "", "the answer 503"),  # a proxy without its door
            (200, "<html>Log in</html>", "the answer 200"),
            (200, "", "the answer 200"),
            (204, "", "the answer 204"),
            (302, "", "the answer 200"),
            (200, E.replace(b"2000000", b"1000000").decode(), "the answer 200"),
            (404, "<html>Not found</html>", "the answer 404"),
        ],
        ids=["proxy", "portal", "empty", "no content", "redirect", "experiment", "wrong url"],
    )
    def test_another_servers_answers_change_nothing(self, status: int, page: str, error: str):
        class Stranger(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_login = self.path == "/login"
                self.send_response(200 if is_login else status)
                self.send_header("Location", "/login")
                self.end_headers()
                self.wfile.write(b"<html>Log in</html>" if is_login else page.encode())

            def do_POST(self) -> None:
                self.do_GET()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            calls = [["door", "enroll", ["e"]], ["report", "e", True], ["door", "flush", {"tries": 1}]]
            more = {"payloads": [E], "url": f"http://127.0.0.1:{server.server_port}"}
            enrolled, report, flushed, unsent = play(
                [*calls, ["unsent"]], {"records": FRESH}, {"fleet": "open"}, **more
            )["answers"]
            server.shutdown()
        assert enrolled[1].startswith(f"e: {error} came from something other than the door")
        assert flushed[0] == 1
        assert "came from something other than the door" in flushed[1]
        assert unsent == [report]
        assert len(report) == 20

    def test_withdraws_only_what_the_door_lacks(self, broker: MosquittoBroker, door: Opened):
        topic = topics.experiment_topic("open", "f")
        publish(broker, [(topic, E.replace(b'"e"', b'"f"'))], retain=True)
        until(lambda: door.ask("GET", "/v1/open/experiment/f").status == 200, "the experiment")
        fetch, report = ["door", "enroll", ["f"]], ["report", "f", True]
        wrong = f"http://127.0.0.1:{door.port}/doors"
        more = {"payloads": [E.replace(b'"e"', b'"f"')], "url": wrong}
        answers = play([fetch, report], {"records": FRESH}, {"fleet": "open"}, **more)["answers"]
        assert answers[0][1].startswith("f: the answer 404 came from something other than the door")
        assert len(answers[1]) == 20
        publish(broker, [(topic, b"")], retain=True)
        until(lambda: door.ask("GET", "/v1/open/experiment/f").status == 404, "the withdrawal")
        more |= {"url": f"http://127.0.0.1:{door.port}"}
        answers = play([report, fetch, report], {"records": FRESH}, {"fleet": "open"}, **more)["answers"]
        assert [len(answers[0]), *answers[1:]] == [20, [None, None], None]


DOOR_SCRIPT = """
import { Door } from '%s';
const waits = [], limits = [];
let stops = null; // called instead of the end of a wait
globalThis.setTimeout = (end, ms) => { waits.push(ms / 1000); queueMicrotask(stops ?? end); };
AbortSignal.timeout = (ms) => { limits.push(ms / 1000); return new AbortController().signal; };
let script = [];
globalThis.fetch = async () => {
  const [status, text, headers, during] = script.shift();
  during?.();
  if (!status) throw new Error(text);
  return new Response(text, { status, headers: { 'Hushmote-Door': '1', ...headers } });
};
const queue = ['a', 'b', 'c'];
const unsent = async () => [...queue], sent = async () => queue.shift(), enroll = async () => {};
const client = { fleet: 'open', deviceId: 'd', consent: true, ended: new Set(), unsent, sent, enroll };
const door = new Door(client, 'http://door');
async function step(answers, work) {
  script = answers;
  waits.length = 0;
  const result = await work();
  return [result ?? null, door.error, [...waits], script.length];
}
const down = [0, 'down'], taken = [204, null], busy = [503, ' wait ', { 'Retry-After': '5' }];
const date = (s) => [503, 'date', { 'Retry-After': new Date(Date.now() + 1000 * s).toUTCString() }];
const stop = new AbortController(), early = new AbortController();
const results = [
  await step(Array(8).fill(down), () => door.flush()),
  await step([taken, down, busy, down, taken, taken], () => door.flush()),
  (queue.push('d'), await step([down, busy, down, down], () => door.flush({ tries: 4 }))),
  (stops = () => stop.abort(), await step([down], () => door.flush({ signal: stop.signal }))),
  await step([[...down, null, () => early.abort()]], () => door.flush({ signal: early.signal })),
  await step([down], () => door.enroll(['e'])),
  await step([[200, '{"name":"e"}']], () => door.enroll(['e'])),
  (stops = null, await step([date(600), date(-9), date(9e9), taken], () => door.flush({ tries: 4 }))),
];
results.at(-1)[2][0] = Math.abs(results.at(-1)[2][0] - 600) <= 2;
console.log(JSON.stringify([results, [...new Set(limits)]]));
"""


def test_door_waits_longer_after_each_failure():
    """Every outage begins with the shortest wait, and an error is cleared by the next success."""
    script = DOOR_SCRIPT % (ROOT / "clients/js/door.js").as_uri()
    assert NODE
    command = [NODE, "--input-type=module", "--eval", script]
    results, limits = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    assert results == [
        [3, "down", [1, 2, 4, 8, 16, 30, 30], 0],
        [0, None, [1, 5, 4], 0],
        [1, "down", [1, 5, 4], 0],
        [1, "down", [1], 0],
        [1, "down", [], 0],  # stopped during the request
        [None, "e: down", [], 0],
        [None, None, [], 0],
        [0, None, [True, 2, 3600], 0],
    ]
    assert limits == [10]


# Those that someone can type into the node's form, where an empty key stands for an open fleet.
TYPED_MISTAKES = [
    mistake
    for mistake in MISTAKES
    if isinstance(value := mistake.changes.get(mistake.field), str)
    and mistake.field in ("fleet", "device_id", "key", "announce_key")
    and (value or mistake.field == "fleet")
]
NO_TOPIC = "set msg.provision = true, or msg.consent to true or false; topics no longer do this"


class TestNodeRed:
    def test_reports_only_by_topic_one_at_a_time(self, tmp_path):
        config = {"fleet": "home", "experiments": "e, f", "folder": str(tmp_path), "epsilon": 1, "sum": 9}
        asked, sent = "hushmote/v1/home/experiment/", ["hushmote/v1/home/report/"]
        messages = [("hushmote/provision", None, [NO_TOPIC]), ("hushmote/consent", True, [NO_TOPIC])]
        messages += [({"provision": True}, None, []), ({"consent": True}, None, []), (asked + "e", E, [])]
        messages += [(asked + "f", E, ["its name is e"])]  # on the wrong topic
        messages += [(asked + "f", E.replace(b'"e"', b'"f"'), []), (asked + "f", b"", []), ("f", True, [])]
        messages += [
            ("e", True, sent),
            ("", "?", ["e must be a bool, or null", *sent]),
            (sent[0] + "x", b"", []),
        ]
        strays = ("E", "hushmote/consnet", asked[:-1], "hushmote/v1/other/report/b")
        messages += [(stray, True, [f"unknown topic {stray}; expected one of e, f"]) for stray in strays]
        messages += [("e", True, sent), ("e", True, sent), ("e", True, [])]  # the budget allows 4 reports
        headers = [topic if isinstance(topic, dict) else {"topic": topic} for topic, *_ in messages]
        inputs = [{**fields, "payload": x} for fields, (_, x, _) in zip(headers, messages, strict=True)]
        assert ask([["node", config, inputs]])[0] == [answers for *_, answers in messages]

    def test_messages_from_mqtt_cannot_opt_in(self, tmp_path):
        """The messages are those of an MQTT-in node with a local broker, in MQTT 3.1.1 and 5."""
        config = {"fleet": "home", "experiments": "e", "folder": str(tmp_path), "epsilon": 1, "sum": 9}
        refused = "a message from MQTT can opt out, but not opt in or provision"
        mqtt = {"qos": 0, "retain": False, "_msgid": "f2a1"}
        shapes = (mqtt, mqtt | {"_topic": "t", "contentType": "text/plain"}, {"qos": 2}, {"retain": True})
        messages: list[tuple[dict[str, Any], list[str]]] = []
        for shape in shapes:
            messages += [
                (shape | {"topic": "hushmote/provision", "payload": None}, [NO_TOPIC]),
                (shape | {"topic": "hushmote/consent", "payload": True}, [NO_TOPIC]),
                (shape | {"topic": "e", "payload": None, "provision": True}, [refused]),
                (shape | {"topic": "e", "payload": True, "consent": True}, [refused]),
            ]
        report = ["hushmote/v1/home/report/"]
        messages += [
            ({"provision": True, "consent": True}, []),
            (mqtt | {"topic": "hushmote/v1/home/experiment/e", "payload": E}, []),
            (mqtt | {"topic": "e", "payload": True}, report),
            (mqtt | {"consent": False}, []),
            ({"topic": "e", "payload": True}, []),
            (mqtt | {"consent": True}, [refused]),
            ({"topic": "e", "payload": True}, []),
            ({"consent": "yes"}, ["consent must be true or false"]),
            ({"consent": True}, []),
            ({"topic": "e", "payload": True}, report),
        ]
        assert ask([["node", config, [fields for fields, _ in messages]]])[0] == [
            outputs for _, outputs in messages
        ]

    def test_asks_about_each_question(self, tmp_path: Path):
        config = {
            "fleet": "home",
            "experiments": "e",
            "folder": str(tmp_path),
            "epsilon": 4,
            "sum": 90,
            "each": True,
        }
        weak, strong = (
            experiment_json(epsilon=epsilon, budget={"rule": "sum", "cap": 90_000_000})
            for epsilon in (1_000_000, 4_000_000)
        )
        mqtt = {"qos": 0, "retain": False}
        topic = {"topic": "hushmote/v1/home/experiment/e"} | mqtt
        waits = "nobody has opted in to this question of e; to opt in, send msg.agree = 'e'"
        refused = "a message from MQTT can opt out, but not opt in or provision"
        reading, report = {"topic": "e", "payload": True}, ["hushmote/v1/home/report/"]
        messages: list[tuple[dict[str, Any], list[str]]] = [
            ({"provision": True, "consent": True}, []),
            (topic | {"payload": weak}, [waits]),
            (reading, []),
            (mqtt | {"agree": "e"}, [refused]),
            (reading, []),
            ({"agree": "e", "payload": strong}, ["another question is waiting now"]),
            ({"agree": "e", "payload": weak}, []),
            (reading, report),
            (topic | {"payload": strong}, [*report, waits]),  # unacknowledged messages are resent
            (reading, report),
            (mqtt | {"consent": False, "agree": "e"}, ["someone has opted out of everything"]),
            ({"consent": True}, []),
            (reading, []),
            (topic | {"payload": weak}, [waits]),
            ({"agree": "e"}, []),
            (reading, report),
        ]
        assert ask([["node", config, [fields for fields, _ in messages]]])[0] == [
            outputs for _, outputs in messages
        ]
        once = config | {"each": False, "folder": str(tmp_path / "once")}
        outputs = ask([["node", once, [{"agree": "e"}]]])[0]
        assert outputs == [["msg.agree requires a node with Ask each"]]

    @pytest.mark.parametrize("mistake", TYPED_MISTAKES, ids=str)
    def test_mistake_in_settings_is_named(self, tmp_path, mistake):
        wrong = mistake.settings
        config = {"fleet": wrong["fleet"], "device": wrong["device_id"], "experiments": "e", "epsilon": 1}
        config |= {"sum": 9, "folder": str(tmp_path / "ledger")}
        config |= {"credentials": {"key": wrong["key"], "announceKey": wrong["announce_key"]}}
        ((message,),) = ask([["node", config, [{"provision": True}]]])[0]
        named = {"device_id": "deviceId", "announce_key": "announceKey"}
        replace(mistake, field=named.get(mistake.field, mistake.field)).assert_explained_by(message)
        assert not (tmp_path / "ledger").exists()


class TestReport:
    def test_draws_for_every_before_checking_type(self):
        scripted = [
            ["below", 3, 1],
            ["below", 3, 2],
            ["below", 3, 0],
            ["bernoulli", 784968171, 1],
            ["below", 1, 0],
        ]
        calls = [SPENT[0], ["report", "e", "no bool"], SPENT[0]]
        payload = E.replace(b'"budget"', b'"every": 3, "budget"')
        silent, wrong, report = play(calls, {"records": FRESH}, draws=scripted, payloads=[payload])["answers"]
        assert (silent, wrong[:9], report[10:]) == (None, "TypeError", "0000000101")

    def test_accepts_names_of_object_properties(self):
        payload = E.replace(b'"e"', b'"__proto__"')
        calls = [["report", "__proto__", True]] * 5 + [["status"]]
        *reports, status = play(calls, {"records": FRESH}, payloads=[payload])["answers"]
        assert [r and int(r[10:18]) for r in reports] == [1, 2, 3, 4, None]
        assert status["sum"] == "4000000"


def random_calls(rng: Random) -> tuple[dict[str, Any], list[Any]]:
    """Return a policy and the calls of one lifetime, which enroll versions and report readings."""
    policy = {
        "sum": rng.choice((3_000_000, 9_000_000, 2**47)),
        "squares": rng.choice((0, 6 * 10**12, 2**53 - 1)),
        "epsilon": rng.choice((1_000_000, 2_000_000)),
        "rules": ["sum", "squares", "count", "unlimited"][: rng.choice((3, 4, 4))],
        "experiments": ["e", "f"],
    }
    calls: list[Any] = []
    for _ in range(30):
        if rng.randint(0, 4):
            calls.append(["report", rng.choice("ef"), rng.choice((True, False, None))])
            continue
        epsilon, rule = (
            rng.choice((500_000, 1_000_000, 2_000_000)),
            rng.choice(("sum", "squares", "count", "unlimited")),
        )
        caps = {"sum": (2_000_000, 5_000_000), "squares": (3 * 10**12, 2**54 - 1), "count": (2, 20)}
        budget = {"rule": rule} | ({"cap": rng.choice(caps[rule])} if rule in caps else {})
        calls.append(["enroll", experiment_json(name=rng.choice("eefg"), epsilon=epsilon, budget=budget)])
    return policy, calls


def call_board(client: Any, call: list[Any]) -> Any:
    """Return the MicroPython client's answer: a report's number, or the text of a refusal."""
    try:
        answer = getattr(client, call[0])(*call[1:])
    except ExperimentRefused as e:
        return f"ExperimentRefused: {e}"
    return int.from_bytes(answer[5:9], "big") if type(answer) is bytes else None


class TestLedger:
    def test_storage_faults_never_refund_budget_or_reuse_numbers(self):
        """Let every write of a lifetime fail in every way; a second lifetime then spends the rest."""
        first = [*SPENT[:2], ["unsent"], ["acknowledge"], SPENT[0], ["unsent"], ["acknowledge"]]
        cases = [(fault, at) for fault in FAULTS for at in range(6)]
        faulty = [{"records": FRESH, "fault": fault, "at": at} for fault, at in cases]
        lifetimes = ask([lifetime_of(first, storage, payloads=[E]) for storage in faulty])
        second = [["unsent"], *SPENT, ["status"]]
        after = ask([lifetime_of(second, {"records": x["records"]}, payloads=[E]) for x in lifetimes])
        for case, lifetime, then in zip(cases, lifetimes, after, strict=True):
            waiting, *reports, status = then["answers"]
            flat = [
                x for answer in lifetime["answers"] for x in (answer if type(answer) is list else [answer])
            ]
            witness = Witness()
            all_reports = [x for x in [*flat, *waiting, *reports] if x and len(x) == 20]
            witness.see_all([bytes.fromhex(x) for x in all_reports])
            if status["locked"]:
                assert case[0].startswith("torn")
                assert (waiting, reports) == ([], [None] * 6)
            else:
                assert (len(witness.seen), status["sum"]) == (4, "4000000"), case
            assert case[1] > 1 or lifetime["answers"][case[1]] is None, "returned but not stored"
            # Reports wait until they are acknowledged, so the second lifetime starts with those of the first.
            returned = set(lifetime["answers"][:2]) - {None}
            assert status["locked"] or len(lifetime["answers"]) > 3 or returned <= set(waiting), case

    def test_doubtful_ledger_stays_locked_until_replaced(self):
        first, second, third = record(5), record(6, sum="1000000"), record(7, sum="2000000")
        torn = [7, third[1][:-1]]
        other = record(7, device="another")
        doubts = [[], [second], [first, third], [second, torn]]
        doubts += [[[6, third[1]], third], [[6, second[1] + " "], third]]
        for records in [*doubts, [second, other], [[1, "?"]]]:
            locked = play([*SPENT, ["setConsent", True], ["status"]], {"records": records}, payloads=[E])
            *reports, consent, status = locked["answers"]
            assert status["locked"].startswith("locked: "), records
            assert (reports, consent) == ([None] * 6, f"LedgerError: {status['locked']}")
            assert locked["records"] == records
        for records in ([second, torn], [second, third]):
            (refused,) = play([], {"records": records}, provision={"deviceId": DEVICE})["answers"]
            assert refused == "LedgerError: a ledger exists; use replace: true"
            replace = {"deviceId": DEVICE, "replace": True}
            assert play([["status"]], {"records": records}, provision=replace)["answers"][0]["locked"] is None
        for records in ([], [record(1)]):  # empty, or left by an interrupted provision()
            fresh = play([["status"]], {"records": records}, provision={"deviceId": DEVICE})
            assert fresh["answers"][0]["sum"] == "0"

    def test_locks_if_records_are_reverted_or_removed(self):
        report = SPENT[0]
        calls = [report, ["records", FRESH], report, ["status"], ["records", []], report, ["status"]]
        first, _, second, back, _, third, gone = play(calls, {"records": FRESH}, payloads=[E])["answers"]
        assert (len(first), second, third) == (20, None, None)
        assert back["locked"] == "locked: the ledger is older or another client's"
        assert gone["locked"] == "locked: no ledger; provision this client"

    def test_rule_pinned_by_another_tab_makes_no_report(self):
        newer = [record(n, entries={".e": [0, "count", "9", "1000000"]}) for n in (3, 4)]
        calls = [["records", newer], SPENT[0], ["status"]]
        _, report, status = play(calls, {"records": FRESH}, payloads=[E])["answers"]
        assert (report, status["locked"], status["experiments"]["e"]["left"]) == (None, None, 0)

    def test_budgets_pins_and_policies_match_boards(self):
        """Play 100 lifetimes of 30 calls, which also fill the outbox of 16 reports."""
        rng = Random(5)  # noqa: S311
        lifetimes = [random_calls(rng) for _ in range(100)]
        requests = [
            lifetime_of([*calls, ["status"]], {"records": FRESH}, {"policy": policy})
            for policy, calls in lifetimes
        ]
        seen: Counter[str] = Counter()
        for (policy, calls), result in zip(lifetimes, ask(requests), strict=True):
            slots = memory()
            provision(slots, consent=True)
            board = Client(policy, slots, DEVICE)
            for call, answer in zip(calls, result["answers"], strict=False):
                expected = call_board(board, call)
                if call[0] == "report":
                    answer = answer and int(answer[10:18], 16)
                elif not str(answer).startswith("ExperimentRefused"):
                    answer = None
                assert answer == expected, (policy, call)
                seen[f"{call[0]} {str(answer)[:40] if type(answer) is str else answer is None}"] += 1
            status, ours = result["answers"][-1], board.status()
            assert (status["sum"], status["squares"]) == (str(ours["sum"]), str(ours["squares"]))
            assert status["pending"] == ours["pending"]
            for name, line in status["experiments"].items():
                expected = {k: ours["experiments"][name][k] for k in line}
                for fields in (line, expected):  # a board's ledger has smaller fields
                    fields["left"] = fields["left"] and min(fields["left"], 10**6)
                assert line == expected
        assert min(seen.values()) > 5
        assert len(seen) == 8, seen


MANY = experiment_json(budget={"rule": "count", "cap": 60})
CYCLES = [["cycle", "e", True]] * 60


def folder_lifetime(folder: Path, calls: list[Any], **more: Any) -> list[Any]:
    return lifetime_of(calls, {"folder": str(folder)}, payloads=[MANY], **more)


def report_numbers(lines: list[str]) -> list[int]:
    return sorted(int(line[11:19], 16) for line in lines if line.startswith('"'))


PAUSED_WRITER = """
import * as fs from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { Folder } from './clients/js/folder.js';
const [path, first, before, after] = process.argv.slice(1);
const { link } = fs.default;
const others = async (from, to) => {
  for (let n = +from; n <= +to; n++) await new Folder(path).write(n, `of ${n}`);
};
await others(1, first - 1);
fs.default.link = async (...names) => {
  fs.default.link = link;
  syncBuiltinESMExports();
  await others(first, before);
  await link(...names);
  await others(+first + 1, after);
};
syncBuiltinESMExports();
console.log(await new Folder(path).write(+first, 'its own'));
"""


class TestSharedFolder:
    def test_processes_spend_its_budget_once(self, tmp_path):
        ask([folder_lifetime(tmp_path, [], provision={"deviceId": DEVICE, "consent": True})])
        processes = [start() for _ in range(3)]
        for process in processes:
            assert process.stdin
            process.stdin.write(json.dumps(encode([folder_lifetime(tmp_path, CYCLES)])))
            process.stdin.close()
            process.stdin = None
        lines = [line for process in processes for line in process.communicate()[0].splitlines()]
        # A process that pauses while others write 16 records cannot recognize its record, and reports again.
        waiting = ask([folder_lifetime(tmp_path, [["unsent"]])])[0]["answers"][0]
        assert report_numbers([*lines, *(f'"{report}"' for report in waiting)]) == list(range(1, 61))

    @pytest.mark.parametrize(
        ("before", "after", "written"), [(0, 0, True), (0, 9, True), (5, 0, False), (40, 0, False)]
    )
    def test_paused_process_detects_records_of_others(self, tmp_path, before, after, written):
        """The process writes number 5; others write up to these numbers before and after."""
        words = [*map(str, (tmp_path, 5, before, after))]
        process = subprocess.run(
            [str(NODE), "--input-type=module", "-e", PAUSED_WRITER, *words], cwd=ROOT, capture_output=True
        )
        assert json.loads(process.stdout) is written, process.stderr

    def test_killed_process_loses_and_repeats_no_report(self, tmp_path):
        ask([folder_lifetime(tmp_path, [], provision={"deviceId": DEVICE, "consent": True})])
        seen: dict[int, str] = {}
        for lifetime in range(6):
            process = start()
            assert process.stdin
            assert process.stdout
            process.stdin.write(json.dumps(encode([folder_lifetime(tmp_path, CYCLES)])))
            process.stdin.close()
            process.stdin = None
            lines = [process.stdout.readline() for _ in range(1 + lifetime % 3)]
            process.kill()
            lines += process.communicate()[0].splitlines()
            waiting = ask([folder_lifetime(tmp_path, [["unsent"], ["acknowledge"], ["status"]])])[0][
                "answers"
            ]
            printed = [line.strip('"\n') for line in lines if line.startswith('"') and len(line) > 20]
            for report in [*printed, *waiting[0]]:
                assert seen.setdefault(int(report[10:18], 16), report) == report
            assert sorted(seen) == list(range(1, len(seen) + 1))
            assert waiting[2]["experiments"]["e"]["reports"] == len(seen)
        assert len(seen) > 6


class TestAskingClient:
    """question.js: an opt-in applies to one question."""

    EACH: ClassVar[dict[str, Any]] = {"policy": POLICY | {"ask": "each"}}
    YES: ClassVar[dict[str, Any]] = {"deviceId": DEVICE, "consent": True}
    WAITS = "ExperimentRefused: nobody has opted in to it; call agree(name)"
    FREE = experiment_json(budget={"rule": "unlimited"})
    STRONG = experiment_json(epsilon=4_000_000, budget={"rule": "unlimited"})
    AGREED = (["enroll", E], ["agree", "e"])

    def play(self, calls: Any, **more: Any) -> dict[str, Any]:
        return play(list(calls), settings=self.EACH, **{"provision": self.YES} | more)

    def answers(self, *calls: Any, **more: Any) -> list[Any]:
        return self.play(calls, **more)["answers"]

    def test_waits_for_consent_to_each_question(self):
        waits, silent, asking, _, made, none = self.answers(
            *(
                ["enroll", E],
                ["report", "e", True],
                ["asking"],
                ["agree", "e"],
                ["report", "e", True],
                ["asking"],
            )
        )
        assert (waits, silent, asking, none) == (self.WAITS, None, ["e"], [])
        assert len(made) == 20

    def test_asks_again_for_higher_epsilon_and_keeps_old_version(self):
        answers = self.answers(
            *(
                ["enroll", self.FREE],
                ["agree", "e"],
                ["enroll", self.STRONG],
                ["report", "e", True],
                ["asking"],
                ["agree", "e", self.FREE],
            ),
            *(["agree", "e", self.STRONG], ["report", "e", True], ["restart"], ["enroll", self.FREE]),
            *(["report", "e", True], ["status"]),
        )
        assert answers[2] == self.WAITS
        assert answers[3][2:10] == hashlib.sha256(self.FREE).hexdigest()[:8]
        assert answers[5] == "ExperimentRefused: another question is waiting now"
        assert answers[7][2:10] == hashlib.sha256(self.STRONG).hexdigest()[:8]
        # A lower epsilon needs no new opt-in.
        assert answers[10][2:10] == hashlib.sha256(self.FREE).hexdigest()[:8]
        assert answers[11]["sum"] == "6000000"

    def test_survives_a_restart_in_a_folder(self, tmp_path: Path):
        storage = {"folder": str(tmp_path)}
        self.answers(*self.AGREED, storage=storage)
        second_answers = self.answers(["enroll", E], ["report", "e", True], storage=storage, provision=None)
        assert len(second_answers[1]) == 20

    @pytest.mark.parametrize(
        "between", [["restart"], ["withdraw", "e", b""], ["asking"]], ids=["restart", "withdrawal", "asking"]
    )
    def test_opt_out_and_withdrawal_end_consent(self, between: list[Any]):
        ends = [] if between[0] == "withdraw" else [["setConsent", False]]
        answers = self.answers(
            *(*self.AGREED, *ends, between, ["setConsent", True], ["report", "e", True], ["status"]),
            *(["enroll", E], ["restart"], ["enroll", E], ["report", "e", True]),
        )
        assert answers[-6] is None
        assert answers[-5]["experiments"]["e"] == {"state": "absent", "reports": 0, "left": None}
        assert answers[-4] == answers[-2] == self.WAITS
        assert answers[-1] is None

    def test_opt_out_in_another_tab_ends_consent(self):
        elsewhere = (["elsewhere", "setConsent", False], ["elsewhere", "setConsent", True])
        made, _, _, none = self.answers(
            *self.AGREED, ["report", "e", True], *elsewhere, ["report", "e", True]
        )[2:]
        assert (len(made), none) == (20, None)

    def test_concurrent_opt_out_ends_consent(self):
        """Report, opt in and opt out concurrently; a question without an opt-in gets no report."""
        several = (["agree", "e"], ["report", "e", True], ["setConsent", False], ["report", "e", True])
        answers = self.answers(
            ["enroll", E], ["atOnce", *several], ["setConsent", True], ["report", "e", True], ["enroll", E]
        )
        assert answers[1][3] is answers[3] is None
        assert answers[4] == self.WAITS

    def test_reports_only_agreed_version_while_it_changes(self):
        reports = [["report", "e", True]] * 3
        several = (
            *reports,
            ["enroll", self.STRONG],
            *reports,
            ["enroll", self.FREE],
            ["agree", "e", self.FREE],
            *reports,
        )
        answers = self.answers(["enroll", self.FREE], ["agree", "e"], ["atOnce", *several])[2]
        assert all(
            report[2:10] == hashlib.sha256(self.FREE).hexdigest()[:8] for report in answers[:3] + answers[4:7]
        )

    def test_damaged_record_does_not_count_as_consent(self):
        assert self.answers(*self.AGREED, ["damage"], ["report", "e", True])[3] is None
        assert self.answers(*self.AGREED, ["damage"], ["restart"], ["enroll", E])[4] == self.WAITS
        agreed = self.play(self.AGREED)
        (number, text), *_ = sorted(agreed["yes"], reverse=True)
        damaged = [text[:size] for size in range(len(text))]
        damaged += [text[:i] + chr(ord(text[i]) ^ 1) + text[i + 1 :] for i in range(len(text))]
        lifetimes = []
        for changed in (*damaged, text):
            more = {"storage": {"records": agreed["records"]}, "yes": {"records": [[number, changed]]}}
            lifetimes.append(lifetime_of([["enroll", E], ["report", "e", True]], settings=self.EACH, **more))
        *lost, kept = [lifetime["answers"] for lifetime in ask(lifetimes)]
        assert all(answers == [self.WAITS, None] for answers in lost)
        assert len(kept[1]) == 20

    def test_consent_does_not_count_if_storage_fails(self):
        answers = self.answers(
            ["enroll", E], ["fail", "raise"], ["agree", "e"], ["report", "e", True], ["enroll", E]
        )
        assert answers[2].startswith("LedgerError: storage failed: ")
        assert answers[3:] == [None, self.WAITS]

    def test_opt_out_ends_consent_even_if_storage_fails(self):
        answers = self.answers(
            *(*self.AGREED, ["fail", "raise"], ["setConsent", False], ["consent"], ["fail", "raise"]),
            *(["setConsent", True], ["consent"], ["setConsent", True], ["report", "e", True], ["enroll", E]),
        )
        assert answers[3].startswith("LedgerError: ")
        assert answers[4] is False
        assert answers[6].startswith("LedgerError: ")
        assert answers[7:] == [False, None, None, self.WAITS]

    def test_rejects_consent_after_general_opt_out(self):
        answers = self.answers(["enroll", E], ["setConsent", False], ["agree", "e"], ["asking"])
        assert answers[2:] == ["ExperimentRefused: someone has opted out of everything", ["e"]]

    def test_rejects_consent_to_refused_question(self):
        unknown = experiment_json(name="another")
        large = experiment_json(budget={"rule": "sum", "cap": 2**54})
        answers = self.answers(
            ["enroll", unknown], ["enroll", large], ["agree", "e"], ["asking"], ["agree", "e"]
        )
        assert answers[0] == "ExperimentRefused: another is not in the policy"
        assert answers[2].startswith("ExperimentRefused: cap must be")
        assert answers[3:] == [[], "ExperimentRefused: no question of e is waiting"]

    def test_rejects_consent_to_withdrawn_question(self):
        calls = [["enroll", experiment_json(name="f")]]
        calls += [["enroll", E], ["withdraw", "e", b""], ["asking"], ["agree", "e"]] * 2
        answers = self.answers(*calls, ["agree", "f"], ["report", "f", True])
        assert answers[3:5] == answers[7:9] == [["f"], "ExperimentRefused: no question of e is waiting"]
        assert len(answers[-1]) == 20

    def test_rejects_settings_without_ask_each(self):
        plain = [["open", {"policy": POLICY | {"ask": "each"}}, False], ["open", {"policy": POLICY}, True]]
        plain += [["open", {"policy": POLICY | {"ask": "once"}}, True], ["open", {}, True]]
        assert all(answer.startswith("SettingsError: ") for answer in ask(plain))


class TestPackage:
    def test_version_matches_the_project(self):
        assert json.loads((ROOT / "clients/js/package.json").read_text())["version"] == VERSION

    def test_is_at_most_14_kibibytes_minified(self):
        esbuild = [str(NODE), npm_file("esbuild-wasm/bin/esbuild"), "--bundle", "--minify", "--format=esm"]
        minified = subprocess.run(
            [*esbuild, ROOT / "clients" / "js" / "hushmote.js"], capture_output=True, check=True
        )
        assert 0 < len(minified.stdout) <= 14 << 10, (
            "put new features into a separate file, such as prefix.js"
        )
