"""Sentences about findings, changes, experiments and labels: dates, verdicts and precision."""

import datetime

import pytest
from experiments import experiment_json, number_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers.periods import Period
from hushmote.server.answers.rows import ChangeRow, DifferenceRow
from hushmote.server.words import answers, findings, label
from hushmote.server.words.experiment import readings, unprotected
from hushmote.server.words.groups import boards_with
from hushmote.server.words.numbers import ENGLISH
from hushmote.server.words.scope import span

NOW = datetime.datetime(2026, 11, 28, 12, tzinfo=datetime.UTC)
DATE = datetime.date.fromisoformat


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(f"{text}+00:00")


def changed(p: float, low: float = 0.1, high: float = 0.14) -> ChangeRow:
    return ChangeRow("yes", (low + high) / 2, low, high, before=0.1, after=0.22, p=p, p_adjusted=p)


class TestDates:
    @pytest.mark.parametrize(
        ("first", "last", "year", "text"),
        [
            ("2026-11-21", "2026-11-21", False, "21 Nov"),
            ("2026-11-21", "2026-11-27", False, "21 to 27 Nov"),
            ("2026-11-21", "2026-11-27", True, "21 to 27 Nov 2026"),
            ("2026-10-30", "2026-11-02", True, "30 Oct to 2 Nov 2026"),
            ("2025-11-30", "2026-11-02", True, "30 Nov 2025 to 2 Nov 2026"),
            ("2025-12-31", "2026-01-02", False, "31 Dec to 2 Jan"),
        ],
    )
    def test_repeat_neither_month_nor_year(self, first: str, last: str, year: bool, text: str):
        assert ENGLISH.days(DATE(first), DATE(last), year) == text

    @pytest.mark.parametrize(
        ("begin", "end", "text"),
        [
            ("2026-11-27T08:00", "2026-11-27T20:00", "27 Nov, 08:00 to 20:00 UTC"),
            ("2026-11-27T22:00", "2026-11-28T00:00", "27 Nov, 22:00 to 24:00 UTC"),
            ("2026-11-27T22:00", "2026-11-28T03:00", "27 Nov 22:00 to 28 Nov 03:00 UTC"),
        ],
    )
    def test_of_hours_end_when_the_last_hour_ends(self, begin: str, end: str, text: str):
        assert findings.dates(Period(moment(begin), moment(end), 2, 2), NOW) == text

    def test_are_omitted_without_a_period(self):
        assert findings.dates(None, NOW) == ""

    @pytest.mark.parametrize(
        ("chosen", "windows", "text"),
        [
            (["2026-11-21"], ["2026-11-21"], "2026-11-21"),
            (["2026-11-21"], ["2026-11-20", "2026-11-21"], "2026-11-21"),
            (["2026-11-20", "2026-11-21"], ["2026-11-19", "2026-11-20", "2026-11-21"], "2 of 3 windows"),
            (["2026-11-20", "2026-11-21"], ["2026-11-20", "2026-11-21"], "all 2 windows"),
            (["all"], ["all"], "all reports"),
        ],
    )
    def test_of_a_period_count_its_windows(self, chosen: list[str], windows: list[str], text: str):
        sentence = answers.period(chosen, windows, ENGLISH)
        assert sentence in (text, f"2026-11-20 to 2026-11-21, {text}")
        assert ("," in sentence) == ("windows" in text)

    @pytest.mark.parametrize(
        ("windows", "text"),
        [
            (["2026-11-20", "2026-11-21", "2026-11-22"], "2026-11-20 to 2026-11-22 (3 days)"),
            (["2026-11-20T01", "2026-11-20T02", "2026-11-20T04"], "2026-11-20T01 to 2026-11-20T04 (3 hours)"),
            (["2026-11-20", "2026-11-21", "2026-11-21T04"], "2026-11-20 to 2026-11-21T04 (3 windows)"),
        ],
    )
    def test_of_a_title_have_a_unit(self, windows: list[str], text: str):
        assert span(windows) == text


class TestVerdict:
    """A change or difference is certain only below the level that belongs to the confidence."""

    @pytest.mark.parametrize(
        ("p", "confidence", "is_clear"),
        [
            (0.04, 0.95, True),
            (0.06, 0.95, False),
            (0.07, 0.9, True),
            (0.03, 0.99, False),
            (0.25, 0.75, False),  # exactly the level
            (0.24, 0.75, True),
        ],
    )
    def test_depends_on_the_confidence(self, p: float, confidence: float, is_clear: bool):
        row = changed(p)
        sentence = answers.change(row, "yes", None, confidence, 1, ENGLISH)
        assert sentence.endswith("It changed." if is_clear else "That may be chance.")
        sides = "21 Nov", "22 Nov"
        text = findings.comparison(row, "Yes", sides, None, confidence)
        unclear = " No clear difference, as several values are compared (10.0 to 14.0 points)."
        assert text.endswith(unclear) != is_clear
        text = findings.comparison(changed(0.9, -0.1), "Yes", sides, None, confidence)
        assert text.endswith(" No clear difference (-10 to 14 points).")
        difference = DifferenceRow("yes less no", 0.12, 0.1, 0.14, first=0.22, second=0.1, p=p)
        clear = f"They differ by 12 points (10.0 to 14.0, {findings.certainty(p)})."
        unclear = "No clear difference (10.0 to 14.0 points)."
        assert findings.difference(difference, None, confidence) == (clear if is_clear else unclear)

    def test_gives_the_size_of_a_decrease_without_sign(self):
        row = DifferenceRow("yes less no", -0.12, -0.14, -0.1, first=0.1, second=0.22, p=1e-9)
        assert findings.difference(row, None, 0.95) == "They differ by 12 points (10.0 to 14.0, certain)."

    def test_has_the_precision_of_the_interval(self):
        text = answers.change(changed(0.001, 0.116, 0.124), "yes", None, 0.95, 1, ENGLISH)
        assert text.startswith("yes rose by 12.00 points, between 11.60 and 12.40: from 10.00 to 22.00%.")

    @pytest.mark.parametrize(
        ("p", "text"),
        [
            (0.95, "nearly always"),
            (0.9, "90 times in 100"),
            (0.104, "11 times in 100"),
            (0.1, "about 1 in 10"),
            (1e-4, "about 1 in 10,000"),
            (9e-5, "less than 1 in 10,000"),
        ],
    )
    def test_gives_the_frequency_of_chance(self, p: float, text: str):
        assert answers.chance(p) == f"chance alone: {text}"


class TestTooFewReports:
    @pytest.mark.parametrize(
        ("a_day", "text"),
        [
            (1000, "at this rate, today."),
            (50, "at this rate, by Monday."),
            (17, "at this rate, by Friday."),
            (16, "at this rate, by 4 Dec."),
            (0, "About 200 are needed for ±10 points."),
        ],
    )
    def test_names_the_day_of_the_last_missing_one(self, a_day: float, text: str):
        sentence = findings.too_few(100, 200, "±10 points", "so far", a_day, None, NOW)
        assert sentence.endswith(text)


class TestReadings:
    @pytest.mark.parametrize(
        ("payload", "text", "answer"),
        [
            (experiment_json(), "yes or no", "yes or no"),
            (
                experiment_json(type="choice", labels=["eco", "boost"], mechanism="grr"),
                "eco, boost, other",
                "eco, boost or other",
            ),
            (
                number_json(16, low=-16_000, high=16_000),
                "-16 to 16 °C, 16 bins of 2 °C",
                "a number from -16 to 16 °C",
            ),
        ],
        ids=["bool", "choice", "number"],
    )
    def test_are_listed(self, payload: bytes, text: str, answer: str):
        experiment = Experiment.parse(payload)
        assert readings(experiment, "°C") == text
        assert label.words_in("en").write(label.answer(experiment, "°C")) == answer


class TestGroups:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("", ""),
            ("2.4.0", "boards with firmware 2.4.0"),
            ("other", "boards with another firmware"),
        ],
    )
    def test_boards_have_a_value(self, value: str, text: str):
        assert boards_with("firmware", value) == text

    def test_are_in_the_clear(self):
        experiment = Experiment.parse(experiment_json(group="firmware", groups=["2.3.1", "2.4.0"]))
        assert unprotected(experiment) == (
            "Each report contains the board's firmware (2.3.1, 2.4.0, other) in the clear: everyone who sees "
            "the report sees it, and ε does not cover it."
        )
        assert unprotected(Experiment.parse(experiment_json())) == ""


class TestLabel:
    @pytest.mark.parametrize(("epsilon", "start"), [(2, "a fixed limit"), (40, "a fixed but high limit")])
    def test_calls_a_useless_limit_high(self, epsilon: float, start: str):
        sentence = label.words_in("en").write(label.limit(label.Disclosure(epsilon)))
        assert f"Regardless of their number, {start} applies" in sentence
        assert sentence.endswith("to near certainty." if epsilon > 16 else "from 10% to at most 46%.")

    @pytest.mark.parametrize(
        ("button", "light", "names"),
        [
            (None, None, []),
            (False, None, ["yes_prompt"]),
            (True, False, ["yes_button"]),
            (True, True, ["yes_light"]),
        ],
    )
    def test_says_how_to_agree(self, button: bool | None, light: bool | None, names: list[str]):
        phrases = label.consent(False, "", False, False, button, light)
        assert [phrase.template for phrase in phrases] == ["silent", *names, "once"]
