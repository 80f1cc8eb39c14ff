"""Numbers, probabilities, durations and ε in words; "at most" is never too small."""

import math

import numpy as np
import pytest
from experiments import experiment_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.words.epsilon import belief, rounded_down, rounded_up
from hushmote.server.words.experiment import thinning
from hushmote.server.words.numbers import (
    chance,
    counted,
    decimals,
    is_too_wide,
    length,
    round_up_boards,
    time_since,
    two_digits,
)


class TestThinning:
    @pytest.mark.parametrize(
        ("every", "words"),
        [
            (1, ""),
            (130, "1 call in 130 makes a report"),
            ([130, 1, 130], "1 call in 130 makes a report, with firmware 2.4.0 every call"),
            ([2, 1, 1], "every call makes a report, with firmware 2.3.1 1 in 2"),
            ([7, 7, 7], "1 call in 7 makes a report"),
        ],
    )
    def test_names_each_rate_of_a_group(self, every, words: str):
        payload = experiment_json(group="firmware", groups=["2.3.1", "2.4.0"], every=every)
        assert thinning(Experiment.parse(payload)) == words


class TestTooFewReports:
    def test_is_too_wide_beyond_30_points_either_way(self):
        assert [is_too_wide(half) for half in (0.05, 0.3, 0.31)] == [False, False, True]

    def test_is_too_wide_beyond_30_percent_of_readings(self):
        assert [is_too_wide(half, 40.0) for half in (0.5, 12.0, 12.4)] == [False, False, True]


class TestTimeSince:
    @pytest.mark.parametrize(
        ("seconds", "words"),
        [
            (-7_200, "2 h ahead of this clock"),
            (-5, "just now"),
            (0, "just now"),
            (9, "just now"),
            (10, "10 s ago"),
            (59, "59 s ago"),
            (60, "1 min ago"),
            (3_599, "59 min ago"),
            (3_600, "1 h ago"),
            (25 * 3_600, "25 h ago"),
            (172_799, "47 h ago"),
            (172_800, "2 days ago"),
            (86_400 * 59, "59 days ago"),
            (86_400 * 60, "2 months ago"),
            (86_400 * 729, "24 months ago"),
            (86_400 * 730, "2 years ago"),
        ],
    )
    def test_has_one_unit(self, seconds: int, words: str):
        assert time_since(1_000_000_000, 1_000_000_000 + seconds) == words


class TestNumbers:
    def test_chances_are_natural_and_bounds_rounded_up(self):
        expected = {
            0.1: "1 in 10",
            1 / 3: "1 in 3",
            0.25: "1 in 4",
            0.75: "75 in 100",
            1 / 1024: "1 in 1,024",
        }
        for p, words in expected.items():
            assert chance(p) == chance(p, up=True) == words
        assert (chance(0), chance(1), chance(1 - 1e-12)) == ("never", "certain", "nearly certain")
        for p in np.random.default_rng(1).random(300):
            words = chance(float(p), up=True).replace(",", "").split(" in ")
            assert p <= float(words[0]) / float(words[1]) <= p * 1.02 + 1e-3

    @pytest.mark.parametrize(
        ("half", "places"), [(0.0, 2), (5e-312, 9), (1e-8, 9), (0.1, 2), (0.11, 2), (9.0, 1), (10.0, 0)]
    )
    def test_half_an_interval_has_two_digits(self, half: float, places: int):
        assert decimals(-half, half) == places

    def test_counts_and_durations_have_plurals(self):
        assert [counted(n, "board") for n in (0, 1, 2000)] == ["0 boards", "1 board", "2,000 boards"]
        seconds = (63_072_000, 604_800, 86_400, 7200, 60, 90)
        expected = ["2 years", "1 week", "1 day", "2 hours", "1 minute", "90 seconds"]
        assert list(map(length, seconds)) == expected
        assert [two_digits(x) for x in (0.5678, 1234.5)] == ["0.57", "1,200"]

    @pytest.mark.parametrize("boards", [0.5, 2, 99, 101, 12_345, 1e9 + 1])
    def test_boards_are_rounded_up(self, boards: float):
        assert boards <= round_up_boards(boards) <= max(2, 1.1 * boards + 1)


class TestEpsilon:
    @pytest.mark.parametrize("nats", [1e-6, 0.051513, 0.3, 1.098612, 4.0, 1234.5])
    def test_is_rounded_to_the_safe_side(self, nats: float):
        assert float(rounded_down(nats)) <= nats <= float(rounded_up(nats)) <= 1.011 * nats
        assert (rounded_up(None), rounded_up(0), rounded_down(0)) == ("–", "0", "0")

    @pytest.mark.parametrize("nats", [0.001, 0.5, 1, 2, 4, 6.7])
    def test_belief_is_never_understated(self, nats: float):
        odds = math.exp(nats) / 9
        percent = int(belief(nats).split("at most ")[1].split("%")[0])
        assert percent - 1 < 100 * odds / (1 + odds) <= percent
        assert "All of them can raise" in belief(nats + 20, "text", "All of them")
