"""The browser's estimates and sentences compared with the server's, in a real Chromium."""

from collections.abc import Iterator

import numpy as np
import pytest
from browser import Browser
from browser_board import BoardPage, serve_board
from experiments import experiment_json, number_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate import estimate
from hushmote.server.experiments.units import index_names
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.words.epsilon import belief

pytestmark = pytest.mark.slow

LABELS = ["a", "b", "c", "d"]
EXPERIMENTS = {
    "rr": experiment_json(),
    "grr of labels": experiment_json(type="choice", labels=LABELS, mechanism="grr", epsilon=2_000_000),
    "grr of 16": number_json(16, epsilon=2_500_000),
    "olh 5 of 16": number_json(16, mechanism="olh", g=5),
    "olh 2 of 16, all digits": number_json(16, mechanism="olh", g=2, epsilon=500_000),
    "olh 3 of 9, all digits": number_json(9, mechanism="olh", g=3),
    "olh 3 of 50": number_json(50, mechanism="olh", g=3, epsilon=1_300_000),
    "olh 7 of 64": number_json(64, mechanism="olh", g=7, epsilon=3_000_000),
}
GROUP_SIZE = 4  # adjacent values in a group


@pytest.fixture(scope="module")
def page(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardPage]:
    with serve_board(tmp_path_factory.mktemp("site")) as url:
        page = BoardPage(chromium, url)
        page.open(fresh=True)
        page.ready()
        yield page


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("reports", [2, 40, 5_000])
def test_estimates_and_intervals_match_server(page: BoardPage, name: str, reports: int):
    exp = Experiment.parse(EXPERIMENTS[name])
    rng = np.random.default_rng(reports)
    indices = np.minimum(rng.geometric(0.3, reports) - 1, exp.domain - 1).astype(np.uint32)
    codes = mechanism_of(exp).draw(indices, rng)
    counts = np.bincount(codes, minlength=exp.code_count)
    lows = [*range(exp.domain), *range(0, exp.domain, GROUP_SIZE)]
    highs = [
        *range(1, exp.domain + 1),
        *(min(low + GROUP_SIZE, exp.domain) for low in range(0, exp.domain, GROUP_SIZE)),
    ]
    ranges = estimate(exp, counts).ranges(lows, highs)
    ends = np.stack(ranges.interval())
    groups = [list(range(low, high)) for low, high in zip(lows, highs, strict=True)]
    parsed = page.call("parse", EXPERIMENTS[name].hex())
    rows = page.module("estimate.js", "return m.estimator(a[0])(a[1], a[2])", parsed, counts.tolist(), groups)
    actual = np.array([[row["share"], row["low"], row["high"]] for row in rows]).T
    expected = np.stack([ranges.value, *ends])
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-9)


def test_unsupported_mechanisms_are_only_counted(page: BoardPage):
    tree = number_json(16, mechanism="hh", fanout=4, cells=[4, 3])
    large = number_json(60_000, mechanism="olh", g=3)
    small = number_json(1024, mechanism="olh", g=3)
    mean = number_json(16, mechanism="sw", reach=4)
    designed = number_json(16, mechanism="pgr", q=3)
    supported = [
        page.module("estimate.js", "return m.canEstimate(a[0])", page.call("parse", payload.hex()))
        for payload in (tree, large, small, mean, designed)
    ]
    assert supported == [False, False, True, False, False]


def test_beliefs_match_server(page: BoardPage):
    for micro in (1_000, 250_000, 1_000_000, 2_000_000, 4_000_000, 6_800_000, 16_000_000):
        assert page.module("words.js", "return m.belief(a[0])", micro) == belief(micro / 1e6)


def test_names_of_logarithmic_bins_match_server(page: BoardPage):
    payload = number_json(6, low=1_000, high=1_000_000, scale="log", mechanism="grr")
    experiment = page.call("parse", payload.hex())
    names = page.module("words.js", "return [1, 2, 3, 4].map(i => m.indexName(a[0], i))", experiment)
    assert names == index_names(Experiment.parse(payload))[1:5]
    assert "6 bins on a logarithmic scale" in page.module("words.js", "return m.facts(a[0])", experiment)
