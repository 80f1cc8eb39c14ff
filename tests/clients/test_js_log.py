"""clients/js with a log in its policy: proofs, a client's answers, and a door that serves both messages."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import log_cases
import pytest
import reference_board as ref
import reference_log
from boards import SIGNING
from doors import open_door
from experiments import experiment_json
from traffic import publish

from hushmote.server.wire.keys import public_key_bytes, sign_experiment
from hushmote.simulator.broker import MosquittoBroker

ROOT = Path(__file__).parents[2]
NODE = shutil.which("node")
VECTORS = json.loads((ROOT / "tests" / "vectors_log.json").read_text())
PRIVATE = [5**80 + i for i in range(3)]
LOG = {
    "origin": "example.org/questions",
    "keys": [ref.public_key(key).hex() for key in PRIVATE],
    "need": 2,
}
POLICY = {
    "sum": 2**47,
    "squares": 0,
    "epsilon": 16_000_000,
    "rules": ["sum"],
    "experiments": ["e"],
    "log": LOG,
}
TOPIC = "hushmote/v1/home/experiment/e"
REFUSED = "ExperimentRefused: "
MISSING = f"{REFUSED}its proof from the log is missing"

pytestmark = [
    pytest.mark.micropython,
    pytest.mark.skipif(NODE is None, reason="no Node: apt-get install nodejs"),
]


class Rig:
    """js_rig.mjs, which answers each [job, argument, ...]."""

    def __init__(self) -> None:
        command = [str(NODE), Path(__file__).with_name("js_rig.mjs")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._line() == "ready\n"

    def _line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline()

    def ask(self, requests: list[Any]) -> list[Any]:
        assert self.process.stdin
        print(json.dumps(requests, default=lambda x: {"$hex": x.hex()}), file=self.process.stdin, flush=True)
        return [json.loads(self._line()) for _ in requests]

    def play(self, calls: list[Any], policy: dict[str, Any] = POLICY, **more: Any) -> list[Any]:
        """Return a client's answers to calls."""
        settings = {"policy": policy, "fleet": "home", "announceKey": public_key_bytes(SIGNING)}
        given = {"storage": {}, "settings": settings, "provision": {"consent": True, "deviceId": "d"}}
        (answer,) = self.ask([["play", given | more, calls]])
        return answer["answers"]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.process.communicate()
    assert rig.process.returncode == 0


def version(serial: int) -> bytes:
    payload = experiment_json(budget={"rule": "sum", "cap": 40_000_000})
    return sign_experiment(SIGNING, TOPIC, payload, serial)


def proof(serial: int, index: int = 5) -> bytes:
    return reference_log.proof_of(LOG["origin"], PRIVATE, (0, 1, 2), TOPIC, version(serial), index, 9)


class TestProofs:
    def test_vectors(self, rig: Rig):
        requests, expected = [], []
        for case in VECTORS["proofs"]:
            message = (bytes.fromhex(case[name]) for name in ("payload", "proof"))
            requests.append(["proof", VECTORS["logs"][case["log"]], case["fleet"], case["name"], *message])
            expected.append(case["index"] if case["refused"] is None else REFUSED + case["refused"])
        assert rig.ask(requests) == expected

    @pytest.mark.slow
    def test_random_ones_and_mutants_are_answered_like_ldp_log(self, rig: Rig):
        def answer(cases: list[log_cases.Case]) -> list[int | str]:
            requests = [
                ["proof", case.log, log_cases.FLEET, case.name, case.payload, case.proof] for case in cases
            ]
            answers = rig.ask(requests)
            return [x.removeprefix(REFUSED) if isinstance(x, str) else x for x in answers]

        log_cases.check(answer, 62)


class TestPolicy:
    @pytest.mark.parametrize(
        "log",
        [
            {},
            "example.org",
            0,
            LOG | {"more": 1},
            LOG | {"origin": "a b"},
            LOG | {"need": 3},
            LOG | {"need": 0},
            LOG | {"keys": LOG["keys"][:1]},
            LOG | {"keys": [LOG["keys"][0], *LOG["keys"][:2]]},
            LOG | {"keys": [LOG["keys"][0], LOG["keys"][0].upper(), LOG["keys"][1]]},
            LOG | {"keys": [key[:-1] for key in LOG["keys"]]},
            LOG | {"keys": [*LOG["keys"], LOG["keys"][1][:8] + "1" * 120]},
            LOG | {"need": 1},
            LOG | {"keys": [*LOG["keys"], "1" * 128, "2" * 128]},
        ],
        ids=[
            *("empty", "text", "number", "field", "origin", "need above", "no need", "one key", "same key"),
            *("same key in capitals", "short key", "same start", "half of two", "half of four"),
        ],
    )
    def test_with_wrong_log_is_refused(self, rig: Rig, log: Any):
        (answer,) = rig.play([], POLICY | {"log": log})
        assert answer.startswith("SettingsError: policy: log must be origin, keys and need")

    def test_with_log_requires_an_announce_key(self, rig: Rig):
        settings = {"policy": POLICY, "fleet": "home"}
        assert rig.play([], settings=settings) == [
            "SettingsError: policy: log requires announceKey: without serials, earlier versions could return"
        ]

    def test_with_log_is_refused_by_a_plain_client(self, rig: Rig):
        (answer,) = rig.ask([["open", {"policy": POLICY}, False]])
        assert answer.startswith("SettingsError: policy: ")


class TestEnroll:
    def test_requires_a_proof(self, rig: Rig):
        report = ["report", "e", True]
        answers = rig.play(
            [
                ["enroll", version(1)],
                ["enroll", version(1), b""],
                ["enroll", version(1), proof(2)],
                report,
                ["enroll", version(1), proof(1)],
                report,
                ["enroll", version(9), proof(1)],
                ["enroll", version(2), proof(2, 6)],  # the refused one did not raise the lowest serial
                ["enroll", version(1), proof(1)],
                ["withdraw", "e", sign_experiment(SIGNING, TOPIC, b"", 3)],
                report,
            ]
        )
        wrong = f"{REFUSED}it is not in the log, or a signature in its proof is wrong"
        assert answers[:4] == [MISSING, MISSING, wrong, None]
        assert answers[4]["name"] == "e"
        assert len(answers[5]) == 20
        assert answers[6] == wrong
        assert answers[7]["name"] == "e"
        assert answers[8:] == [f"{REFUSED}a newer version was published", None, None]

    @pytest.mark.parametrize("ask", [{}, {"ask": "each"}], ids=str)
    def test_refuses_list_as_every(self, rig: Rig, ask: dict[str, str]):
        def grouped(every: Any) -> tuple[bytes, bytes]:
            fields = {"group": "firmware", "groups": ["2.4.0"], "every": every}
            payload = sign_experiment(SIGNING, TOPIC, experiment_json(**fields), 1)
            return payload, reference_log.proof_of(LOG["origin"], PRIVATE, (0, 1, 2), TOPIC, payload, 5, 9)

        calls = [["enroll", *grouped(every)] for every in ([1, 2**24], [2, 2], 2)]
        *refused, taken = rig.play(calls, POLICY | ask | {"groups": ["firmware"]})
        assert refused == [f"{REFUSED}every must be one number with a log"] * 2
        assert ask or taken["name"] == "e"

    def test_status_has_the_index(self, rig: Rig):
        calls = [["status"], ["enroll", version(1)], ["status"], ["enroll", version(1), proof(1)], ["status"]]
        calls += [["enroll", version(2)], ["status"]]
        states = [answer["experiments"]["e"] for answer in rig.play(calls)[::2]]
        absent, refused, made, kept = ((x["state"], x.get("leaf"), x.get("reason")) for x in states)
        reason = MISSING.removeprefix(REFUSED)
        assert (absent, refused) == (("absent", None, None), ("refused", None, reason))
        assert (made, kept) == (("reporting", 5, None), ("reporting", 5, reason))

    def test_preview_names_the_witnesses(self, rig: Rig):
        first, second = (key[:16] for key in LOG["keys"][1:])
        for more, names in (
            ([], f"{first} and {second}"),
            (["1" * 128], f"2 of {first}, {second} and {'1' * 16}"),
        ):
            policy = POLICY | {"log": LOG | {"keys": LOG["keys"] + more}}
            *_, text = rig.play([["enroll", version(1), proof(1)], ["preview", "e", True]], policy)
            checked = f"checked by {names}"
            words = f"Asked of every device alike, {checked}; entry 5 of {LOG['origin']}."
            assert text.splitlines()[-1] == words

    def test_keys_may_have_digits_in_either_case(self, rig: Rig):
        policy = POLICY | {"log": LOG | {"keys": [key.upper() for key in LOG["keys"]]}}
        answers = rig.play([["enroll", version(1), proof(1)], ["report", "e", True]], policy)
        assert len(answers[1]) == 20

    def test_asks_only_what_the_log_has(self, rig: Rig):
        answers = rig.play(
            [
                ["enroll", version(1)],
                ["asking"],
                ["enroll", version(1), proof(1)],
                ["asking"],
                ["agree", "e"],
                ["report", "e", True],
                ["enroll", version(2)],
                ["enroll", version(2), proof(2, 7)],
                ["status"],
            ],
            POLICY | {"ask": "each"},
        )
        assert answers[:2] == [MISSING, []]
        assert answers[2:4] == [f"{REFUSED}nobody has opted in to it; call agree(name)", ["e"]]
        assert len(answers[5]) == 20
        assert (answers[6], answers[7]["name"]) == (MISSING, "e")
        assert answers[8]["experiments"]["e"]["leaf"] == 7

    def test_ends_with_the_newest_version_in_any_order(self, rig: Rig):
        messages = {f"v{n}": version(n) for n in (1, 2, 3)} | {f"p{n}": proof(n, n) for n in (1, 2, 3)}
        for order in log_cases.message_orders(3):
            calls, newest = [], {"v": "", "p": ""}
            for message in order:
                newest[message[0]] = message
                if newest["v"]:
                    calls.append(["enroll", messages[newest["v"]], messages.get(newest["p"])])
            *_, status = rig.play([*calls, ["status"]])
            assert f"v{status['experiments']['e']['leaf']}" == max(order), order


@pytest.mark.broker
class TestDoor:
    def test_serves_the_proof_beside_the_experiment(self, rig: Rig):
        messages = [(TOPIC, version(1)), ("hushmote/v1/home/proof/e", proof(1))]
        calls = [["door", "enroll", ["e"]], ["report", "e", True]]
        with MosquittoBroker() as broker:
            publish(broker, messages[:1], retain=True)
            with open_door(broker, fleets=["home"], proofs=True) as door:
                url = f"http://127.0.0.1:{door.port}"
                missing = "e: its proof from the log is missing"
                assert rig.play(calls, url=url) == [[None, missing], None]
                assert door.ask("GET", "/v1/home/proof/e").status == 404
            publish(broker, messages[1:], retain=True)
            with open_door(broker, fleets=["home"], proofs=True) as door:
                url = f"http://127.0.0.1:{door.port}"
                answers = rig.play(calls, url=url)
                assert answers[0] == [None, None]
                assert len(answers[1]) == 20
                answer = door.ask("GET", "/v1/home/proof/e")
                assert (answer.status, answer.content) == (200, proof(1))
            with open_door(broker, fleets=["home"]) as door:
                answer = door.ask("GET", "/v1/home/proof/e")
                assert answer.status == 404
                assert "--proofs" in answer.text
                assert door.ask("GET", "/v1/home/experiment/e").status == 200
