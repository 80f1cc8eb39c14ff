"""Sentences about a release: the verdict first, with the size of the difference, and the rollout."""

import datetime
import math

import pytest

from hushmote.server.words.release import (
    NO_INSTALLED,
    NOT_RANDOM,
    Margin,
    Rise,
    Versions,
    hidden_note,
    not_yet_sentence,
    proceed_sentence,
    rollout_sentence,
    signed_difference,
    silence_sentence,
    stop_sentence,
)

VERSIONS = Versions("2.4.0", ("2.3.1",))
THURSDAY = datetime.date(2026, 12, 3)


class TestVersions:
    def test_lists_the_others(self):
        assert Versions("3", ("1", "2")).text_of_others == "1 and 2"
        assert Versions("4", ("1", "2", "3")).text_of_others == "1, 2 and 3"


class TestStop:
    def test_gives_the_size_with_its_bounds(self):
        sentence = stop_sentence(VERSIONS, Rise("board_crash", 0.0482, 0.0213, 0.0751))
        assert sentence == "Stop: board_crash is worse on 2.4.0 than on 2.3.1, by 4.8 points (2.1 to 7.5)."

    def test_a_fall_may_be_worse(self):
        sentence = stop_sentence(VERSIONS, Rise("the mean of battery", -0.31, -0.42, -0.2, "V"))
        expected = "Stop: the mean of battery is worse on 2.4.0 than on 2.3.1, by 0.31 V (0.20 to 0.42)."
        assert sentence == expected

    def test_bounds_never_change_the_sign(self):
        assert "(0.0 to 10.0)" in stop_sentence(VERSIONS, Rise("board_crash", 0.04, -0.1, 0.1))

    def test_silence_gives_the_missing_share_rounded_down(self):
        sentence = silence_sentence(VERSIONS, 12, 980.4, 0.939)
        assert sentence == (
            "Stop: boards with 2.4.0 are silent; 12 of about 980 reports arrived, "
            "so at least 93% are missing."
        )


class TestSignedDifference:
    @pytest.mark.parametrize(
        ("value", "low", "high", "unit", "texts"),
        [
            (0.0482, 0.0213, 0.0751, None, ("+4.8 points", "+2.1 to +7.5")),
            (-0.31, -0.42, 0.0, "V", ("-0.31 V", "-0.42 to 0.00")),
            (0.05, -math.inf, math.inf, None, ("+5 points", "-")),
            (0.05, -math.inf, 0.1, None, ("+5 points", "-")),
            (-0.5, -0.7, math.inf, "V", ("-0.5 V", "-")),
        ],
    )
    def test_has_bounds_only_if_both_are_finite(
        self, value: float, low: float, high: float, unit: str | None, texts: tuple[str, str]
    ):
        assert signed_difference(value, low, high, unit) == texts


class TestProceed:
    def test_gives_the_margin(self):
        sentence = proceed_sentence(VERSIONS, [Margin("board_crash", 0.02)])
        assert sentence == "Proceed: board_crash is at most 2 points worse on 2.4.0 than on 2.3.1."
        assert "at most 1 point worse" in proceed_sentence(VERSIONS, [Margin("board_crash", 0.01)])
        assert "at most 0.5 °C worse" in proceed_sentence(VERSIONS, [Margin("temperatures", 0.5, "°C")])

    def test_counts_several_questions(self):
        sentence = proceed_sentence(VERSIONS, [Margin("board_crash", 0.02), Margin("resets", 0.03)])
        expected = "Proceed: 2.4.0 is worse than 2.3.1 by at most the margin in each of 2 questions."
        assert sentence == expected


class TestNotYet:
    @pytest.mark.parametrize(
        ("reports", "days", "text"),
        [
            (1137, 4, "Not yet: about 1,200 more reports of 2.4.0 are needed, 4 days at this rate."),
            (30, 1, "Not yet: about 30 more reports of 2.4.0 are needed, 1 day at this rate."),
            (30, None, "Not yet: about 30 more reports of 2.4.0 are needed."),
            (None, None, "Not yet: 2.4.0 is not significantly worse than 2.3.1 so far."),
        ],
    )
    def test_gives_what_is_needed(self, reports: int | None, days: int | None, text: str):
        assert not_yet_sentence(VERSIONS, reports, days) == text


class TestRollout:
    @pytest.mark.parametrize(
        ("part", "days", "text"),
        [
            (0.23, 4, "2.4.0 runs on about 23% of devices; at this rate, on half by Monday."),
            (0.052, 30, "2.4.0 runs on about 5.2% of devices; at this rate, on half by 2027-01-02."),
            (0.23, None, "2.4.0 runs on about 23% of devices, and this share is not clearly growing."),
            (0.61, 0, "2.4.0 runs on about 61% of devices."),
        ],
    )
    def test_gives_the_day_of_half(self, part: float, days: int | None, text: str):
        assert rollout_sentence(VERSIONS, part, days, THURSDAY) == text


class TestNotes:
    def test_have_no_version_but_the_new_one(self):
        assert "2.4.0" in NOT_RANDOM.format(new="2.4.0")
        assert "{" not in NO_INSTALLED


def test_hidden_note_names_all_versions_with_few_reports():
    note = hidden_note("board_crash", ["2.2.0", "3"], 50)
    assert note == (
        "The differences of board_crash are not shown: 2.2.0 and 3 have fewer than 50 reports, so they could "
        "reveal their histograms."
    )
