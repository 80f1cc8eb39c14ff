"""The first privacy filter compared with its formula at 60 digits."""

import pytest
import reference_composition as composition
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import Refusal, refusals

from hushmote.server.accounting import AccountingError, ReportCost
from hushmote.studies.rogers import RogersFilter


@pytest.mark.parametrize(
    ("total", "epsilon", "reports"), [(1, 10_000, 147), (4, 50_000, 90), (8, 100_000, 86), (8, 500_000, 3)]
)
def test_matches_known_numbers_of_reports(total: float, epsilon: int, reports: int):
    assert RogersFilter(total, 1e-6).most_reports(epsilon) == reports


@settings(max_examples=60)
@given(
    total=st.integers(50_000, 12_000_000),
    epsilon=st.integers(20_000, 4_000_000),
    delta=st.sampled_from(["0.1", "1e-6", "1e-12"]),
)
def test_cap_is_exact(total: int, epsilon: int, delta: str):
    reports = RogersFilter(total / 1e6, float(delta)).most_reports(epsilon)
    assert reports is not None
    allowed = composition.nats(total)
    if reports:
        assert composition.rogers(epsilon, reports, total, delta) <= allowed
    assert composition.rogers(epsilon, reports + 1, total, delta) > allowed


def test_reserves_half_of_delta_for_the_deltas_of_reports():
    assert RogersFilter(8, 1e-6).allowed([ReportCost(100_000, 1e-7)] * 5)
    assert not RogersFilter(8, 1e-6).allowed([ReportCost(100_000, 1e-7)] * 6)


@refusals(
    (0, "needs a delta above 0"),
    (0.8, "at most 2/e"),
    call=lambda delta: RogersFilter(4, delta),
    error=AccountingError,
)
def test_rejects_other_deltas(refusal: Refusal):
    refusal.check()
