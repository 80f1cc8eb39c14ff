"""Texts on the board have the same slot as on the server; test_privacy.py covers privacy."""

import hashlib
from itertools import pairwise
from typing import Any

import pytest
from enumeration import POLICY, memory
from experiments import TEXTS, experiment_json
from reference_board import slot_of
from refusals import Refusal, refusals

from hushmote.device import ldp_client
from hushmote.device.ldp_client import Client, Experiment, ExperimentRefused

each_text = pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))


def text_json(slots: int = 8, **changes: Any) -> bytes:
    fields = {"type": "text", "salt": "pepper", "slots": slots, "mechanism": "grr"}
    return experiment_json(**fields | changes)


def bytes_of(text: Any) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)


class TestSlot:
    @each_text
    @pytest.mark.parametrize("slots", [2, 1024, 1 << 20])
    def test_matches_its_definition(self, text, slots):
        g = {"mechanism": "olh", "g": 3} if slots > 2 else {}
        e = Experiment.parse(text_json(slots, **g))
        assert e.domain == slots
        digest = hashlib.sha256(b"pepper\0" + bytes_of(text)[:255]).digest()
        assert (
            e.bucket(text)
            == int.from_bytes(digest[:8], "big") % slots
            == slot_of("pepper", slots, bytes_of(text))
        )

    @each_text
    def test_each_prefix_has_its_own_slot(self, text):
        lengths = [2, 3, 6, 6]
        reading = ldp_client.Experiment.__new__(Experiment)
        take, bucket = ldp_client.TYPES["text"]
        take(reading, {"salt": "pepper", "slots": 16, "prefixes": lengths})
        assert reading.domain == 16**4
        index = bucket(reading, text)
        for level, length in enumerate(lengths, 1):
            start = (bytes_of(text)[:255] + bytes(length))[:length]
            digest = hashlib.sha256(b"pepper" + bytes([level]) + start).digest()
            assert index % 16 == int.from_bytes(digest[:8], "big") % 16
            index //= 16
        assert index == 0

    def test_ignores_text_after_255_bytes(self):
        e = Experiment.parse(text_json(1 << 20, mechanism="olh", g=3))
        assert e.bucket("x" * 255) == e.bucket("x" * 300) == e.bucket(b"x" * 10_000) != e.bucket("x" * 254)

    def test_depends_on_salt(self):
        slots = [Experiment.parse(text_json(1024, salt=salt)).bucket("1.2.3") for salt in ("a", "b", "c")]
        assert len(set(slots)) == 3


def enrolled(payload: bytes) -> Client:
    storage = memory()
    ldp_client.provision(storage, consent=True)
    client = Client(POLICY, storage, device_id="b")
    client.enroll(payload)
    return client


class TestReading:
    @pytest.mark.parametrize(
        "value", [1, 1.5, True, ("1.2.3",), {}], ids=["int", "float", "bool", "tuple", "dict"]
    )
    def test_raises_type_error_for_wrong_type(self, value):
        with pytest.raises(TypeError, match="e must be a text or None"):
            Experiment.parse(text_json()).bucket(value)

    @refusals(
        ({"salt": None}, "salt is missing"),
        ({"salt": ""}, "salt must be 1 to 32 bytes"),
        ({"salt": "x" * 33}, "salt must be 1 to 32 bytes"),
        ({"salt": 7}, "salt must be 1 to 32 bytes"),
        ({"slots": None}, "slots is missing"),
        ({"slots": 1}, "slots must be an integer from 2 to 1048576"),
        ({"slots": 1 << 21}, "slots must be an integer from 2 to 1048576"),
        ({"slots": 100}, "slots must be a power of 2"),
        ({"prefixes": []}, "prefixes must be a list"),
        ({"prefixes": 3}, "prefixes must be a list"),
        ({"prefixes": [0]}, "prefixes must be a list"),
        ({"prefixes": [2, "3"]}, "prefixes must be a list"),
        ({"prefixes": [17]}, "prefixes must be a list"),
        ({"prefixes": [1] * 17}, "prefixes must be a list"),
        ({"prefixes": [3, 2]}, "prefixes must not decrease"),
        ({"labels": ["a"]}, "unknown field labels"),
        call=lambda changes: Experiment.parse(text_json(**changes)),
        error=ExperimentRefused,
    )
    def test_rejects_invalid_experiment(self, refusal: Refusal):
        refusal.check()

    @each_text
    def test_is_always_reported(self, text):
        client = enrolled(text_json(1024, mechanism="olh", g=5, budget={"rule": "count", "cap": 30}))
        reports: list[Any] = [client.report("e", text) for _ in range(10)]
        assert None not in reports
        assert [b[8] - a[8] for a, b in pairwise(reports)] == [1] * 9  # the report's number
