"""What people answer to the five questions, as a plan takes it."""

import math

import pytest

from hushmote.planning.devices import PlanError
from hushmote.planning.five_questions import (
    parse_belief,
    parse_devices,
    parse_learned,
    parse_reading,
    parse_rhythm,
)
from hushmote.planning.request import Reading

FRIDGE = Reading(bins=64, low=-30.0, high=34.0, unit="°C")


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("yes/no", Reading(yes_no=True)),
        (" Yes or No ", Reading(yes_no=True)),
        ("a number, a label, yes or no?", Reading(yes_no=True)),
        ("whether a window is open", Reading(yes_no=True)),
        ("heating, cooling", Reading(labels=("heating", "cooling"))),
        ("it's either open, closed or tilted", Reading(labels=("open", "closed", "tilted"))),
        ("it's a temperature from -10 to 40", Reading(bins=50, low=-10.0, high=40.0)),
        ("between -10 and 40 °C in the fridge.", Reading(bins=50, low=-10.0, high=40.0, unit="°C")),
        ("-30 to 34 °C", FRIDGE),
        ("from 0 to 100 %", Reading(bins=50, low=0.0, high=100.0, unit="%")),
        ("0..1", Reading(bins=50, low=0.0, high=1.0)),
        ("-40:85", Reading(bins=125, low=-40.0, high=85.0)),
        ("0 to 7.7", Reading(bins=77, low=0.0, high=7.7)),
        ("0 to 3.1416 rad", Reading(bins=64, low=0.0, high=3.1416, unit="rad")),
    ],
)
def test_a_reading_is_yes_or_no_labels_or_a_range_in_round_bins(text: str, reading: Reading):
    assert parse_reading(text) == reading


@pytest.mark.parametrize(
    ("text", "question", "error", "purpose"),
    [
        ("above 8 to 5 %", ("frequency", None), 0.05, "Which share of the devices reads 8 °C or more?"),
        ("below 2.5 °C", ("frequency", None), 0.05, "Which share of the devices reads less than 2.5 °C?"),
        (
            "18 to 22 to 3%",
            ("frequency", None),
            0.03,
            "Which share of the devices reads 18 °C or more, and less than 22 °C?",
        ),
        ("the median, ±2 %", ("quantile", 0.5), 0.02, "What is the median reading (in °C)?"),
        ("the mean to 2 %", ("mean", None), 0.02, "What is the mean reading (in °C)?"),
        ("90 % quantile", ("quantile", 0.9), 0.05, "Below which reading (in °C) are 90 % of the devices?"),
        ("how do they spread, to 5 points", ("range", None), 0.05, "How do the readings spread (in °C)?"),
        ("everything to 1.5 %", ("range", None), 0.015, "How do the readings spread (in °C)?"),
        ("4 %", ("range", None), 0.04, "How do the readings spread (in °C)?"),
    ],
)
def test_a_threshold_makes_a_yes_or_no_of_a_number(
    text: str, question: tuple[str, float | None], error: float, purpose: str
):
    asked = parse_learned(text, FRIDGE)
    assert ((asked.kind, asked.quantile), asked.error, asked.purpose) == (question, error, purpose)
    assert asked.reading == (Reading(yes_no=True) if asked.kind == "frequency" else FRIDGE)


@pytest.mark.parametrize(
    ("text", "error"), [("5", 0.05), ("to 5 %", 0.05), ("±2%", 0.02), ("3 points", 0.03), ("", 0.05)]
)
def test_of_a_yes_or_no_only_the_exactness_is_said(text: str, error: float):
    assert parse_learned(text, Reading(yes_no=True)).error == error
    assert parse_learned(text, Reading(labels=("a", "b"))).purpose.endswith("says which of a, b?")


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("46", 0.46),
        ("46 in 100", 0.46),
        ("1 in 2", 0.5),
        ("from 1 in 10 to at most 46 in 100", 0.46),
        ("they may become 46 % sure", 0.46),
    ],
)
def test_a_belief_becomes_a_budget_that_keeps_it(text: str, after: float):
    nats = parse_belief(text) / 1e6
    odds = math.exp(nats) / 9
    assert odds / (1 + odds) <= after < math.exp(nats + 0.001) / 9 / (1 + math.exp(nats + 0.001) / 9)


def test_times_are_read_in_words():
    for text in ("2 years, every hour", "2 years every hour", "2 years,hour"):
        assert parse_rhythm(text) == ("2 years", "hour")
    assert parse_rhythm("24 months, every 60 min") == ("24 months", "60 min")
    assert (
        parse_rhythm("for 2 years, and every hour") == parse_rhythm("2 years, hourly") == ("2 years", "hour")
    )
    assert parse_rhythm("a year, once a day") == ("year", "day")
    assert parse_devices("20,000") == parse_devices(" 20_000 ") == parse_devices("about 20k boards") == 20_000


@pytest.mark.parametrize(
    ("parse", "text", "says"),
    [
        (parse_reading, "5 to 5", "from the lower number to the higher one"),
        (parse_reading, "warm", "write yes/no"),
        (parse_reading, "a,,b", "different labels"),
        (parse_reading, "a, other", "leave it out"),
        (parse_devices, "1", "from 2 to"),
        (parse_devices, "1.5", "a whole number such as 20,000, not 1.5"),
        (parse_belief, "10", "from 11 to 99 %, not 10"),
        (parse_belief, "100", "not 100"),
        (parse_belief, "1 in 0", "not 1 in 0"),
        (parse_belief, "a lot", "not a lot"),
        (parse_belief, "10.001", "allow a little more"),
        (parse_rhythm, "2 years", "for how long, and how often"),
        (parse_rhythm, "1h, every 2h", "never looks within 1h"),
        (parse_rhythm, "soon, every day", "a time reads"),
        (lambda text: parse_learned(text, FRIDGE), "above 90", "must lie within -30 to 34"),
        (lambda text: parse_learned(text, FRIDGE), "22 to 18", "the lower number first"),
        (lambda text: parse_learned(text, FRIDGE), "warm ones", "write above 8"),
        (lambda text: parse_learned(text, FRIDGE), "everything to 60 %", "below 50 %, not 60 %"),
        (
            lambda text: parse_learned(text, Reading(yes_no=True)),
            "median",
            "how exactly the share is to be known",
        ),
    ],
)
def test_what_is_not_understood_says_in_one_line_what_would_be_right(parse, text: str, says: str):
    with pytest.raises(PlanError) as refused:
        parse(text)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
