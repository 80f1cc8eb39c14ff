"""What a board would send, in words: the same on all three clients."""

from __future__ import annotations

import calendar
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from boards import MemoryStorage
from c_client import CBoard, Refused, Source
from c_core import needs_gcc
from epsilon_shapes import SHAPES
from experiments import experiment_json

from hushmote.device import export, ldp_client, preview
from hushmote.device.ldp_client import Client

NODE = shutil.which("node")
RIG = Path(__file__).with_name("js_rig.mjs")
pytestmark = [
    pytest.mark.micropython,
    needs_gcc,
    pytest.mark.skipif(NODE is None, reason="no Node: apt-get install nodejs"),
]
POLICY: dict[str, Any] = {
    "sum": 40_000_000,
    "squares": 0,
    "epsilon": 16_000_000,
    "rules": ["sum"],
    "experiments": ["e", "f"],
    "groups": ["firmware"],
}
GROUP = {"group": "firmware", "groups": ["2.3.1", "2.4.0"]}
# Each power of ten times as likely, and half and double, lies between two of these.
EPSILONS = (1_000, 95_310, 693_147, 693_148, 2_302_585, 2_302_586, 7_777_777, 16_000_000)
READINGS = {
    "bool": [True, False, 1, None],
    "number": [21.4, -3, 0, 1000.125, 1e6, None],
    "choice": ["home", "a", "", None],
    "text": ["1.2", "Zürich", None],
}


def readings_of(shape: dict[str, Any]) -> list[Any]:
    if shape["type"] != "pair":
        return READINGS[shape["type"]]
    columns = [READINGS[part["type"]] for part in shape["of"]]
    return [None, *zip(*(column[:2] for column in columns), strict=True), tuple(c[-1] for c in columns)]


def boards(payload: bytes, key: bytes | None = None) -> tuple[Client, CBoard]:
    """Return a MicroPython and a C client with one experiment and nobody's consent."""
    storages = MemoryStorage(), MemoryStorage()
    for storage in storages:
        ldp_client.provision(storage)
    python = Client(POLICY, storages[0], device_id="board-1", key=key, fleet="home")
    c = CBoard(POLICY, storages[1], key=key, fleet="home", entropy=Source(1))
    for board in (python, c):
        board.enroll(payload)
        board.groups = {"firmware": "2.4.0"}
    return python, c


class Script:
    """Calls of JavaScript clients, each with one experiment, and their expected answers."""

    def __init__(self) -> None:
        self._lifetimes: list[Any] = []
        self._expected: list[list[Any]] = []

    def begin(self, payload: bytes, key: bytes | None = None) -> None:
        """Open another client."""
        settings = {"policy": POLICY, "deviceId": "board-1", "key": key and {"$hex": key.hex()}}
        options = {"storage": {}, "settings": settings, "provision": {"deviceId": "board-1"}}
        calls: list[Any] = [["groups", {"firmware": "2.4.0"}]]
        self._lifetimes.append(["play", options | {"payloads": [{"$hex": payload.hex()}]}, calls])
        self._expected.append([None])

    def call(self, expected: Any, *call: Any) -> None:
        """Add a call of the newest client."""
        self._lifetimes[-1][-1].append(call)
        self._expected[-1].append(expected)

    def answers(self) -> list[list[Any]]:
        """Make the calls."""
        assert NODE
        done = subprocess.run(
            [NODE, RIG], input=json.dumps(self._lifetimes) + "\n", capture_output=True, text=True, check=True
        )
        return [
            json.loads(line)["answers"] for line in done.stdout.splitlines() if line.startswith('{"answers"')
        ]

    def check(self) -> None:
        """Make the calls and compare their answers."""
        assert self.answers() == self._expected


class TestPreview:
    @pytest.mark.parametrize("name", SHAPES)
    def test_words_are_the_same_for_every_shape(self, name: str):
        shape, script = SHAPES[name], Script()
        for more in ({}, GROUP, {"every": 30}, GROUP | {"every": [90, 1, 130]}, {"epsilon": 40_000}):
            fields = {"epsilon": 1_000_000} | shape | more
            try:
                ldp_client.Experiment.parse(payload := experiment_json(**fields))
            except ldp_client.ExperimentRefused:
                continue
            key = bytes(32) if more else None
            python, c = boards(payload, key)
            script.begin(payload, key)
            for reading in readings_of(shape):
                for group in (None, "2.3.1", "unlisted"):
                    expected = preview.preview(python, "e", reading, group)
                    assert c.preview("e", reading, group) == expected
                    script.call(expected, "preview", "e", reading, group)
            assert "Nothing is sent" in expected
            python.consent = c.consent = True
            assert c.preview("e", None) == preview.preview(python, "e", None)
        script.check()

    def test_times_are_the_same_for_every_epsilon(self):
        script = Script()
        for epsilon in EPSILONS:
            payload = experiment_json(epsilon=epsilon)
            python, c = boards(payload)
            expected = preview.preview(python, "e", True)
            assert c.preview("e", True) == expected
            script.begin(payload)
            script.call(expected, "preview", "e", True)
        script.check()

    def test_missing_reading_of_its_own_is_named(self):
        payload = experiment_json(type="choice", labels=["home"], mechanism="grr", missing=1)
        (python, c), script = boards(payload), Script()
        expected = preview.preview(python, "e", None)
        assert "stands for no reading." in expected
        assert c.preview("e", None) == expected
        script.begin(payload)
        script.call(expected, "preview", "e", None)
        script.check()

    def test_absent_unknown_and_wrong(self):
        python, c = boards(experiment_json())
        assert c.preview("f", True) == preview.preview(python, "f", True)
        for name, reading, code in (("g", True, "UNKNOWN"), ("e", "text", "WRONG_TYPE")):
            with pytest.raises(Refused, match=code):
                c.preview(name, reading)
        script = Script()
        script.begin(experiment_json())
        script.call(preview.preview(python, "f", True), "preview", "f", True)
        script.call("SettingsError: g is not in the policy", "preview", "g", True)
        script.call("TypeError: e must be a bool, or null", "preview", "e", "text")
        script.check()

    def test_short_buffer_cuts_the_text(self):
        python, c = boards(experiment_json())
        expected = preview.preview(python, "e", True)
        for size in (1, 2, 40, len(expected), len(expected) + 1):
            assert c.preview("e", True, size=size) == expected[: size - 1]


class TestExport:
    def test_is_the_same_and_spends_nothing(self):
        payload = experiment_json(epsilon=4_000_000, budget={"rule": "sum", "cap": 40_000_000})
        python, c = boards(payload)
        python.consent = c.consent = True
        last, sent = preview.LastReports(), list[tuple[int, bytes]]()
        at = calendar.timegm((2028, 2, 29, 23, 59, 58))
        for i in range(10):
            (report,) = filter(None, [python.report("e", True)])
            c.report("e", True)
            for board in (python, c):
                board.sent(board.outbox()[0])
            last.lines = [*last.lines[-7:], preview.timed(preview.words(python, report), at + 86_400 * i)]
            sent.append((at + 86_400 * i, report))
        script = Script()
        script.begin(payload)
        script.call(None, "setConsent", True)
        for _ in range(10):
            script.call(None, "cycle", "e", True)
        script.call("", "export", [[at, {"$hex": report.hex()}] for at, report in sent])
        state = c.status()
        expected = json.loads(export.export(python, last))
        exported = c.export(sent)
        left = [line.split(";")[0] for line in expected.pop("last")]
        assert [line.split(";")[0] for line in exported.pop("last")] == left
        assert left[0].startswith("2028-03-02 23:59 e: code ")
        assert exported == expected
        in_javascript = json.loads(script.answers()[0][-1])
        assert [line.split(";")[0] for line in in_javascript.pop("last")] == left
        assert in_javascript == expected
        assert exported["experiments"]["e"] == {"epsilon": 4_000_000, "reports": 10, "left": 0}
        assert c.status() == state

    def test_report_of_an_ended_question_and_without_clock(self):
        python, c = boards(experiment_json())
        report = b"\x10" + bytes(9)
        assert c.export([(0, report)])["last"] == [preview.words(python, report)]
        assert c.describe(report) == preview.words(python, report)
