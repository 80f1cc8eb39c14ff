"""Whatever the door is asked: a documented answer, and nothing published that is not a report.

The requests are those of benchmarks/fuzz_door.py, at the application with hypothesis's choices, which shrinks
what fails, and as bytes on a socket before a real broker.
"""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from boards import experiment, reports
from doors import opened, statuses
from fleet_broker import visit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running import until
from traffic import needs_mosquitto

from hushmote.server.door import app
from hushmote.simulator.broker import MosquittoBroker

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import fuzz  # pyright: ignore[reportMissingImports]
import fuzz_door  # pyright: ignore[reportMissingImports]

SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


class FromHypothesis(fuzz.Choices):
    """Choices that hypothesis makes and shrinks."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))


@pytest.mark.slow
def test_every_request_has_a_documented_answer_and_only_reports_are_published():
    asked = fuzz_door.Asked()

    @settings(max_examples=300, **SETTINGS)
    @given(st.data())
    def check(data):
        asyncio.run(asked.check(fuzz_door.make_request(FromHypothesis(data))))

    check()
    answers = asyncio.run(fuzz_door.run(3000, seed=1))
    assert set(answers) == fuzz_door.STATUSES  # each of them was seen


def test_a_door_that_publishes_what_is_no_report_is_found(monkeypatch):
    monkeypatch.setattr(fuzz_door.body, "check", lambda payload: payload)
    with pytest.raises(AssertionError):
        asyncio.run(fuzz_door.run(3000, seed=1))


@needs_mosquitto
@pytest.mark.slow
def test_bytes_on_a_socket_that_are_hardly_http_publish_nothing_but_reports(caplog, monkeypatch):
    monkeypatch.setattr(app, "BODY_S", 0.1)
    choose = fuzz.Random(1)
    with (
        MosquittoBroker() as broker,
        visit(broker.port, None, host="127.0.0.1") as visitor,
        opened(broker, fleets=fuzz_door.FLEETS) as door,
    ):
        assert visitor.connected()
        visitor.subscribe("#")
        seen = []
        for _ in range(400):
            request = fuzz_door.make_request(choose)
            content = b"".join(request.pieces)
            head = request.method.encode() + b" " + request.path + b" HTTP/1.1\r\nConnection: close\r\n"
            named = dict(request.headers)
            named.setdefault(b"content-length", str(len(content)).encode())
            head += b"".join(name + b": " + value + b"\r\n" for name, value in named.items())
            head = fuzz.mutate(choose, head) if choose.integer(0, 1) else head
            came = statuses(door.raw(head + b"\r\n" + content + b"\r\n\r\n"))
            seen += came
            assert set(came) <= {*fuzz_door.STATUSES, 408}
        last = reports("last", experiment(), 1)[0]
        assert door.report("last", last, fleet="home").status == 204
        until(lambda: visitor.messages and visitor.messages[-1][1] == last, "the last report has come")
        for topic, payload in visitor.messages:
            assert re.fullmatch("hushmote/v1/(home|away_1)/report/[a-z0-9-]{1,32}", topic)
            assert fuzz_door.well_formed(payload)
        assert seen.count(204) > 20
        assert seen.count(400) > 100
    assert [r for r in caplog.records if r.levelname == "ERROR"] == []
