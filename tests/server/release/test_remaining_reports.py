"""What a question still needs: reports, days, and cases in which no number is enough."""

import pytest

from hushmote.server.release.difference import Look
from hushmote.server.release.plan import QuestionPlan
from hushmote.server.release.power import reports_to_proceed, yes_no_variance
from hushmote.server.release.remaining_reports import reports_until_proceed

VARIANCE = yes_no_variance(2.0)(0.05)


def looks(days: int, per_day: float, value: float = 0.0) -> list[Look]:
    """Return looks at a rollout in which the others have far more reports."""
    totals = [per_day * (day + 1) for day in range(days)]
    return [Look(day, value, VARIANCE / n, 0.0, n, n) for day, n in enumerate(totals)]


def question(reports: float) -> QuestionPlan:
    return QuestionPlan("crashed", "more", 0.02, reports / VARIANCE, VARIANCE)


class TestReportsUntilProceed:
    def test_agrees_with_the_plan(self):
        """A few looks that show no difference are followed by about as many reports as were planned."""
        planned = reports_to_proceed(14, 0.05, 0.02, yes_no_variance(2.0), ratio=1e9)
        assert planned is not None
        remaining = reports_until_proceed(question(planned), 0.02, looks(2, planned / 14), 0.05)
        assert remaining is not None
        assert 2 * planned / 14 + remaining.reports == pytest.approx(planned, rel=0.12)
        assert remaining.days == pytest.approx(12, abs=2)

    def test_bad_looks_need_more(self):
        results = [
            reports_until_proceed(question(4000), 0.02, looks(5, 280, value), 0.05)
            for value in (-0.02, 0.0, 0.02)
        ]
        reports = [0 if remaining is None else remaining.reports for remaining in results]
        assert 0 < reports[0] < reports[1] < reports[2]

    def test_days_follow_the_recent_rate(self):
        slow, fast = looks(10, 20), looks(10, 20)
        last = fast[-1]
        fast[-1] = Look(9, 0.0, VARIANCE / 1400, 0.0, 1400, 1400)
        assert last.reports == 200
        remaining = [reports_until_proceed(question(4000), 0.02, each, 0.05) for each in (slow, fast)]
        assert remaining[0] is not None
        assert remaining[1] is not None
        assert remaining[1].days < remaining[0].days / 5

    def test_goes_beyond_a_plan_that_is_used_up(self):
        remaining = reports_until_proceed(question(1000), 0.02, looks(14, 75), 0.05)
        assert remaining is not None
        assert remaining.reports > 4000

    def test_is_none_if_no_number_is_enough(self):
        assert reports_until_proceed(question(1000), 1e-9, looks(2, 10), 0.05) is None
