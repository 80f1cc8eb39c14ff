"""The command line's sentences in a reader's number and date formats, and numbers from a browser."""

import math

import pytest
from babel import Locale

from hushmote.web.in_locale import in_locale
from hushmote.web.plan.quantity import number
from hushmote.web.reader import Reader


@pytest.mark.parametrize(
    ("text", "german"),
    [
        ("Use 41,494 devices of ε = 1.425.", "Use 41.494 devices of ε = 1,425."),
        ("known to ±2.50% by 2027-03-02, or 10,000,000", "known to ±2,50\xa0% by 02.03.2027, or 10.000.000"),
        ("(8, 1e-06)-LDP, 0.5", "(8, 1e-06)-LDP, 0,5"),
        (text := "to room_1.5 and 12345-a and 2026-99-99 of version=1.2", text),
        ("99 of 1,000.", "99 of 1.000."),
        (text := "without '2000' left out (version 6669); Version 0123", text),
        ("no change since 1 Nov; 9 Dec 2026, 30 Feb", "no change since 1. Nov.; 9. Dez. 2026, 30 Feb"),
        ("29 to 31 Dec 2026, 3 to 5", "29.–31. Dez. 2026, 3 to 5"),
        ("28 Oct to 3 Nov", "28. Okt.\u2009–\u20093. Nov."),
        ("5% quantile, 15%", "5\xa0% quantile, 15\xa0%"),
    ],
)
def test_converts_only_numbers_and_days(text, german):
    assert in_locale(text, Reader(Locale("de"))) == german


def test_american_text_is_unchanged():
    text = "Use 41,494 devices of ε = 1.425: ±2.88% of 0.0516 in 10,000"
    assert in_locale(text, Reader(Locale("en", "US"))) == text
    assert in_locale("5% quantile", Reader(Locale("en", "US"))) == "5% quantile"


@pytest.mark.parametrize(
    "value",
    ["x", True, [], {}, 10**400, float("nan"), float("inf")],
    ids=["text", "boolean", "list", "object", "huge", "NaN", "infinity"],
)
def test_rejects_invalid_numbers(value):
    invalid = number(value)
    assert invalid is not None
    assert not math.isfinite(invalid)


def test_accepts_numbers():
    assert (number(5), number(-0.5), number("5"), number(None)) == (5.0, -0.5, 5.0, None)
