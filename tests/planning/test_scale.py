"""Plans for numbers with logarithmic bins."""

import datetime
from dataclasses import replace

import pytest
from refusals import Refusal, refusals

from hushmote.planning.answer import answer
from hushmote.planning.devices import PlanError
from hushmote.planning.experiment_file import ExperimentInfo
from hushmote.planning.request import PlanRequest, question_of, reading_of
from hushmote.server.experiments.definition import parse
from hushmote.server.experiments.units import bin_edges

REQUEST = PlanRequest(devices=20_000, epsilon=2, values=24, low=1, high=1000, scale="log", unit="s")


class TestPlan:
    def test_file_has_the_scale(self):
        plan = answer(REQUEST)
        info = ExperimentInfo("flow", None, "me", datetime.date(2026, 11, 29))
        definition = parse(plan.file(info))
        assert definition.scale == "log"
        assert bin_edges(definition.experiment())[1] == 1.333
        assert "--scale log" in plan.command("flow")

    def test_error_of_shares_is_as_for_equal_bins(self):
        equal = replace(REQUEST, scale=None)
        assert answer(REQUEST).error == answer(equal).error
        median = {"quantile": 0.5}
        assert answer(replace(REQUEST, **median)).error == answer(replace(equal, **median)).error

    def test_range_is_that_of_the_nearest_edges(self):
        request = replace(REQUEST, ranges=["10:100", "562:"])
        assert question_of(request, reading_of(request)).ranges == ((8, 16), (22, 24))

    def test_no_error_in_the_unit_is_shown(self):
        plan = answer(replace(REQUEST, quantile=0.5))
        assert plan.in_unit(plan.error) == {}

    @refusals(
        ({"scale": "linear"}, "--scale must be log, or omitted for equal bins, not linear"),
        ({"low": 0}, "--scale log requires a --low above 0, not 0"),
        ({"low": None, "high": None}, "--scale log requires a number's --low, --high and --values"),
        ({"values": None, "error": 0.02}, "--scale log requires a number's --low, --high and --values"),
        ({"values": "yes-no", "unit": "", "low": None, "high": None}, "--scale log requires a number's"),
        ({"values": 257}, "with --scale log, --values must be 2 to 256 bins, not 257"),
        ({"high": 1.01}, "with --scale log, --values must be 2 to 10 bins, not 24"),
        ({"statistics": "mean"}, "the error of a mean can be planned only for equal bins"),
        ({"quantile": 0.5, "error": "5s", "devices": None}, "--error must be a share of the devices"),
        ({"ranges": ["10:10.1"]}, "10:10.1 is less than half a bin wide"),
        call=lambda changes: answer(replace(REQUEST, **changes)),
        error=PlanError,
    )
    def test_rejects_what_does_not_fit_a_scale(self, refusal: Refusal):
        refusal.check()


@pytest.mark.parametrize("statistics", ["frequencies", "ranges", "quantiles"])
def test_every_plan_of_shares_is_a_valid_file(statistics: str):
    info = ExperimentInfo("flow", None, "me", datetime.date(2026, 11, 29))
    assert parse(answer(replace(REQUEST, statistics=statistics)).file(info)).payload()
