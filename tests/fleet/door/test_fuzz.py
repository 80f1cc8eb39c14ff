"""Arbitrary requests to the door get documented responses, and only valid reports are published.

support/fuzz_requests.py makes the requests: for the application with Hypothesis, which shrinks failures, and
as bytes on a socket with a real broker.
"""

import asyncio
import re
from random import Random

import fuzz_requests as fuzz_door
import pytest
from boards import experiment, reports
from doors import open_door, statuses
from fleet_broker import visit
from fuzz_inputs import mutate
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from running_aggregator import until

from hushmote.server.service import request_body
from hushmote.simulator.broker import MosquittoBroker


@pytest.mark.slow
def test_fuzzed_requests_get_documented_answers():
    requests = fuzz_door.Asked()

    @settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(st.randoms(use_true_random=False))
    def check(rng):
        asyncio.run(requests.check(fuzz_door.make_request(rng)))

    check()
    answers = asyncio.run(fuzz_door.run(1000, seed=1))
    assert set(answers) == fuzz_door.STATUSES  # each status occurred


def test_detects_door_that_publishes_invalid_reports(monkeypatch):
    monkeypatch.setattr(fuzz_door.body, "check", lambda payload: payload)
    with pytest.raises(AssertionError):
        asyncio.run(fuzz_door.run(3000, seed=1))


def test_malformed_http_publishes_only_valid_reports(caplog, monkeypatch):
    monkeypatch.setattr(request_body, "BODY_S", 0.1)
    rng = Random(1)  # noqa: S311
    with (
        MosquittoBroker() as broker,
        visit(broker.port, None, host="127.0.0.1") as visitor,
        open_door(broker, fleets=fuzz_door.FLEETS) as door,
    ):
        assert visitor.connected()
        visitor.subscribe("#")
        seen = []
        for _ in range(400):
            request = fuzz_door.make_request(rng)
            content = b"".join(request.pieces)
            head = request.method.encode() + b" " + request.path + b" HTTP/1.1\r\nConnection: close\r\n"
            named = dict(request.headers)
            named.setdefault(b"content-length", str(len(content)).encode())
            head += b"".join(name + b": " + value + b"\r\n" for name, value in named.items())
            head = mutate(rng, head) if rng.randint(0, 1) else head
            received = statuses(door.raw(head + b"\r\n" + content + b"\r\n\r\n"))
            seen += received
            assert set(received) <= {*fuzz_door.STATUSES, 408}
        last = reports("last", experiment(), 1)[0]
        assert door.report("last", last, fleet="home").status == 204
        until(lambda: visitor.messages and visitor.messages[-1][1] == last, "the last report arrives")
        for topic, payload in visitor.messages:
            assert re.fullmatch("hushmote/v1/(home|away_1)/report/[a-z0-9-]{1,32}", topic)
            assert fuzz_door.well_formed(payload)
        assert seen.count(204) > 20
        assert seen.count(400) > 100
    assert [r for r in caplog.records if r.levelname == "ERROR"] == []
