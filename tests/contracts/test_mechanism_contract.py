"""What every mechanism of the registry must keep, on the small experiments that it names itself.

A new mechanism is tested by its line in the registry. Each statistical test has a chance of a false alarm of
1e-11 for each of the 26 experiments, or a few times that where it says so.
"""

import json
import math
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from enumeration import assert_private, distribution, worst_ratio
from experiments import experiment_json
from scipy import stats

from hushmote.device.ldp_client import Experiment
from hushmote.server.arrays import Counts, Floats
from hushmote.server.estimate import estimate, plausibility
from hushmote.server.experiments.payload import at_epsilon
from hushmote.server.mechanisms import MECHANISMS, Mechanism, mechanism_of
from hushmote.server.mechanisms.decoded import Decoded
from hushmote.server.mechanisms.mechanism import Weights
from hushmote.server.privacy import audit
from hushmote.simulator import vectorised

FALSE_ALARM = 1e-11
EPSILONS = (500_000, 2_000_000)
VECTORS = json.loads((Path(__file__).parents[1] / "vectors.json").read_text(encoding="ascii"))


def experiments() -> Iterator[Experiment]:
    for word, mechanism in MECHANISMS.items():
        for fields, epsilon in product(mechanism.examples, EPSILONS):
            if fields["mechanism"] == word:
                budget = {"rule": "unlimited"}
                yield Experiment.parse(experiment_json(**fields, epsilon=epsilon, budget=budget))


EXPERIMENTS = tuple(experiments())
each_experiment = pytest.mark.parametrize(
    "experiment", EXPERIMENTS, ids=lambda e: f"{e.mechanism}-{e.domain}-{e.epsilon // 100_000 / 10:g}"
)


@cache
def enumerated(experiment: Experiment) -> dict[Any, dict[int, Any]]:
    """Exact chances of the shipped board code's codes, for every index and for no reading."""
    return {
        index: distribution(lambda rng, i=index: experiment.randomize(i, rng))
        for index in (None, *range(experiment.domain))
    }


def dense(experiment: Experiment, index: int | None) -> Floats:
    chances = np.zeros(experiment.code_count)
    for code, chance in enumerated(experiment)[index].items():
        chances[code] = float(chance)
    return chances


def fleet(experiment: Experiment, reports: int, seed: int) -> tuple[Floats, Counts]:
    """A population with common and rare values, and the histogram of a fleet drawn from it."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1, experiment.domain + 1, dtype=float)
    shares /= shares.sum()
    return shares, vectorised.histogram(experiment, rng.multinomial(reports, shares), rng)


def test_every_entry_names_its_experiments():
    for word in MECHANISMS:
        assert sum(e.mechanism == word for e in EXPERIMENTS) >= 2, f"{word} has no examples"


@each_experiment
def test_no_code_is_likelier_than_epsilon_allows_and_the_odds_are_exact(experiment: Experiment):
    every = enumerated(experiment)
    assert_private(every, experiment.epsilon)
    readings = {index: chances for index, chances in every.items() if index is not None}
    worst = worst_ratio(readings)
    assert worst is not None
    mechanism = mechanism_of(experiment)
    assert mechanism.odds == pytest.approx(float(worst), rel=1e-9)
    assert audit.exact_epsilon(experiment) == pytest.approx(math.log(worst), rel=1e-9)
    assert audit.exact_epsilon(experiment) <= experiment.epsilon / 1e6


@each_experiment
def test_the_law_is_the_distribution_of_the_boards_codes(experiment: Experiment):
    mechanism = mechanism_of(experiment)
    for index in range(experiment.domain):
        alone = np.eye(experiment.domain)[index]
        np.testing.assert_allclose(mechanism.code_law(alone), dense(experiment, index), atol=1e-12)
        assert audit.channel(experiment, index) == pytest.approx(dense(experiment, index), abs=1e-12)
    even = np.full(experiment.domain, 1 / experiment.domain)
    np.testing.assert_allclose(mechanism.code_law(even), dense(experiment, None), atol=1e-12)


@each_experiment
def test_strata_runs_and_classes_are_what_they_say(experiment: Experiment):
    """Chances of strata and runs are the same for all readings; codes of a class are equally likely."""
    mechanism = mechanism_of(experiment)
    assert sum(mechanism.drawn) == pytest.approx(1)
    covered = [code for s in mechanism.strata for code in range(s.first, s.first + s.codes)]
    assert covered == list(range(experiment.code_count))
    numbered = mechanism.expand(
        [np.arange(len(size)) + 10_000.0 * i for i, size in enumerate(mechanism.class_sizes)]
    )
    for index in range(experiment.domain):
        chances = dense(experiment, index)
        for stratum in mechanism.strata:
            runs = chances[stratum.first : stratum.first + stratum.codes].reshape(stratum.runs, -1)
            np.testing.assert_allclose(runs.sum(axis=1), stratum.chance / stratum.runs, atol=1e-12)
        for number in np.unique(numbered):
            assert np.ptp(chances[numbered == number]) < 1e-12
    assert len(np.unique(numbered)) == mechanism.class_count
    counts = np.random.default_rng(1).integers(0, 9, experiment.code_count)
    for part, size in zip(mechanism.collapse(counts), mechanism.class_sizes, strict=True):
        assert part.shape == size.shape
    assert sum(int(part.sum()) for part in mechanism.collapse(counts)) == counts.sum()
    code = int(np.argmax(counts))
    alone = np.zeros_like(counts)
    alone[code] = 1
    assert mechanism.expand(mechanism.collapse(alone))[code] == 1


@each_experiment
def test_weights_are_without_bias_and_the_law_has_its_transpose(experiment: Experiment):
    mechanism = mechanism_of(experiment)
    rng = np.random.default_rng(2)
    reports = [float(rng.integers(9, 99)) if chance else 0.0 for chance in mechanism.drawn]
    statistic = np.eye(experiment.domain)
    weights, constant = mechanism.weights(statistic, reports)
    mean = np.zeros_like(statistic) + constant
    for w, law in zip(weights, mechanism.law(statistic), strict=True):
        mean += law.T @ w if w is not None else 0.0
    np.testing.assert_allclose(mean, statistic, atol=1e-9)

    numbers = [rng.normal(size=len(size)) for size in mechanism.class_sizes]
    for turned in (mechanism.law_transposed(numbers), Mechanism.law_transposed(mechanism, numbers)):
        for index, law in enumerate(zip(*(part.T for part in mechanism.law(statistic)), strict=True)):
            expected = sum(n @ one for n, one in zip(numbers, law, strict=True))
            assert turned[index] == pytest.approx(expected, abs=1e-12)


@each_experiment
def test_short_ways_agree_with_the_general_one(experiment: Experiment):
    """Beliefs, odds, values and moments: what a mechanism overrides is what follows from law and weights."""
    mechanism = mechanism_of(experiment)
    shares, counts = fleet(experiment, 3000, 3)
    np.testing.assert_allclose(mechanism.lift(shares), Mechanism.lift(mechanism, shares), rtol=1e-9)
    general_odds = Mechanism.odds.fget
    assert general_odds is not None
    assert mechanism.odds == pytest.approx(general_odds(mechanism), rel=1e-9)
    short, general = mechanism.decode(counts), Decoded(mechanism, mechanism.collapse(counts))
    assert short.reports == general.reports
    np.testing.assert_allclose(short.frequencies, general.frequencies, atol=1e-9)
    for a, b in (
        (short.frequency_spread, general.frequency_spread),
        (short.cdf_spread, general.cdf_spread),
    ):
        np.testing.assert_allclose(a.variance, b.variance, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(a.skew, b.skew, rtol=1e-6, atol=1e-9)
    statistic = np.random.default_rng(4).normal(size=(experiment.domain, 3))
    np.testing.assert_allclose(short.value(statistic), general.value(statistic), atol=1e-9)
    spreads = short.spread(statistic), general.spread(statistic)
    np.testing.assert_allclose(spreads[0].variance, spreads[1].variance, rtol=1e-9)


@pytest.mark.parametrize("word", MECHANISMS)
def test_vectors_hold_codes_of_it_that_the_board_draws(word: str):
    by_key = {
        case["sha256"][:8]: Experiment.parse(case["payload"].encode()) for case in VECTORS["experiments"]
    }
    cases = [case for case in VECTORS["codes"] if by_key[case["experiment"]].mechanism == word]
    assert len(cases) >= 4
    for case in cases:
        experiment = by_key[case["experiment"]]
        script = iter(case["draws"])
        scripted = SimpleNamespace(
            below=lambda n, script=script: _next(script, "below", n),
            bernoulli=lambda threshold, script=script: bool(_next(script, "bernoulli", threshold)),
        )
        assert experiment.randomize(case["index"], scripted) == case["code"]
        assert not list(script)


def _next(script: Iterator[list[Any]], primitive: str, argument: int) -> int:
    name, number, outcome = next(script)
    assert (name, number) == (primitive, argument)
    return outcome


@each_experiment
def test_simulated_codes_follow_the_law_and_honest_fleets_raise_no_alarm(experiment: Experiment):
    """100,000 reports; chi-square over codes that expect 5 or more, p below 1e-11 by chance that often."""
    mechanism = mechanism_of(experiment)
    shares, counts = fleet(experiment, 100_000, 5)
    expected = 100_000 * mechanism.code_law(shares)
    assert not counts[expected == 0].any()
    often = expected >= 5
    statistic = float(((counts - expected)[often] ** 2 / expected[often]).sum())
    assert stats.chi2.sf(statistic, int(often.sum())) > FALSE_ALARM
    assert not plausibility.check(experiment, counts).implausible


@each_experiment
def test_an_audit_of_what_it_draws_finds_it_private(experiment: Experiment):
    """20,000 draws of each input in each half; four bounds and a fit, each wrong by chance 1e-11."""
    audited = audit.Subject(experiment, b"", False, (0, 1), (0, experiment.domain - 1))
    rng = np.random.default_rng(6)

    def tally(index: int) -> dict[int, int]:
        drawn = vectorised.codes(experiment, np.full(20_000, index), rng)
        codes, numbers = np.unique(drawn, return_counts=True)
        return dict(zip(codes.tolist(), numbers.tolist(), strict=True))

    first, last = audited.indices
    halves = ((tally(first), tally(last)), (tally(first), tally(last)))
    finding = audit.judge(audited, "numpy", halves, FALSE_ALARM)
    assert finding.private
    assert finding.lower <= finding.exact <= finding.nominal
    assert finding.fit > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS[1::2], ids=lambda e: f"{e.mechanism}-{e.domain}")
def test_intervals_cover_the_population(experiment: Experiment):
    """400 fleets of 2,000 reports: 95 % intervals of a range, taken to cover 93 % at least.

    Each fleet hits with that chance or more, so that fewer hits than the bound come by chance 1e-11.
    """
    least = int(stats.binom.ppf(FALSE_ALARM, 400, 0.93))
    shares, _ = fleet(experiment, 1, 7)
    high = max(1, experiment.domain // 2)
    truth = float(shares[:high].sum())
    hits = 0
    for seed in range(400):
        _, counts = fleet(experiment, 2000, 1000 + seed)
        low_end, high_end = estimate(experiment, counts).range(0, high).interval(0.95)
        hits += low_end <= truth <= high_end
    assert hits >= least


@each_experiment
def test_it_has_words_and_known_answers(experiment: Experiment):
    mechanism = mechanism_of(experiment)
    assert mechanism.words().startswith(experiment.mechanism)
    again = at_epsilon(experiment, experiment.epsilon)
    assert mechanism_of(again).fields() == mechanism.fields()
    assert (again.code_count, again.weight_sum) == (experiment.code_count, experiment.weight_sum)
    assert mechanism.answers
    assert mechanism.answers <= {"frequencies", "ranges", "quantiles", "mean"}


class SquareWave(Mechanism):
    """A mechanism of another kind: codes around the value are likelier; no levels, no seeds, no cells."""

    answers = frozenset({"mean"})
    reach = 2

    def _chances(self) -> Floats:
        odds = math.exp(self.experiment.epsilon / 1e6)
        near = np.zeros((self.experiment.code_count, self.domain))
        for value in range(self.domain):
            near[value : value + 2 * self.reach + 1, value] = 1
        chances = 1 + (odds - 1) * near
        return chances / chances.sum(axis=0)

    def law(self, shares: Floats) -> list[Floats]:
        return [self._chances() @ shares]

    def weights(self, statistic: Floats, reports: Any) -> Weights:
        chances = self._chances()
        scaled = chances / chances.mean(axis=1, keepdims=True)
        return [scaled @ np.linalg.solve(chances.T @ scaled, statistic)], np.zeros(statistic.shape[1])

    def draw(self, indices: Any, rng: np.random.Generator) -> Any:
        ends = np.cumsum(self._chances(), axis=0)[:, indices]
        return (rng.random(len(indices)) > ends).sum(axis=0).astype(np.uint32)


def test_a_mechanism_without_levels_needs_law_weights_and_draw_alone():
    """A mean of 50,000 reports is within 7 of its standard errors: 3e-12 by chance."""
    fields = {"mechanism": "sw", "domain": 16, "code_count": 20, "epsilon": 1_000_000}
    mechanism = SquareWave(cast(Experiment, SimpleNamespace(**fields)))
    positions = np.arange(16.0)[:, None]
    weights, constant = mechanism.weights(positions, [1])
    (w,) = weights
    assert w is not None
    np.testing.assert_allclose(mechanism.law_transposed([w[:, 0]]) + constant, positions[:, 0], atol=1e-9)
    assert mechanism.odds == pytest.approx(math.e)
    assert mechanism.lift(np.full(16, 1 / 16)).max() <= math.e
    rng = np.random.default_rng(8)
    indices = rng.binomial(15, 0.3, 50_000).astype(np.uint32)
    counts = np.bincount(mechanism.draw(indices, rng), minlength=20)
    decoded = mechanism.decode(counts)
    stderr = math.sqrt(float(decoded.spread(positions).variance[0]))
    assert abs(float(decoded.value(positions)[0]) - 15 * 0.3) < 7 * stderr < 1
    assert list(mechanism.invariants(counts)) == []
    assert mechanism.words() == "sw"
