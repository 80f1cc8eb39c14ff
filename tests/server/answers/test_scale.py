"""Answers about logarithmic bins; intervals have confidence 1 - 1e-9."""

from typing import Any

import numpy as np
from designs import draw
from experiments import number_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers.fleet_estimate import FleetEstimate
from hushmote.server.answers.plot import plot
from hushmote.server.experiments.units import bin_edges
from hushmote.simulator.population import lognormal
from hushmote.web.experiment import charts

SURE = 1 - 1e-9
LOG: dict[str, Any] = {"low": 1_000, "high": 1_000_000, "scale": "log", "epsilon": 3_000_000}
EXPERIMENT = Experiment.parse(number_json(24, mechanism="hh", fanout=2, cells=[2, 3, 6, 12, 24], **LOG))
PEOPLE = lognormal(20, 1)


def fleet(reports: int = 40_000, seed: int = 1) -> FleetEstimate:
    shares = PEOPLE.probabilities(EXPERIMENT)[:-1]
    return FleetEstimate(
        draw(EXPERIMENT, shares, reports, np.random.default_rng(seed)), unit="s", confidence=SURE
    )


class TestShares:
    def test_rows_have_the_edges_of_their_bins(self):
        edges = bin_edges(EXPERIMENT)
        rows = fleet().histogram(24).rows
        assert [row.lower for row in rows] == list(edges[:-1])
        assert [row.upper for row in rows] == list(edges[1:])

    def test_range_is_known_to_its_interval(self):
        (row,) = fleet().share("10:100").rows
        assert (row.lower, row.upper) == (9.988, 99.932)
        assert row.low < PEOPLE.cdf(99.9315) - PEOPLE.cdf(9.9875) < row.high

    def test_quantiles_are_whole_bins(self):
        (row,) = fleet().quantile(0.5).rows
        edges = list(bin_edges(EXPERIMENT))
        assert row.low <= 20 <= row.high
        assert {row.low, row.high} <= set(edges)


class TestPicture:
    def test_axis_has_the_scale_of_the_bins(self):
        for answer in (fleet().histogram(24), fleet().cdf()):
            (axes,) = plot(None, [answer]).axes
            assert axes.get_xscale() == "log"
            assert "100" in [label.get_text() for label in axes.get_xticklabels()]

    def test_page_has_the_same_axis(self):
        options = charts.histogram(fleet().histogram(24), "s", "", "en")
        assert options["xAxis"]["type"] == "log"
        assert (options["xAxis"]["min"], options["xAxis"]["max"]) == (1, 1000)

    def test_json_says_so(self):
        assert fleet().histogram().to_dict()["scale"] == "log"


class TestMean:
    def test_note_covers_the_error_of_wide_bins(self):
        """The mean of the readings is within the interval widened by the note's limit."""
        answer = fleet(400_000).mean()
        row = answer.rows[0]
        _, _, rest = answer.note.partition("off by up to another ")
        most = float(rest.partition(" s;")[0])
        assert row.low - most < 20 * np.exp(0.5) < row.high + most
        assert most < 10  # half of the widest bin is 125

    def test_note_is_omitted_if_the_interval_is_much_wider(self):
        assert fleet(500).mean().note == ""
