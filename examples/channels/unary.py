"""The server side of unary: estimates from its codes. The board side is unary_board.py."""

from pathlib import Path

import numpy as np
import unary_board

from hushmote.device.ldp_client import ONE
from hushmote.server.mechanisms import Mechanism

_NUMBER = {"type": "number", "low": 0, "high": 1000}


class Unary(Mechanism):
    """Optimised unary encoding: a bit for each value."""

    board = Path(unary_board.__file__)
    examples = ({"type": "bool"}, _NUMBER | {"bins": 5}, {"type": "choice", "labels": ["a", "b"]})

    def __init__(self, experiment):
        super().__init__(experiment)
        self.wrong, self.right = (threshold / ONE for threshold in experiment.thresholds)
        codes = np.arange(experiment.code_count)
        positions = np.arange(self.domain)[::-1]
        self.bits = codes[:, None] >> positions & 1  # (code_count, domain)

    def law(self, shares):
        is_own_bit = np.eye(self.domain, dtype=bool)[:, None, :]  # value, code, bit
        ones = np.where(is_own_bit, self.right, self.wrong)
        probabilities = np.where(self.bits, ones, 1 - ones).prod(axis=2).T  # (code_count, domain)
        return [probabilities @ shares]

    def weights(self, statistic, reports):
        return [(self.bits - self.wrong) / (self.right - self.wrong) @ statistic], np.zeros(
            statistic.shape[1]
        )

    def draw(self, indices, rng):
        draws = rng.integers(0, ONE, (len(indices), self.domain))
        thresholds = np.full(draws.shape, self.experiment.thresholds[0])
        thresholds[np.arange(len(indices)), indices] = self.experiment.thresholds[1]
        return ((draws < thresholds) << np.arange(self.domain)[::-1]).sum(axis=1).astype(np.uint32)
