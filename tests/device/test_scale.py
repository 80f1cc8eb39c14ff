"""Logarithmic bins on a board; vectors_scale.json covers each edge, and test_privacy.py the randomizers."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from experiments import experiment_json, number_json
from hypothesis import given
from hypothesis import strategies as st

from hushmote.device import ldp_scale
from hushmote.device.ldp_client import Experiment


def log(bins: int = 3, **changes: Any) -> Experiment:
    fields: dict[str, Any] = {"low": 1, "high": 8, "scale": "log", "mechanism": "grr"}
    return Experiment.parse(number_json(bins, **fields | changes))


@st.composite
def scales(draw: st.DrawFn) -> tuple[int, int, int]:
    low = draw(st.integers(1, 2**40 - 2))
    high = draw(st.integers(low + 2, 2**40) | st.integers(low + 2, min(2**40, 2 * low + 500)))
    return low, high, draw(st.integers(2, min(256, high - low)))


class TestEdges:
    def test_worked_example_of_the_docs(self):
        page = (Path(__file__).parents[2] / "docs" / "wire-format.md").read_text("utf-8")
        text = page.split("### Logarithmic bins\n")[1]
        example = re.search(
            r"For low = (\d+), high = (\d+) and B = (\d+), .*?edges are ([\d,\s]+)\.", text, re.DOTALL
        )
        assert example
        low, high, bins = map(int, example.groups()[:3])
        assert list(ldp_scale.edges(low, high, bins)) == [int(edge) for edge in example[4].split(",")]

    @given(scales())
    def test_rise_from_low_to_high(self, scale: tuple[int, int, int]):
        edges = list(ldp_scale.edges(*scale))
        assert (edges[0], edges[-1], len(edges)) == (*scale[:2], scale[2] + 1)
        assert all(a < b for a, b in pairwise(edges))

    @given(scales())
    def test_growth_is_the_largest_that_fits(self, scale: tuple[int, int, int]):
        low, high, bins = scale
        growths = [0, 2**40]
        while growths[1] - growths[0] > 1:
            middle, last = sum(growths) // 2, low
            for _ in range(bins):
                last += max(1, last * middle // 2**20)
            growths[last > high] = middle
        expected = [low]
        for _ in range(bins - 1):
            expected.append(expected[-1] + max(1, expected[-1] * growths[0] // 2**20))
        assert list(ldp_scale.edges(*scale)) == [*expected, high]

    def test_last_bin_is_about_as_wide_as_others_in_proportion(self):
        for low, high, bins in ((1_000, 10_000, 24), (1_000, 10_000, 256), (100, 10**9, 64)):
            edges = list(ldp_scale.edges(low, high, bins))
            ratios = [b / a for a, b in pairwise(edges)]
            assert ratios[-1] < ratios[0] ** 2


class TestBucket:
    def test_readings_beyond_the_ends_are_in_the_end_bins(self):
        e = log()
        readings = (-(10**30), -1, 0, 0.0, 0.001, 0.002, 0.003, 0.004, 0.008, 1, 1e30, float("inf"))
        assert [e.bucket(x) for x in readings] == [0, 0, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2]

    def test_rounds_to_thousandths_as_equal_bins_do(self):
        assert [log().bucket(x) for x in (0.0014, 0.0016, 0.0034, 0.0036)] == [0, 1, 1, 2]

    def test_missing_reading_has_the_last_index(self):
        e = log(missing=1)
        assert (e.domain, e.bucket(None), e.bucket(float("nan")), e.bucket(9)) == (4, 3, 3, 2)
        assert log().bucket(None) is None

    @pytest.mark.parametrize("value", ["1", True, b"1", (1,)], ids=["text", "bool", "bytes", "tuple"])
    def test_raises_type_error_for_wrong_type(self, value: Any):
        with pytest.raises(TypeError, match=r"must be a number or None$"):
            log().bucket(value)

    def test_parts_of_a_pair_may_have_scales(self):
        part = {"name": "size", "type": "number", "low": 1, "high": 8, "bins": 3, "scale": "log"}
        other = {"name": "hot", "type": "bool"}
        e = Experiment.parse(experiment_json(type="pair", of=[part, other], mechanism="grr"))
        assert [e.bucket((x, True)) for x in (0, 0.002, 0.007, 50)] == [1, 3, 5, 5]

    def test_equal_bins_are_unchanged(self):
        e = Experiment.parse(number_json(3, low=0, high=9_000, mechanism="grr"))
        assert [e.bucket(x) for x in (0, 2.9, 3, 8.9, 9)] == [0, 0, 1, 2, 2]
