"""Comparison of theorems: the reports and epsilons that each theorem allows, and its guarantee."""

import pytest
from refusals import Refusal, refusals

from hushmote.server.accounting import AccountingError
from hushmote.server.accounting.compare import for_epsilon, for_reports, theorems
from hushmote.server.epsilon import micro_nats


def test_lists_reports_allowed_at_an_epsilon():
    rows = {row.theorem: row for row in for_epsilon(8, 1e-6, 500_000)}
    counts = {name: row.reports for name, row in rows.items()}
    assert counts == {"basic": 16, "zcdp": 7, "optimal": 16, "advanced": 5, "none": None}
    assert (rows["zcdp"].rule, rows["zcdp"].cap) == ("squares", 1_819_413_659_380)
    assert (rows["optimal"].rule, rows["optimal"].cap) == ("count", 16)


def test_lists_epsilon_allowed_for_a_number_of_reports():
    rows = {row.theorem: row for row in for_reports(10, 1e-6, 100)}
    assert rows["basic"].epsilon == 0.1
    assert rows["basic"].guarantee == "10-LDP"
    assert rows["zcdp"].guarantee == "(10, 1e-06)-LDP"


def test_compares_only_pure_theorems_without_delta():
    assert [theorem.name for theorem in theorems(8, 0.0)] == ["basic", "none"]


def test_leaves_out_theorems_that_do_not_cover_the_numbers():
    rows = {row.theorem: row for row in for_reports(8, 1e-6, 200_000_000)}
    assert (rows["zcdp"].epsilon, rows["zcdp"].guarantee) == (0.000095, "(8, 1e-06)-LDP")
    assert (rows["optimal"].epsilon, rows["optimal"].guarantee) == (None, "")
    reason = "the number of reports must be at most 134,217,728, not 200,000,000"
    assert rows["optimal"].words == f"not compared: optimal; {reason}"


@pytest.mark.filterwarnings("error")
def test_very_large_totals_do_not_warn():
    for rows in (
        for_reports(5000, 1e-6, 3),
        for_reports(1e9, 1e-6, 3),
        for_epsilon(5000, 1e-6, 5_000_000_000),
    ):
        basic, optimal = (next(row for row in rows if row.theorem == name) for name in ("basic", "optimal"))
        assert optimal.reports == basic.reports
        assert optimal.epsilon == pytest.approx(basic.epsilon)


@refusals(
    (0, 0, 3, "the total must be a positive number"),
    (8, 0, 0, "the number"),
    (8, 1, 3, "at least 0 and below 1"),
    call=for_reports,
    error=AccountingError,
)
def test_rejects_invalid_budgets(refusal: Refusal):
    refusal.check()


def test_reads_epsilon_in_nats_exactly():
    assert micro_nats(0.29, AccountingError) == 290_000
    for wrong in (-1, 0.1234567):
        with pytest.raises(AccountingError, match="must be a positive multiple of one millionth"):
            micro_nats(wrong, AccountingError)
