"""Plans: JSON form, refusal of changes, and impossible settings."""

import json
from dataclasses import replace

import pytest

from hushmote.server.release.difference import ReleaseError
from hushmote.server.release.plan import (
    PlanChanged,
    QuestionPlan,
    ReleasePlan,
    SilencePlan,
    check_unchanged,
    plan_from_json,
)

CRASHED = QuestionPlan("crashed", "more", 0.02, 4000.0, 0.23)
BATTERY = QuestionPlan("battery", "less", None, 12.0, 90.0)
PLAN = ReleasePlan("firmware", "2.4.0", ("2.3.0", "2.3.1"), (CRASHED, BATTERY), SilencePlan(300.0))


class TestJson:
    @pytest.mark.parametrize("plan", [PLAN, replace(PLAN, silence=None, questions=(CRASHED,), alpha=0.01)])
    def test_round_trip(self, plan: ReleasePlan):
        text = plan.to_json()
        assert plan_from_json(text) == plan
        assert plan_from_json(text).to_json() == text
        assert "\n" not in text

    @pytest.mark.parametrize(
        "text", ["", "[]", "{}", "null", PLAN.to_json()[:-2], PLAN.to_json().replace("margin", "x")]
    )
    def test_rejects_damaged_text(self, text: str):
        with pytest.raises(ReleaseError, match="the stored plan of the release is damaged"):
            plan_from_json(text)

    def test_rejects_impossible_values(self):
        text = json.dumps(json.loads(PLAN.to_json()) | {"alpha": 0.7})
        with pytest.raises(ReleaseError, match=r"alpha must be above 0 and below 0\.5, not 0\.7"):
            plan_from_json(text)


class TestCheckUnchanged:
    def test_accepts_the_same_plan(self):
        check_unchanged(PLAN, plan_from_json(PLAN.to_json()))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"alpha": 0.1}, r"alpha is 0\.05, not 0\.1"),
            ({"others": ("2.3.1",)}, r"against is 2\.3\.0, 2\.3\.1, not 2\.3\.1"),
            ({"questions": (CRASHED,)}, "questions is crashed, battery, not crashed"),
            (
                {"questions": (replace(CRASHED, margin=0.03), BATTERY)},
                r"margin of crashed is 0\.02, not 0\.03",
            ),
            ({"questions": (CRASHED, replace(BATTERY, worse="more"))}, "worse of battery is less, not more"),
            ({"reports": 1000}, "reports is not set, not 1000"),
            ({"selection": "by region"}, "selection is at random, not by region"),
            ({"silence": None}, r"information of silence is 300\.0, not missing"),
            ({"silence": SilencePlan(300.0, 0.2)}, r"tolerance of silence is 0\.1, not 0\.2"),
        ],
    )
    def test_names_what_changed(self, change: dict[str, object], message: str):
        with pytest.raises(PlanChanged, match=rf"plan of 2\.4\.0 cannot change .*: {message}; omit it$"):
            check_unchanged(PLAN, replace(PLAN, **change))


class TestSettings:
    def test_weights_add_up_to_one(self):
        assert PLAN.weights() == pytest.approx({"crashed": 0.45, "battery": 0.45, "": 0.1})
        assert replace(PLAN, silence=None).weights() == {"crashed": 0.5, "battery": 0.5}

    def test_fraction_counts_effective_reports(self):
        assert CRASHED.fraction(460.0) == pytest.approx(0.5)
        assert (CRASHED.sign, BATTERY.sign) == (1, -1)

    def test_rejects_impossible_settings(self):
        for change, message in (
            ({"worse": "up"}, 'crashed: worse must be "more" or "less"'),
            ({"margin": 0.0}, "crashed: the margin must be above 0, not 0"),
            ({"information": 0.0}, "crashed: the planned information and variance must be above 0"),
        ):
            with pytest.raises(ReleaseError, match=message):
                replace(CRASHED, **change)
        for change, message in (
            ({"questions": ()}, "at least one question"),
            ({"questions": (CRASHED, CRASHED)}, "must have different names"),
            ({"others": ()}, "at least one other version"),
            ({"others": ("2.4.0",)}, "not with itself"),
        ):
            with pytest.raises(ReleaseError, match=message):
                replace(PLAN, **change)
        for change, message in (
            ({"information": 0.0}, "information about silence must be above 0"),
            ({"offline_share": 1.0}, "shares from 0 to below 1"),
            ({"dispersion": 0.5}, r"dispersion must be 1 or more, not 0\.5"),
        ):
            with pytest.raises(ReleaseError, match=message):
                replace(SilencePlan(300.0), **change)
