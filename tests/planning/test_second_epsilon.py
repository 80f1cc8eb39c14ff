"""The ε of a plan's histograms, and the report ε for a given histogram ε."""

import math

import pytest
from refusals import fails

from hushmote.device.ldp_client import EPSILON_MAX
from hushmote.planning.devices import EPSILON_STEP, MICRO, PlanError, best_design
from hushmote.planning.expected_error import Question
from hushmote.planning.lifetime import LifetimeBudget, Rhythm, plan_lifetime
from hushmote.planning.second_epsilon import epsilon_for_histogram, histogram, lifetime_histograms
from hushmote.server.estimate.shuffled import LIMITS, histogram_epsilon

MONTHS = Rhythm(3600, 90 * 86_400)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "domain", "wanted", "devices"),
    [
        (Question("frequency"), 2, 0.05, 26_000),
        (Question("frequency"), 16, 0.05, 26_000),
        (Question(), 6, 0.5, 2_000),
    ],
    ids=["yes or no", "16 labels", "ranges"],
)
def test_answer_keeps_wanted_epsilon_and_is_tight(
    question: Question, domain: int, wanted: float, devices: int
) -> None:
    epsilon = epsilon_for_histogram(question, devices, domain, wanted)
    result = histogram(best_design(domain, epsilon, question), devices)
    assert result.epsilon <= wanted < epsilon / MICRO
    assert epsilon % EPSILON_STEP == 0
    assert histogram(best_design(domain, epsilon + EPSILON_STEP, question), devices).epsilon > wanted


def test_loose_target_allows_the_largest_epsilon() -> None:
    assert epsilon_for_histogram(Question("frequency"), 100, 2, 20.0) == EPSILON_MAX


@pytest.mark.parametrize("target", [0.0, -1.0, math.nan])
def test_target_must_be_above_zero(target: float) -> None:
    with fails(f"the ε of a histogram must be above 0, not {target:g}", PlanError):
        epsilon_for_histogram(Question("frequency"), 100, 2, target)


def test_partial_report_gives_no_protection() -> None:
    """Expected reports are rounded down, which is the safe side; a single report keeps its ε."""
    design = best_design(2, 2 * MICRO, Question("frequency"))
    seen = histogram(design, 999.9)
    assert (seen.reports, seen.holds) == (999, LIMITS)
    assert histogram(design, 0.2).epsilon == pytest.approx(2.0, rel=1e-6)


def test_a_boards_reports_in_a_histogram_add_up() -> None:
    lifetime = plan_lifetime(Question("frequency"), 50_000, 2, LifetimeBudget(4 * MICRO), MONTHS, limit=MICRO)
    best = lifetime.best
    assert best.cap == 4
    seen = lifetime_histograms(lifetime)
    assert list(seen) == ["a day", "a week", "30 days", "all of it"]
    assert all(entry.own_reports == 4 for entry in seen.values())
    assert seen["all of it"].reports == int(50_000 * best.used * 4)
    single = histogram_epsilon(best.design.experiment, seen["a week"].reports)
    assert single < seen["a week"].epsilon <= best.epsilon * 4 / MICRO
    assert seen["a day"].epsilon > seen["30 days"].epsilon > seen["all of it"].epsilon


def test_daily_calls_give_one_report_a_day() -> None:
    daily = Rhythm(86_400, 90 * 86_400)
    lifetime = plan_lifetime(Question("frequency"), 50_000, 2, LifetimeBudget(4 * MICRO), daily, limit=MICRO)
    assert [entry.own_reports for entry in lifetime_histograms(lifetime).values()] == [1, 4, 4, 4]
