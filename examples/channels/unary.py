"""The server's side of unary: estimates from its codes. The board's side is unary_board.py."""

from pathlib import Path

import numpy as np
import unary_board

from hushmote.device.ldp_client import ONE
from hushmote.server.mechanisms import Mechanism

_NUMBER = {"type": "number", "low": 0, "high": 1000}


class Unary(Mechanism):
    """A bit for each value, as optimised unary encoding has it."""

    board = Path(unary_board.__file__)
    examples = ({"type": "bool"}, _NUMBER | {"bins": 5}, {"type": "choice", "labels": ["a", "b"]})

    def __init__(self, experiment):
        super().__init__(experiment)
        self.wrong, self.right = (threshold / ONE for threshold in experiment.thresholds)
        codes = np.arange(experiment.code_count)
        places = np.arange(self.domain)[::-1]
        self.bits = codes[:, None] >> places & 1  # (code_count, domain)

    def law(self, shares):
        own = np.eye(self.domain, dtype=bool)[:, None, :]  # value, code, bit
        chance = np.where(own, self.right, self.wrong)
        chances = np.where(self.bits, chance, 1 - chance).prod(axis=2).T  # (code_count, domain)
        return [chances @ shares]

    def weights(self, statistic, reports):
        return [(self.bits - self.wrong) / (self.right - self.wrong) @ statistic], np.zeros(
            statistic.shape[1]
        )

    def draw(self, indices, rng):
        drawn = rng.integers(0, ONE, (len(indices), self.domain))
        thresholds = np.full(drawn.shape, self.experiment.thresholds[0])
        thresholds[np.arange(len(indices)), indices] = self.experiment.thresholds[1]
        return ((drawn < thresholds) << np.arange(self.domain)[::-1]).sum(axis=1).astype(np.uint32)
