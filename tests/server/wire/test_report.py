"""The wire: what a board sends is what the server reads, and nothing else is."""

import hashlib
import hmac

import pytest
from boards import KEY, client, experiment, payload_of
from hypothesis import given
from hypothesis import strategies as st

from hushmote.server.wire import report


def test_an_authenticated_report_of_a_board_decodes_to_its_parts_and_verifies():
    exp = experiment(bins=1024, mechanism="olh", g=3)
    payload = client("board-1", exp, key=KEY).report("temp", 20.0)
    assert payload is not None
    sent = report.decode(payload)
    assert len(payload) == 19
    assert (sent.digest, sent.number) == (exp.digest, 1)
    assert len(sent.code) == exp.code_bytes == 2
    assert int.from_bytes(sent.code, "big") < exp.code_count
    assert sent.signed == payload[:-8]
    assert report.verify(sent, KEY, "board-1", exp.sha256)
    right = hmac.new(KEY, b"board-1\x00" + hashlib.sha256(payload_of(exp)).digest() + payload[:-8], "sha256")
    assert sent.tag == right.digest()[:8]


def test_a_tag_holds_for_one_device_one_key_one_experiment_and_no_flipped_bit():
    exp = experiment()
    payload = report.encode(exp, 1, 3, "board-1", KEY)
    assert report.verify(report.decode(payload), KEY, "board-1", exp.sha256)
    assert not report.verify(report.decode(payload), KEY, "board-2", exp.sha256)
    assert not report.verify(report.decode(payload), bytes(32), "board-1", exp.sha256)
    assert not report.verify(report.decode(payload), KEY, "board-1", bytes(32))
    for bit in range(8 * len(payload)):
        flipped = bytearray(payload)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            sent = report.decode(bytes(flipped))
        except report.MalformedReport:
            continue
        assert not report.verify(sent, KEY, "board-1", exp.sha256), bit


def test_a_report_of_an_open_fleet_has_no_tag_and_never_verifies():
    exp = experiment()
    payload = client("board-1", exp).report("temp", 20.0)
    assert payload is not None
    sent = report.decode(payload)
    assert sent.tag is None
    assert sent.signed == payload
    assert not report.verify(sent, KEY, "board-1", exp.sha256)


def test_what_the_server_encodes_is_byte_for_byte_what_the_board_sends():
    exp = experiment()
    for key in (None, KEY):
        board = client("board-1", exp, key=key)
        payload = board.report("temp", 20.0)
        assert payload is not None
        code = int.from_bytes(report.decode(payload).code, "big")
        assert report.encode(exp, 1, code, "board-1", key) == payload


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x10",
        b"\x10" + bytes(8),  # no code
        b"\x10" + bytes(12),  # 4 bytes of code
        b"\x11" + bytes(16),  # a tag and no code
        b"\x11" + bytes(20),
        b"\x00" + bytes(9),
        b"\x20" + bytes(9),
        b"\x12" + bytes(9),
        b"\x18" + bytes(9),
        b"\x10" + bytes(1 << 20),
    ],
)
def test_truncated_oversized_and_foreign_payloads_are_malformed(payload):
    with pytest.raises(report.MalformedReport) as caught:
        report.decode(payload)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=40))
def test_random_payloads_decode_or_are_malformed_and_nothing_else(payload):
    try:
        sent = report.decode(payload)
    except report.MalformedReport:
        return
    head = bytes((0x10 | (sent.tag is not None),))
    assert head + sent.digest + sent.number.to_bytes(4, "big") + sent.code + (sent.tag or b"") == payload


@pytest.mark.parametrize(("number", "code"), [(0, 0), (1 << 32, 0), (1, -1), (1, 64)])
def test_encode_refuses_numbers_and_codes_that_no_board_sends(number, code):
    with pytest.raises(ValueError, match="number must be"):
        report.encode(experiment(), number, code)
