"""Theorems side by side: what each allows, what its board compares, and what it guarantees."""

import pytest

from hushmote.server.accounting import AccountingError
from hushmote.server.accounting.compare import for_epsilon, for_reports, theorems
from hushmote.server.epsilon import micro_nats


def test_reports_allowed_at_one_epsilon():
    found = {row.theorem: row for row in for_epsilon(8, 1e-6, 500_000)}
    counts = {name: row.reports for name, row in found.items()}
    assert (counts["basic"], counts["rogers"], counts["zcdp"], counts["optimal"]) == (16, 3, 7, 16)
    assert counts["none"] is None
    assert (found["zcdp"].rule, found["zcdp"].cap) == ("squares", 1_819_413_659_380)
    assert (found["optimal"].rule, found["optimal"].cap) == ("count", 16)


def test_epsilon_allowed_for_a_number_of_reports_and_what_majority_hides():
    found = {row.theorem: row for row in for_reports(10, 1e-6, 100)}
    assert found["basic"].epsilon == 0.1
    assert found["basic"].guarantee == "10-LDP"
    assert found["zcdp"].guarantee == "(10, 1e-06)-LDP"
    majority = found["majority"]
    assert majority.kind == "guessing one fixed bit, not LDP"
    assert majority.guarantee == "one fixed bit, not LDP"
    assert majority.epsilon == 0.786764  # the envelope; the raw curve has 0.7698 for ties
    assert majority.sum == pytest.approx(78.6764)
    assert majority.delta == pytest.approx(0.993, abs=5e-4)
    assert majority.cap == 100


def test_without_a_delta_only_theorems_that_need_none_are_compared():
    assert [theorem.name for theorem in theorems(8, 0.0)] == ["basic", "majority", "none"]


@pytest.mark.parametrize(
    ("total", "delta", "reports", "text"),
    [(0, 0, 3, "the total is a number above 0"), (8, 0, 0, "the number"), (8, 1, 3, "from 0 to below 1")],
)
def test_budgets_that_make_no_sense_are_refused(total, delta, reports, text):
    with pytest.raises(AccountingError, match=text):
        for_reports(total, delta, reports)


def test_epsilon_in_nats_is_read_exactly():
    assert micro_nats(0.29, AccountingError) == 290_000
    for wrong in (-1, 0.1234567):
        with pytest.raises(AccountingError, match="millionths above 0"):
            micro_nats(wrong, AccountingError)
