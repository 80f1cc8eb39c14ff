"""Requests for plans: one-line errors if they contradict themselves, and their options' use."""

from typing import Any

import pytest
from refusals import fails

from hushmote.planning.answer import answer
from hushmote.planning.devices import PlanError
from hushmote.planning.request import PlanRequest


class TestErrors:
    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"horizon": "2y"}, "--horizon requires --lifetime"),
            ({"delta": 1e-6}, "--delta requires --lifetime"),
            ({"epsilon": None, "histogram_epsilon": 0.1, "call": "1h"}, "--call requires --lifetime"),
            ({"error": "1s"}, "--error 1s requires a mean or a quantile with --low, --high and --unit s"),
            ({"low": 1.0}, "--low and --high must be given together"),
            ({"high": 1.0}, "--low and --high must be given together"),
        ],
        ids=["horizon", "delta", "call of a histogram", "unit", "low", "high"],
    )
    def test_name_the_option_to_change(self, fields: dict[str, Any], message: str):
        with fails(message, PlanError):
            answer(PlanRequest(**{"devices": 1000, "epsilon": 1.0, "values": 16} | fields))


class TestHistogramEpsilon:
    def test_has_the_given_delta(self):
        request = PlanRequest(devices=1000, values="yes-no", histogram_epsilon=0.5, delta=1e-4)
        assert answer(request).histograms["all of it"].delta == 1e-4
