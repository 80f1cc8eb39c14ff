"""The server decodes exactly the reports that a board sends."""

import hashlib
import hmac

import pytest
from boards import KEY, client, experiment, payload_of
from hypothesis import given
from hypothesis import strategies as st

from hushmote.server.wire import report
from hushmote.server.wire.experiments import report_size


class TestVerify:
    def test_rejects_wrong_device_key_experiment_and_flipped_bits(self):
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
                decoded = report.decode(bytes(flipped))
            except report.MalformedReport:
                continue
            assert not report.verify(decoded, KEY, "board-1", exp.sha256), bit


class TestDecode:
    def test_authenticated_report_decodes_and_verifies(self):
        exp = experiment(bins=1024, mechanism="olh", g=3)
        payload = client("board-1", exp, key=KEY).report("temp", 20.0)
        assert payload is not None
        decoded = report.decode(payload)
        assert len(payload) == 19
        assert (decoded.digest, decoded.number) == (exp.digest, 1)
        assert len(decoded.code) == exp.code_bytes == 2
        assert int.from_bytes(decoded.code, "big") < exp.code_count
        assert decoded.signed_bytes == payload[:-8]
        assert report.verify(decoded, KEY, "board-1", exp.sha256)
        expected = hmac.new(
            KEY, b"board-1\x00" + hashlib.sha256(payload_of(exp)).digest() + payload[:-8], "sha256"
        )
        assert decoded.tag == expected.digest()[:8]

    def test_open_report_has_no_tag(self):
        exp = experiment()
        payload = client("board-1", exp).report("temp", 20.0)
        assert payload is not None
        decoded = report.decode(payload)
        assert decoded.tag is None
        assert decoded.signed_bytes == payload
        assert not report.verify(decoded, KEY, "board-1", exp.sha256)

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
        ids=[
            "empty",
            "head only",
            "no code",
            "code of 4 bytes",
            "tag without code",
            "tag and code of 4 bytes",
            "version 0",
            "version 2",
            "flag 2",
            "flag 8",
            "1 MiB",
        ],
    )
    def test_rejects_truncated_oversized_and_foreign_payloads(self, payload):
        with pytest.raises(report.MalformedReport) as caught:
            report.decode(payload)
        assert "\n" not in str(caught.value)

    @given(st.binary(max_size=40))
    def test_random_payload_decodes_or_is_malformed(self, payload):
        try:
            decoded = report.decode(payload)
        except report.MalformedReport:
            return
        group = b"" if decoded.group is None else bytes((decoded.group,))
        head = bytes((0x10 | 2 * len(group) | (decoded.tag is not None),))
        number = decoded.number.to_bytes(4, "big")
        assert head + decoded.digest + number + group + decoded.code + (decoded.tag or b"") == payload


class TestEncode:
    def test_equals_the_bytes_from_a_board(self):
        exp = experiment()
        for key in (None, KEY):
            board = client("board-1", exp, key=key)
            payload = board.report("temp", 20.0)
            assert payload is not None
            code = int.from_bytes(report.decode(payload).code, "big")
            assert report.encode(exp, 1, code, "board-1", key) == payload

    def test_size_depends_on_group_code_and_tag(self):
        grouped = {"group": "firmware", "groups": ["2.3.1"]}
        for changes, size in (({}, 10), (grouped, 11), ({"bins": 257}, 11), (grouped | {"bins": 65_537}, 13)):
            exp = experiment(**changes)
            for key, with_tag in ((None, size), (KEY, size + 8)):
                assert len(report.encode(exp, 1, 0, "board-1", key)) == with_tag
                assert report_size(exp, authenticated=key is not None) == with_tag
        longest = report.encode(experiment(**grouped, bins=65_537), 1, 0, "board-1", KEY)
        assert len(longest) == report.MAX_PAYLOAD_BYTES

    @pytest.mark.parametrize(
        ("number", "code"),
        [(0, 0), (1 << 32, 0), (1, -1), (1, 64)],
        ids=["number 0", "number 2^32", "negative code", "code too high"],
    )
    def test_rejects_numbers_and_codes_out_of_range(self, number, code):
        with pytest.raises(ValueError, match="number must be"):
            report.encode(experiment(), number, code)
