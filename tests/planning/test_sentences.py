"""A plan's question and population in words, and the facts and sentences about a lifetime."""

import pytest

from hushmote.planning.answer import answer
from hushmote.planning.devices import MICRO
from hushmote.planning.expected_error import Design, Question
from hushmote.planning.json_values import lifetime_values
from hushmote.planning.lifetime import LifetimePlan
from hushmote.planning.request import PlanRequest
from hushmote.planning.sentences import describe_population, describe_question
from hushmote.server.mechanisms.choice import Choice


class TestQuestion:
    @pytest.mark.parametrize(
        ("question", "domain", "name", "population"),
        [
            (Question("frequency"), 8, "share of one value", "worst case over all shares"),
            (Question("quantile", 0.5), 8, "median", "mean over its possible positions; share of"),
            (Question("quantile", 0.9), 8, "0.9 quantile", "mean over its possible positions; share of"),
            (Question("mean"), 8, "mean", "worst case over all readings"),
            (Question(), 8, "share of any range of bins", "root mean square over all of them, at the worst"),
            (Question(share=0.2), 8, "share of any range of bins", "root mean square over all of them, hold"),
            (Question(), 2, "share of any range of bins", "worst case over all shares"),
            (Question(width=3), 8, "share of 3 neighbouring bins", "worst case over all shares"),
        ],
        ids=["value", "median", "quantile", "mean", "ranges", "ranges and share", "two values", "width"],
    )
    def test_has_a_name_and_a_population(self, question: Question, domain: int, name: str, population: str):
        assert describe_question(question) == name
        design = Design(domain, MICRO, Choice("grr", (), 0.0))
        assert describe_population(question, design).startswith(population)


class TestUnit:
    def test_of_a_mean_is_the_readings(self):
        request = PlanRequest(
            devices=20_000, epsilon=1, values=8, statistics="mean", low=-20, high=44, unit="°C"
        )
        plan = answer(request)
        assert dict(plan.facts)["in unit"] == f"±{64 * plan.error:.3g} °C; half a bin is 4"


class TestLifetime:
    REQUEST = PlanRequest(lifetime=2, values="yes-no", horizon="1y", call="1d", error=0.04)

    def test_with_solved_devices_says_how_many(self):
        plan = answer(self.REQUEST)
        assert plan.solved == "devices"
        devices = f"{plan.plan.devices:,}"
        assert plan.sentences[0].startswith(f"Use {devices} devices. Let a device make 1 report of ε = 2 in")
        facts = dict(plan.facts)
        assert facts["devices"] == f"{devices}   <- the answer, 2 values"
        assert facts["best"].startswith("1 report of ε = 2.0; ")

    def test_json_has_epsilon_in_nats(self):
        plan = answer(self.REQUEST).plan
        assert isinstance(plan, LifetimePlan)
        best = lifetime_values(plan)["best"]
        assert (best["reports_per_device"], best["epsilon"]) == (1, 2.0)

    def test_optimal_composition_is_named(self):
        request = PlanRequest(
            devices=9_000, lifetime=2, values="yes-no", horizon="1y", call="1d", limit=0.02, delta=1e-6
        )
        assert "(optimal composition); every call makes one" in dict(answer(request).facts)["best"]
