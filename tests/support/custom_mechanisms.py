"""Custom mechanisms in files, as an analyst writes them: the documented example, and faulty ones."""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hushmote.device import ldp_client
from hushmote.server.wire import experiments as wire

EXAMPLES = Path(__file__).parents[2] / "examples" / "channels"

COIN = """
from pathlib import Path
import numpy as np
from hushmote.device import ldp_client
from hushmote.device.ldp_client import ONE
from hushmote.server.mechanisms import Mechanism

class Coin(Mechanism):
    board = Path(__file__)
    examples = ({"type": "bool"},)
    shift = 0.0

    def law(self, shares):
        p = self.experiment.truth
        return [np.array([[p, 1 - p], [1 - p, p]]) @ shares]

    def weights(self, statistic, reports):
        p = self.experiment.truth
        inverse = np.linalg.inv([[p, 1 - p], [1 - p, p]])
        return [inverse.T @ statistic + self.shift], np.zeros(statistic.shape[1])

    def draw(self, indices, rng):
        lies = rng.random(len(indices)) >= self.experiment.truth
        return (indices ^ lies).astype(np.uint32)

def take(exp, fields):
    exp.code_count = 2
    exp.threshold = ldp_client.truth_threshold(exp.epsilon, 2)
    exp.truth = exp.threshold / ONE

def randomize(exp, index, rng):
    return index if rng.bernoulli(exp.threshold) else 1 - index

def register(name):
    ldp_client.MECHANISMS[name + ":Coin"] = (take, randomize)
"""
"""Randomized response of one bit, whole; a test replaces a line of it."""


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], str]]:
    """Provide a function that writes NAME.py into a folder on the module path and returns NAME:Coin."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(wire, "FOLDERS", [str(tmp_path)])
    modules, words = set(sys.modules), dict(ldp_client.MECHANISMS)

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return f"{name}:Coin"

    yield write
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]
    ldp_client.MECHANISMS.clear()
    ldp_client.MECHANISMS.update(words)


@pytest.fixture
def own_coin(own_folder: Callable[[str, str], str]) -> Callable[..., str]:
    """Provide a function that writes a COIN with texts replaced by (right, wrong), and returns its word."""
    serials = itertools.count()

    def write(*replaced: tuple[str, str]) -> str:
        name, text = f"coin_{next(serials)}", COIN
        for right, wrong in replaced:
            assert text.count(right) == 1, right
            text = text.replace(right, wrong)
        return own_folder(name, f'{text}\nregister("{name}")\n')

    return write
