"""The three sentences below an answer: privacy, accuracy and the next step."""

from dataclasses import replace

import pytest

from hushmote.server.answers.answer import Answer
from hushmote.server.answers.rows import Row
from hushmote.server.answers.second_epsilon import TwoEpsilons
from hushmote.server.answers.summary import guide


def epsilons(report: float, own: int) -> TwoEpsilons:
    return TwoEpsilons(report, 0.1, 1e-6, own, 1000)


def histogram(*rows: tuple[float, float], upper: float | None = None) -> Answer:
    """Return rows with each value and the half-width of its interval."""
    shown = tuple(Row("x", v, v - e, v + e, lower=upper and 0.0, upper=upper) for v, e in rows)
    return Answer("histogram", "x", "share", "", 2500, 0.95, shown)


def readings(error: float, kind: str = "moments") -> Answer:
    rows = (Row("mean", 5000, 5000 - error, 5000 + error),)
    return Answer(kind, "x", "reading", "°C", 2500, 0.95, rows)  # type: ignore[arg-type]


def test_privacy_sentence_covers_single_and_all_reports():
    private = guide([histogram((0.5, 0.01))], epsilons(2, 1), 1).private
    assert (
        private
        == "One report can raise someone's confidence in a guess about the reading from 10% to at most 46%."
    )
    four = guide([histogram((0.5, 0.01))], epsilons(1, 4), 1).private
    assert "from 10% to at most 24%" in four
    assert "All 4 of a device's reports" in four
    assert "from 10% to at most 86%" in four
    also = guide([histogram((0.5, 0.01))], epsilons(2, 1), 1, "The version is in the clear.").private
    assert also == f"{private} The version is in the clear."
    assert "reveal more than that" in guide([histogram((0.5, 0.01))], epsilons(1, 100), 1).private


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([histogram((0.5, 0.012), (0.4, 0.014), (0.1, 0.9))], "A share is known to about ±1.4 points;"),
        ([histogram((0.5, 0.01)), readings(1234.5)], "points and the mean to about ±1,200 °C; 95 of 100"),
        ([readings(0.123, "trend")], "At each point in time, the mean is known to about ±0.12 °C; 95 of 100"),
        ([readings(0.123, "change")], "A change in the mean is known to about"),
    ],
)
def test_accuracy_is_the_median_interval_of_the_table(answers: list[Answer], text: str):
    assert text in guide(answers, epsilons(1, 1), 1).exact


def test_suggests_fewer_rows_only_when_errors_hide_rows():
    clear, hidden = histogram((0.5, 0.01), (0.0, 0.01)), histogram((0.02, 0.01), (0.0, 0.01), upper=9.0)
    more = "With four times as many reports (10,000), the intervals would be half as wide."
    assert guide([clear], epsilons(1, 1), 1).next == more
    assert guide([clear], epsilons(1, 1), 8).next == f"{more} trend() shows how it changed over time."
    assert guide([hidden], epsilons(1, 1), 1).next.startswith(
        "Ask for fewer, wider rows (rows=8, share(...)), or wait"
    )
    assert "rows=8" not in guide([histogram((0.02, 0.01))], epsilons(1, 1), 1).next


def test_uninformative_reports_show_a_reason_and_no_numbers():
    wide, mean = histogram((0.5, 0.4)), replace(readings(40.0), extent=50.0)
    shown = str(wide) + str(mean)
    assert (shown.count("too few reports"), "5,000" in shown) == (2, False)
    sentence = guide([wide, mean], epsilons(1, 1), 1)
    assert sentence.exact == "There are too few reports to say anything."
    assert sentence.next == "Wait for more reports, or ask more devices."
    exact = guide([wide, replace(mean, extent=500.0)], epsilons(1, 1), 1).exact
    assert exact.startswith("The mean is known to about ±40 °C;")


def part_given(kind: str, *rows: tuple[str, float]) -> Answer:
    shown = tuple(Row(name, 0.5, 0.5 - e, 0.5 + e) for name, e in rows)
    title = {"title": f"{kind} of v"}
    return Answer(kind, "x", "share", "", 2500, 0.95, shown, **title)  # type: ignore[arg-type]


def test_pair_accuracy_covers_best_and_worst_requested_row():
    joint, conditional = (
        part_given("joint", ("a", 0.004)),
        part_given("conditional", ("a", 0.013), ("b", 0.26)),
    )
    sentence = 'Rows of "conditional of v" are known to about ±1.3 (a) to ±26 (b) points; 95 of 100'
    assert guide([joint, conditional], epsilons(1, 1), 1).exact.startswith(sentence)
    less = part_given("difference", ("a less b", 0.05))
    sentence = '"difference of v" is known to about ±5 points; 95 of 100'
    assert guide([conditional, less], epsilons(1, 1), 1).exact.startswith(sentence)
