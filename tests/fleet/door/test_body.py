"""Accepted request bodies: raw bytes, and documents from LoRaWAN servers."""

import base64

import pytest
from boards import KEY, experiment, reports
from lorawan import chirpstack, encoded, things_stack

from hushmote.fleet.door.body import BodyRefused, NoPayload, check, uplink

EXPERIMENT = experiment()
PLAIN = reports("d1", EXPERIMENT, 1)[0]
KEYED = reports("d1", EXPERIMENT, 1, key=KEY)[0]
LARGEST = reports("d1", experiment(name="big", bins=70_000, high=70_000_000), 1, key=KEY)[0]


@pytest.mark.parametrize("payload", [PLAIN, KEYED, LARGEST], ids=["plain", "keyed", "largest"])
def test_accepts_board_payloads(payload):
    assert 10 <= len(payload) <= 20
    assert check(payload) == payload


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "empty"),
        (b"x", "format version 7"),
        (PLAIN[:9], "9 bytes do not contain"),
        (PLAIN + bytes(3), "do not contain a code"),
        (b"\x20" + PLAIN[1:], "format version 2"),
        (b"\x18" + PLAIN[1:], "unknown flags 0x8"),
        (PLAIN[:5] + bytes(4) + PLAIN[9:], "its number is 0"),
    ],
    ids=["empty", "one byte", "9 bytes", "too long", "format version", "flags", "number 0"],
)
def test_rejects_malformed_report_with_hint(payload, why):
    with pytest.raises(BodyRefused, match=why) as caught:
        check(payload)
    assert "\n" not in str(caught.value)
    assert "must be its 10 to 20 bytes" in str(caught.value) or "has number 1" in str(caught.value)


def test_reads_uplinks_from_both_lorawan_servers():
    assert uplink(encoded(things_stack(PLAIN))) == ("d1", PLAIN)
    assert uplink(encoded(chirpstack(KEYED, "kitchen"))) == ("kitchen", KEYED)


@pytest.mark.parametrize(
    "document",
    [
        things_stack(None),  # empty fields are left out
        {"end_device_ids": {"device_id": "d1"}, "join_accept": {"session_key_id": "AX"}},
        chirpstack(b""),
        {"deviceInfo": {"deviceName": "d1"}, "margin": 10, "batteryLevel": 50},
    ],
    ids=["no payload", "join", "empty data", "status"],
)
def test_recognizes_uplink_without_device_payload(document):
    with pytest.raises(NoPayload):
        uplink(encoded(document))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"{",
        b"[" * 60_000,
        b'{"deviceInfo": ' + b"9" * 5000 + b"}",
        b'{"deviceInfo": NaN}',
        b'{"deviceInfo": {}, "rxInfo": [{"snr": Infinity}]}',
        b'{"end_device_ids": {}, "margin": -Infinity}',
        b"null",
        b"[]",
        b'"x"',
        encoded({"data": base64.b64encode(PLAIN).decode()}),
        encoded({"deviceInfo": {}, "data": "no base64"}),
        encoded({"deviceInfo": {}, "data": 7}),
        encoded({"deviceInfo": {}, "data": ["EA=="]}),
        encoded({"end_device_ids": 7, "uplink_message": {"frm_payload": {"a": 1}}}),
    ],
    ids=[
        "empty",
        "not UTF-8",
        "brace",
        "60,000 brackets",
        "5000 digits",
        "nan",
        "infinity",
        "negative infinity",
        "null",
        "list",
        "string",
        "no device",
        "not base64",
        "integer data",
        "list data",
        "wrong types",
    ],
)
def test_rejects_other_json_in_one_line(content):
    with pytest.raises(BodyRefused) as caught:
        uplink(content)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [None, 7, ["d1"], {"a": 1}], ids=["null", "integer", "list", "object"])
def test_ignores_invalid_device_name(name):
    assert uplink(encoded(things_stack(PLAIN) | {"end_device_ids": {"device_id": name}}))[0] is None
