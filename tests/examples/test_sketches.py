"""Sketches that others use, as channels of one's own: the check accepts them, and what their papers say."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments import experiment_json
from micropython import find_runtime

from hushmote.device.ldp_client import Experiment, ExperimentRefused
from hushmote.simulator.contract import check

sys.path.append(str(Path(__file__).parents[2] / "examples" / "channels"))

import hcms  # pyright: ignore[reportMissingImports]
import sfp  # pyright: ignore[reportMissingImports]

WORDS = {hcms.HadamardSketch: "hcms:HadamardSketch", sfp.FragmentPuzzle: "sfp:FragmentPuzzle"}
HCMS = {"mechanism": "hcms:HadamardSketch", "hashes": 2, "width": 4}
SFP = {"mechanism": "sfp:FragmentPuzzle", "type": "letters", "hashes": 2, "width": 4}
each_case = pytest.mark.parametrize(
    ("mechanism", "fields"),
    [(of, {"mechanism": word} | fields) for of, word in WORDS.items() for fields in of.examples],
    ids=["hcms bool", "hcms text", "sfp 2", "sfp 4"],
)


def parsed(fields: dict[str, Any], **changes: Any) -> Experiment:
    return Experiment.parse(experiment_json(**fields | {"budget": {"rule": "unlimited"}} | changes))


@pytest.mark.micropython
@pytest.mark.parametrize("word", WORDS.values())
def test_the_check_accepts_them(word):
    """Privacy, law and draws of their examples; not what no histogram tells without a list of words."""
    find_runtime()  # installs one, which the check takes as well
    found = {one.name: one for one in check.check(word)}
    assert {one.words for one in found.values() if one.holds is not True} == {"it answers nothing"}
    left = {name for name, one in found.items() if one.holds is None}
    assert left == {"unbiased", "short ways", "covered"}


@each_case
def test_estimates_are_without_bias_but_for_items_that_share_cells(mechanism, fields):
    """The mean of what codes weigh: 1 of the item itself, and of others what their common cells take."""
    experiment = parsed(fields)
    server = mechanism(experiment)
    alone = np.eye(experiment.domain)
    weights, constant = server.weights(alone, [1.0] * len(server.strata))
    w, law = weights[-1], server.law(alone)[-1]
    sketch = server.sketch
    items = (
        server.pieces(range(experiment.domain))[:, -1] if "alphabet" in fields else range(experiment.domain)
    )
    cells = np.array([sketch.cells(items, row) for row in range(sketch.hashes)])
    common = (cells[:, :, None] == cells[:, None, :]).mean(axis=0)
    expected = (common - 1 / sketch.width) * sketch.width / (sketch.width - 1)
    np.testing.assert_allclose(law.T @ w / law.sum(axis=0)[:, None] + constant, expected, atol=1e-9)


def test_over_many_hash_functions_items_share_cells_as_often_as_by_chance():
    """Of 4,096 functions and 40 pairs: no pair's mean is 7 standard deviations off, 1e-10 by chance."""
    sketch = hcms.Sketch(4096, 64, 3 << 28)
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 1 << 20, (2, 40))
    hits = np.mean([sketch.cells(a, row) == sketch.cells(b, row) for row in range(4096)], axis=0)
    assert np.abs(hits - 1 / 64).max() < 7 * math.sqrt(1 / 64 * 63 / 64 / 4096)


def test_a_fleet_s_shares_come_back():
    """300,000 reports; each share within 7 standard errors, 3e-12 by chance, and collisions."""
    experiment = parsed(HCMS | {"type": "text", "salt": "s", "slots": 1 << 20, "hashes": 64, "width": 4096})
    server = hcms.HadamardSketch(experiment)
    items = np.array([experiment.bucket(word) for word in ("a", "b", "c", "d")])
    shares = [0.5, 0.3, 0.15, 0.05]
    rng = np.random.default_rng(3)
    drawn = server.draw(rng.choice(items, 300_000, p=shares), rng)
    counts = np.bincount(drawn, minlength=experiment.code_count)
    found = server.sketch.shares(counts, items)
    assert np.abs(found - shares).max() < 7 * server.sketch.stderr(300_000) + 0.01


def test_a_puzzle_is_solved():
    """Three words of 200,000 boards at ε = 4, each 20 standard errors of its pieces or more."""
    fields = {"alphabet": "abcdefgh", "length": 6, "hashes": 16, "width": 4096}
    experiment = parsed(SFP | fields, epsilon=4_000_000)
    server = sfp.FragmentPuzzle(experiment)
    words = ["abcdef", "hgfedc", "cab"]
    rng = np.random.default_rng(4)
    pieces = server.pieces([experiment.bucket(word) for word in words])
    codes = server.draw_pieces(pieces[rng.choice(3, 200_000, p=[0.5, 0.3, 0.2])], rng)
    found = server.solve(np.bincount(codes, minlength=experiment.code_count), common=20)
    assert [word for word, _ in found] == words
    assert [share for _, share in found] == pytest.approx([0.5, 0.3, 0.2], abs=0.05)


def test_letters_are_numbered_and_what_is_not_of_the_alphabet_is_one():
    experiment = parsed(SFP | {"alphabet": "abc", "length": 2})
    assert experiment.domain == 16
    words = {"": 0, "a": 1, "ab": 1 + 2 * 4, "abc": 1 + 2 * 4, "z": 0, "zc": 3 * 4, "ä": 0, "a\n": 1}
    assert {word: experiment.bucket(word) for word in words} == words
    with pytest.raises(TypeError):
        experiment.bucket(b"ab")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (HCMS | {"width": 6}, "width must be a power of 2"),
        (
            HCMS | {"type": "text", "salt": "s", "slots": 256, "prefixes": [1, 2, 3, 4]},
            "hcms is for at most 16777216 values",
        ),
        (HCMS | {"hashes": 0}, "hashes must be an integer from 1"),
        (SFP | {"alphabet": "aa", "length": 2}, "alphabet must be 2 to 64 different characters"),
        (SFP | {"alphabet": "ab", "length": 3}, "length must be even"),
        (SFP | {"alphabet": "ab", "length": 2, "weights": [1]}, "weights must be a list of 2"),
        (SFP | {"type": "bool"}, "sfp is for letters"),
    ],
)
def test_an_experiment_that_does_not_fit_is_refused_with_the_reason(fields, reason):
    with pytest.raises(ExperimentRefused, match=reason):
        parsed(fields)
