"""Numbers as people type them."""

from decimal import Decimal

import pytest

from hushmote.server.typed_numbers import (
    plain_number,
    plain_points,
    plain_quantile,
    plain_share,
    plain_whole_number,
    typed_fraction,
    whole_number_field,
)


class TestNumber:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("100,000", 100_000),
            ("1,234.5", 1234.5),
            ("20k", 20_000),
            ("1.5M", 1_500_000),
            ("1e6", 1e6),
            ("−10", -10),
            (" 7 ", 7),
            (".5", 0.5),
            ("100 000", 100_000),
            ("100\u202f000", 100_000),
            ("100'000", 100_000),
            ("10^6", 1e6),
            ("−2·10^5", -2e5),
            ("1e−6", 1e-6),
        ],
    )
    def test_reads_printed_and_short_forms(self, text: str, number: float):
        assert float(plain_number(text)) == number

    @pytest.mark.parametrize(
        "text", ["1,5", "0,123", "12,34", "1,2345", "5%", "20m", "x", "", "1e99999", "1e999", "1 00", "10^"]
    )
    def test_leaves_other_texts_unchanged(self, text: str):
        assert plain_number(text) == text


class TestWholeNumber:
    @pytest.mark.parametrize(
        ("text", "number"), [("100,000", 100_000), ("20k", 20_000), ("1e6", 1_000_000), ("1.5k", 1500)]
    )
    def test_reads_printed_and_short_forms(self, text: str, number: int):
        assert int(plain_whole_number(text)) == number

    @pytest.mark.parametrize("text", ["20.000", "1.5", "1e-1", "5%", "1e4000", "1,00"])
    def test_leaves_other_texts_unchanged(self, text: str):
        assert plain_whole_number(text) == text


class TestShare:
    @pytest.mark.parametrize(
        ("text", "number"), [("5%", 0.05), ("95 %", 0.95), ("0.1%", 0.001), (".3", 0.3), ("3 points", 0.03)]
    )
    def test_reads_percent(self, text: str, number: float):
        assert float(plain_share(text)) == number

    @pytest.mark.parametrize(("text", "number"), [("1 in 10,000", 1e-4), ("95 of 100", 0.95), ("1/20", 0.05)])
    def test_reads_ratios(self, text: str, number: float):
        assert float(plain_share(text)) == number

    @pytest.mark.parametrize("text", ["1 in 0", "1/2/3", "in 5", "10% to 46%"])
    def test_leaves_other_texts_unchanged(self, text: str):
        assert plain_share(text) == text

    def test_reads_ratios_exactly(self):
        texts = ("1/4", "25%", "1e-6", "1 in 3")
        assert [str(typed_fraction(text)) for text in texts] == ["1/4", "1/4", "1/1000000", "1/3"]

    def test_reads_median_as_quantile(self):
        assert [plain_quantile(text) for text in ("Median", "90%")] == ["0.5", "0.9"]


class TestPoints:
    @pytest.mark.parametrize("text", ["3", "±3", "+/-3", "3%", "± 3 points", "3 point", " 3 % "])
    def test_reads_printed_forms(self, text: str):
        assert plain_points(text) == "3"

    @pytest.mark.parametrize("text", ["", "±", "x", "1,5", "3 °C"])
    def test_leaves_other_texts_unreadable(self, text: str):
        with pytest.raises(ValueError, match="could not convert"):
            float(plain_points(text))


class TestFileField:
    def test_rejects_ambiguous_whole_number(self):
        with pytest.raises(ValueError, match=r"not 100\.000: write 100 or 100000"):
            whole_number_field(Decimal("100.000"))
