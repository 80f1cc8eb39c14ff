"""What a board would send, in words: the same on the MicroPython client and the C client."""

from __future__ import annotations

import calendar
import json
from typing import Any

import pytest
from boards import MemoryStorage
from c_client import CBoard, Refused, Source
from c_core import needs_gcc
from epsilon_shapes import SHAPES
from experiments import experiment_json

from hushmote.device import ldp_client, preview
from hushmote.device.ldp_client import Client

pytestmark = needs_gcc
POLICY: dict[str, Any] = {
    "sum": 40_000_000,
    "squares": 0,
    "epsilon": 16_000_000,
    "rules": ["sum"],
    "experiments": ["e", "f"],
    "groups": ["firmware"],
}
GROUP = {"group": "firmware", "groups": ["2.3.1", "2.4.0"]}
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


class TestPreview:
    @pytest.mark.parametrize("name", SHAPES)
    def test_words_are_the_same_for_every_shape(self, name: str):
        shape = SHAPES[name]
        for more in ({}, GROUP, {"every": 30}, GROUP | {"every": [90, 1, 130]}, {"epsilon": 40_000}):
            fields = {"epsilon": 1_000_000} | shape | more
            try:
                ldp_client.Experiment.parse(payload := experiment_json(**fields))
            except ldp_client.ExperimentRefused:
                continue
            python, c = boards(payload, bytes(32) if more else None)
            for reading in readings_of(shape):
                for group in (None, "2.3.1", "unlisted"):
                    expected = preview.preview(python, "e", reading, group)
                    assert c.preview("e", reading, group) == expected
            assert "Nothing is sent" in expected
            python.consent = c.consent = True
            assert c.preview("e", None) == preview.preview(python, "e", None)

    def test_times_are_the_same_for_every_epsilon(self):
        for epsilon in (
            1_000,
            95_310,
            693_147,
            693_148,
            1_000_000,
            2_302_585,
            2_302_586,
            7_777_777,
            16_000_000,
        ):
            python, c = boards(experiment_json(epsilon=epsilon))
            assert c.preview("e", True) == preview.preview(python, "e", True)

    def test_missing_reading_of_its_own_is_named(self):
        python, c = boards(experiment_json(type="choice", labels=["home"], mechanism="grr", missing=1))
        assert "stands for no reading." in c.preview("e", None)
        assert c.preview("e", None) == preview.preview(python, "e", None)

    def test_absent_unknown_and_wrong(self):
        python, c = boards(experiment_json())
        assert c.preview("f", True) == preview.preview(python, "f", True)
        for name, reading, code in (("g", True, "UNKNOWN"), ("e", "text", "WRONG_TYPE")):
            with pytest.raises(Refused, match=code):
                c.preview(name, reading)

    def test_short_buffer_cuts_the_text(self):
        python, c = boards(experiment_json())
        expected = preview.preview(python, "e", True)
        for size in (1, 2, 40, len(expected), len(expected) + 1):
            assert c.preview("e", True, size=size) == expected[: size - 1]


class TestExport:
    def test_is_the_same_and_spends_nothing(self):
        python, c = boards(experiment_json(epsilon=4_000_000, budget={"rule": "sum", "cap": 40_000_000}))
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
        state = c.status()
        expected = json.loads(preview.export(python, last))
        exported = c.export(sent)
        left = [line.split(";")[0] for line in expected.pop("last")]
        assert [line.split(";")[0] for line in exported.pop("last")] == left
        assert left[0].startswith("2028-03-02 23:59 e: code ")
        assert exported == expected
        assert exported["experiments"]["e"] == {"epsilon": 4_000_000, "reports": 10, "left": 0}
        assert c.status() == state

    def test_report_of_an_ended_question_and_without_clock(self):
        python, c = boards(experiment_json())
        report = b"\x10" + bytes(9)
        assert c.export([(0, report)])["last"] == [preview.words(python, report)]
        assert c.describe(report) == preview.words(python, report)
