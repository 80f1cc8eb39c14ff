"""Plans for fleets in which some devices have no reading; errors apply to the others."""

import datetime
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from refusals import fails

from hushmote.planning.answer import answer
from hushmote.planning.devices import PlanError, best_design
from hushmote.planning.expected_error import (
    Question,
    mean_population,
    missing_variance,
    places,
    variance,
)
from hushmote.planning.experiment_file import ExperimentInfo
from hushmote.planning.ratio_error import share_curves
from hushmote.planning.request import PlanRequest
from hushmote.server.estimate import estimate
from hushmote.simulator import vectorised

MISSING = 0.3
QUESTIONS = {
    "bool": (2, Question("frequency", 0.3, missing=MISSING)),
    "choice": (6, Question("frequency", 0.1, missing=MISSING)),
    "range": (31, Question("range", 0.4, 5, missing=MISSING)),
    "quantile": (31, Question("quantile", 0.5, missing=MISSING)),
    "mean": (31, Question("mean", spread=0.2, missing=MISSING)),
}


class TestExpectedError:
    @pytest.mark.parametrize("name", QUESTIONS)
    def test_equals_the_estimates_error(self, name: str):
        domain, question = QUESTIONS[name]
        design = best_design(domain, 3_000_000, question)
        rng, reports, place = np.random.default_rng(2), 20_000, 0
        if question.kind == "mean":
            statistics = mean_population(design, question.spread)
            expected = float(statistics.variance[0])
        else:
            statistics = places(design, question)
            place = len(statistics.variance) // 2
            expected = float(statistics.variance[place])
        shares = statistics.population(domain, place)
        statistic = statistics.statistic(domain, place)
        population = np.append(shares * (1 - MISSING), MISSING)
        e = design.experiment
        truth = float(shares @ statistic)
        weights = np.append(statistic, 0.0)
        below = np.append(np.ones(domain), 0.0)
        off: list[float] = []
        for _ in range(300):
            counts = vectorised.histogram(e, rng.multinomial(reports, population), rng)
            x, y = (float(v) for v in estimate(e, counts).linear_many(np.stack([weights, below], 1)).value)
            off.append(x / y - truth)
        measured = float(np.mean(np.square(off))) * reports
        # A chi-squared value with 300 degrees of freedom is off by over half with probability below 1e-8.
        assert measured == pytest.approx(expected, rel=0.5)

    @pytest.mark.parametrize("name", QUESTIONS)
    def test_matches_the_ratios_linear_part(self, name: str):
        domain, question = QUESTIONS[name]
        design = best_design(domain, 3_000_000, question)
        mean = question.kind == "mean"
        weights = mean_population(design, question.spread) if mean else places(design, question)
        for place in range(len(weights.variance)):
            shares, statistic = weights.population(domain, place), weights.statistic(domain, place)
            linear = np.append((statistic - statistic @ shares) / (1 - MISSING), 0.0)
            population = np.append(shares * (1 - MISSING), MISSING)
            exact = design.mechanism.variances(linear[:, None], population)[0]
            assert weights.variance[place] == pytest.approx(exact)

    def test_is_larger_than_without_missing_readings(self):
        for domain, question in QUESTIONS.values():
            plain = Question(question.kind, question.share, question.width, spread=question.spread)
            lost = variance(best_design(domain, 2_000_000, question), question)
            assert lost > variance(best_design(domain, 2_000_000, plain), plain) / (1 - MISSING)

    def test_grows_with_the_missing_share(self):
        errors = [
            variance(best_design(15, 2_000_000, question), question)
            for question in (Question("frequency", 0.2, missing=m) for m in (0.0, 0.1, 0.3, 0.6))
        ]
        assert errors == sorted(errors)

    def test_worst_share_has_the_largest_error(self):
        domain, question = QUESTIONS["range"]
        design = best_design(domain, 3_000_000, question)
        inside = np.eye(domain)[:, :3]
        curves = share_curves(design.mechanism, inside, MISSING)
        worst = curves.at(None)
        for share in np.linspace(0, 1, 11):
            assert (curves.at(float(share)) <= worst * (1 + 1e-9)).all()
            exact = share_curves(design.mechanism, inside[:, :1], MISSING).at(float(share))
            assert exact[0] == pytest.approx(curves.at(float(share))[0])

    def test_missing_shares_error_equals_a_values(self):
        design = best_design(15, 2_000_000, Question("frequency", missing=MISSING))
        assert missing_variance(design) > MISSING * (1 - MISSING)

    def test_worst_mean_is_worse_than_a_bell(self):
        worst = Question("mean", missing=MISSING)
        design = best_design(31, 2_000_000, worst)
        bell = variance(design, Question("mean", spread=0.2, missing=MISSING))
        assert variance(design, worst) > bell


class TestPlan:
    REQUEST = PlanRequest(devices=20_000, epsilon=2.0, values=63, low=0.0, high=63.0, missing=0.12)

    def test_file_sets_missing(self):
        named = ExperimentInfo("planned", None, "a@example.org", datetime.date(2026, 1, 1))
        fields = tomllib.loads(answer(self.REQUEST).file(named))
        assert fields["missing"] is True
        assert fields["bins"] == 63
        assert fields["planned"]["missing"] == 0.12

    def test_shows_the_missing_share_and_its_error(self):
        plan = answer(self.REQUEST)
        fact = dict(plan.facts)["no reading"]
        assert fact.startswith("12% of the devices, known to ±")
        plain = plan.to_dict()
        assert plain["missing"] == 0.12
        assert 0 < plain["missing_half_width_95"] < 0.05
        assert plain["domain"] == 63

    def test_mean_avoids_mechanisms_without_missing(self):
        request = PlanRequest(devices=20_000, epsilon=2.0, values=63, statistics="mean", missing=0.12)
        assert answer(request).plan.design.choice.mechanism != "sw"

    def test_lifetime_includes_it(self):
        request = PlanRequest(
            devices=20_000,
            values=15,
            missing=0.2,
            lifetime=4.0,
            horizon="1y",
            call="1h",
            statistics="frequencies",
        )
        plan = answer(request)
        assert plan.plan.design.missing == 0.2
        assert "no reading" in dict(plan.facts)
        assert plan.error > answer(replace(request, missing=None)).error

    @pytest.mark.parametrize("share", [-0.1, 0.995, float("nan")])
    def test_rejects_a_share_of_all_devices(self, share: float):
        with fails(r"the share without a reading must be from 0 to 0\.99, not", PlanError):
            answer(PlanRequest(devices=1000, epsilon=1.0, values=8, missing=share))
