"""Published sketches as custom mechanisms: the checks accept them, and their papers' claims hold."""

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments import experiment_json
from micropython import find_runtime
from refusals import Refusal, refusals

from hushmote.device.ldp_client import Experiment, ExperimentRefused
from hushmote.server import special
from hushmote.server.estimate import estimate
from hushmote.server.estimate.discovery import discover
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.mechanisms import Mechanism
from hushmote.server.mechanisms.decoded_histogram import Decoded
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


class TestHadamardSketch:
    @each_case
    def test_estimates_are_unbiased_except_for_shared_cells(self, mechanism, fields):
        """Codes have a mean weight of 1 for the item, and of the share of common cells for others."""
        experiment = parsed(fields)
        server = mechanism(experiment)
        alone = np.eye(experiment.domain)
        weights, constant = server.weights(alone, [1.0] * len(server.strata))
        w, law = weights[-1], server.law(alone)[-1]
        sketch = server.sketch
        items = (
            server.pieces(range(experiment.domain))[:, -1]
            if "alphabet" in fields
            else range(experiment.domain)
        )
        cells = np.array([sketch.cells(items, row) for row in range(sketch.hashes)])
        common = (cells[:, :, None] == cells[:, None, :]).mean(axis=0)
        expected = (common - 1 / sketch.width) * sketch.width / (sketch.width - 1)
        np.testing.assert_allclose(law.T @ w / law.sum(axis=0)[:, None] + constant, expected, atol=1e-9)

    def test_items_share_cells_as_often_as_chance_predicts(self):
        """With 4,096 functions and 40 pairs, a mean is 7 standard deviations off with probability 1e-10."""
        sketch = hcms.Sketch(4096, 64, 3 << 28)
        rng = np.random.default_rng(2)
        a, b = rng.integers(0, 1 << 20, (2, 40))
        hits = np.mean([sketch.cells(a, row) == sketch.cells(b, row) for row in range(4096)], axis=0)
        assert np.abs(hits - 1 / 64).max() < 7 * math.sqrt(1 / 64 * 63 / 64 / 4096)

    def test_recovers_a_fleets_shares(self):
        """With 300,000 reports, each share is within 7 standard errors including collisions (else 3e-12)."""
        experiment = parsed(
            HCMS | {"type": "text", "salt": "s", "slots": 1 << 14, "hashes": 64, "width": 4096}
        )
        server = hcms.HadamardSketch(experiment)
        items = np.array([experiment.bucket(word) for word in ("a", "b", "c", "d")])
        shares = [0.5, 0.3, 0.15, 0.05]
        rng = np.random.default_rng(3)
        codes = server.draw(rng.choice(items, 300_000, p=shares), rng)
        estimated = estimate(experiment, np.bincount(codes, minlength=experiment.code_count))
        off = (estimated.frequencies[items] - shares) / estimated.stderr[items]
        assert np.abs(off).max() < 7
        assert estimated.approximate


def fleets_held(domain: int, fleets: int, **sketch: int) -> tuple[int, int]:
    """Return the number of fleets whose 95% intervals cover a value's share, and the number by noise alone.

    Each fleet has a million reports at ε = 1, and its own order of the population's values. The value is
    drawn anew as well, so fleets are independent of each other.
    """
    experiment = parsed(HCMS | {"type": "number", "low": 0, "high": 1000, "bins": domain} | sketch)
    server = hcms.HadamardSketch(experiment)
    rng, hits = np.random.default_rng(5), np.zeros(2, int)
    shapes = [1 / np.arange(1.0, domain + 1), np.ones(domain), np.eye(domain)[0] * 99 + 1 / domain]
    for number in range(fleets):
        population = rng.permutation(shapes[number % 3] / shapes[number % 3].sum())
        value = int(rng.integers(domain))
        counts = rng.multinomial(1_000_000, server.code_law(population))
        decoded = server.decode(counts)
        share, spread = decoded.frequencies[value], decoded.frequency_spread.variance[value]
        bias = decoded.mean_square_bias(np.eye(domain)[:, [value]])[0]
        errors = np.sqrt([spread, spread - bias])
        hits += abs(share - population[value]) <= 1.96 * errors
    return int(hits[0]), int(hits[1])


class TestIntervals:
    def test_include_collisions_of_fixed_hash_functions(self):
        """If each of 1,500 intervals covers with 94%, fewer than `least` cover with probability 1e-10."""
        hits, by_noise = fleets_held(64, 1500, hashes=4, width=32)
        least = int(np.searchsorted(special.bdtr(np.arange(1501), 1500, 0.94), 1e-10))
        assert hits >= least
        assert by_noise < 0.7 * 1500 < least

    def test_include_collisions_with_many_values(self):
        """The shortcut for many values gives 0.9 to 1.5 times the general errors."""
        experiment = parsed(HCMS | {"type": "number", "low": 0, "high": 1000, "bins": 2100, "hashes": 8})
        server = hcms.HadamardSketch(experiment)
        population = 1 / np.arange(1.0, 2101)
        rng = np.random.default_rng(6)
        counts = rng.multinomial(1_000_000, server.code_law(population / population.sum()))
        general = Decoded(server, server.collapse(counts))
        short = server.decode(counts).frequency_spread
        ratio = np.sqrt(short.variance / general.frequency_spread.variance)
        assert 0.9 < np.sqrt(np.mean(ratio**2)) < 1.5
        np.testing.assert_allclose(
            server.bias(np.eye(2100), [1.0]), Mechanism.bias(server, np.eye(2100), [1.0]), atol=1e-9
        )

    def test_keep_the_common_error_of_pooled_versions(self):
        experiment = parsed(HCMS | {"type": "number", "low": 0, "high": 1000, "bins": 64, "hashes": 4})
        server = hcms.HadamardSketch(experiment)
        counts = np.random.default_rng(7).multinomial(10**8, server.code_law(np.eye(64)[3]))
        text = estimate(experiment, counts)
        both = pool([text, text])
        assert both.approximate
        np.testing.assert_allclose(both.stderr, text.stderr)


class TestFragmentPuzzle:
    def test_recovers_words(self):
        """Three words of 200,000 boards at ε = 4 each exceed 20 standard errors of their pieces."""
        fields = {"alphabet": "abcdefgh", "length": 6, "hashes": 16, "width": 4096}
        experiment = parsed(SFP | fields, epsilon=4_000_000)
        server = sfp.FragmentPuzzle(experiment)
        words = ["abcdef", "hgfedc", "cab"]
        rng = np.random.default_rng(4)
        pieces = server.drawable([experiment.bucket(word) for word in words])
        codes = server.draw(pieces[rng.choice(3, 200_000, p=[0.5, 0.3, 0.2])], rng)
        result = discover(experiment, np.bincount(codes, minlength=experiment.code_count))
        assert [(text.text, text.whole) for text in result.texts] == [
            ("abcdef", False),
            ("hgfedc", False),
            ("cab", True),
        ]
        assert [text.share.value for text in result.texts] == pytest.approx([0.5, 0.3, 0.2], abs=0.05)
        assert result.min_share < 0.2

    def test_lists_no_words_in_noise(self):
        """Each of 20 tables of 50,000 uniform codes lists a word with chance 4%, and 11 do with 1e-10."""
        fields = {"alphabet": "abcd", "length": 4, "hashes": 4, "width": 256}
        experiment = parsed(SFP | fields, epsilon=4_000_000)
        rng = np.random.default_rng(8)
        even = np.full(experiment.code_count, 1 / experiment.code_count)
        listed = [discover(experiment, rng.multinomial(50_000, even)).texts for _ in range(20)]
        assert sum(map(bool, listed)) < 11

    def test_rejects_another_alphabet(self):
        experiment = parsed(SFP | {"alphabet": "abc", "length": 2})
        with pytest.raises(
            EstimateError, match="sfp:FragmentPuzzle does not support an alphabet; omit --alphabet"
        ):
            discover(experiment, np.full(experiment.code_count, 10), "a-z")

    def test_shows_letter_outside_the_alphabet_as_a_dot(self):
        experiment = parsed(SFP | {"alphabet": "abcdnot", "length": 6})
        index = experiment.bucket("don't")
        assert sfp.FragmentPuzzle(experiment).word(index) == "don·t"

    def test_maps_unknown_characters_to_a_single_code(self):
        experiment = parsed(SFP | {"alphabet": "abc", "length": 2})
        assert experiment.domain == 16
        words = {"": 0, "a": 1, "ab": 1 + 2 * 4, "abc": 1 + 2 * 4, "z": 0, "zc": 3 * 4, "ä": 0, "a\n": 1}
        assert {word: experiment.bucket(word) for word in words} == words
        with pytest.raises(TypeError):
            experiment.bucket(b"ab")


class TestCheck:
    @pytest.mark.micropython
    @pytest.mark.parametrize("word", WORDS.values())
    def test_accepts_both_mechanisms(self, word):
        """Check their examples' privacy, distribution and draws, and the intervals of shares of values."""
        find_runtime()  # installs a runtime, which the check uses as well
        findings = {finding.name: finding for finding in check.check(word)}
        left = {name: finding.words for name, finding in findings.items() if finding.holds is not True}
        if word == HCMS["mechanism"]:
            assert not left
            assert findings["unbiased"].words.startswith("approximate: off by at most ")
        else:
            assert left == dict.fromkeys(("unbiased", "short ways", "covered"), "it answers discovery")

    @refusals(
        (HCMS | {"width": 6}, "width must be a power of 2"),
        (
            HCMS | {"type": "text", "salt": "s", "slots": 256, "prefixes": [1, 2, 3, 4]},
            "hcms supports at most 16777216 values",
        ),
        (HCMS | {"hashes": 0}, "hashes must be an integer from 1"),
        (SFP | {"alphabet": "aa", "length": 2}, "alphabet must be 2 to 64 different characters"),
        (SFP | {"alphabet": "ab", "length": 3}, "length must be even"),
        (SFP | {"alphabet": "ab", "length": 2, "weights": [1]}, "weights must be a list of 2"),
        (SFP | {"type": "bool"}, "sfp supports only the type letters"),
        call=parsed,
        error=ExperimentRefused,
    )
    def test_rejects_invalid_experiment(self, refusal: Refusal):
        refusal.check()
