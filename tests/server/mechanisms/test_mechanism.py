"""What a mechanism derives from its law, what it draws, and its board file."""

from collections.abc import Callable

import numpy as np
import pytest
from experiments import experiment_json
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.mechanisms import MECHANISMS, Mechanism, MechanismError, mechanism_of
from hushmote.server.mechanisms.custom import board_file
from hushmote.server.wire.experiments import parse_experiment

HIERARCHY = {"type": "number", "low": 0, "high": 1000, "bins": 27, "mechanism": "hh", "fanout": 3}
EXAMPLES = (
    *(fields for cls in dict.fromkeys(MECHANISMS.values()) for fields in cls.examples),
    HIERARCHY | {"cells": [2, 3, 27], "weights": [3, 0, 1]},
)
each_example = pytest.mark.parametrize(
    "mechanism",
    [
        mechanism_of(Experiment.parse(experiment_json(**fields, budget={"rule": "unlimited"})))
        for fields in EXAMPLES
    ],
    ids=lambda mechanism: f"{mechanism.words()}, {mechanism.domain}",
)


class TestOdds:
    @each_example
    def test_are_the_largest_ratio_of_a_code_that_is_drawn(self, mechanism: Mechanism):
        law = np.stack([mechanism.code_law(alone) for alone in np.eye(mechanism.domain)], axis=1)
        law = law[law.any(axis=1)]
        worst = (law.max(axis=1) / law.min(axis=1)).max()
        assert vars(Mechanism)["odds"].fget(mechanism) == pytest.approx(worst, rel=1e-9)
        assert mechanism.odds == pytest.approx(worst, rel=1e-9)

    def test_are_infinite_if_a_code_excludes_a_value(self, own_coin: Callable[..., str]):
        word = own_coin(("[[p, 1 - p], [1 - p, p]]) @ shares", "[[p, 0], [1 - p, 1]]) @ shares"))
        assert mechanism_of(parse_experiment(experiment_json(mechanism=word))).odds == np.inf


class TestDraw:
    @each_example
    def test_follows_the_law(self, mechanism: Mechanism):
        """The seed is fixed; a correct draw fails for one seed in 10**6."""
        rng = np.random.default_rng(5)
        for value in (0, mechanism.domain - 1):
            codes = mechanism.draw(np.full(20_000, value, np.uint32), rng)
            law = mechanism.code_law(np.eye(mechanism.domain)[:, value])
            counts = np.bincount(codes, minlength=len(law))
            assert counts[law == 0].sum() == 0
            assert stats.chisquare(counts[law > 0], 20_000 * law[law > 0]).pvalue > 1e-6


class TestDirect:
    def test_reports_are_the_values_of_randomized_response(self):
        assert {name for name, cls in MECHANISMS.items() if cls.direct} == {"rr", "grr"}


class TestBoardFile:
    def test_is_named_by_the_class_and_exists(self, own_coin: Callable[..., str]):
        line = "    board = Path(__file__)\n"
        assert board_file(own_coin()).name.startswith("coin_")
        with pytest.raises(MechanismError, match=r":Coin must name its board file, for example: board = "):
            board_file(own_coin((line, "")))
        with pytest.raises(MechanismError, match=r":Coin: its board file /nowhere.py does not exist$"):
            board_file(own_coin((line, "    board = Path('/nowhere.py')\n")))
