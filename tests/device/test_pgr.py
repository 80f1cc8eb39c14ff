"""pgr on the board: every branch's exact probability, compared with points counted one by one.

tests/contracts/test_epsilon.py proves its privacy at every ε.
"""

from fractions import Fraction
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest
from enumeration import distribution, exp_below
from experiments import number_json
from refusals import Refusal, refusals

from hushmote.device.ldp_client import ONE, Experiment, ExperimentRefused
from hushmote.device.ldp_pgr import Points

EPSILON = 2_000_000
# Complete and partial spaces: lines, planes and more, with one value on top, or all but one.
SHAPES = ((2, 3), (2, 4), (2, 7), (2, 16), (3, 4), (3, 5), (3, 12), (3, 13), (5, 6), (5, 20), (5, 31), (7, 9))
each_shape = pytest.mark.parametrize(("q", "domain"), SHAPES)


def points(q: int, digits: int) -> list[tuple[int, ...]]:
    """Return the vectors, lowest digit first, whose highest nonzero digit is 1, in numerical order."""
    every = (tuple(reversed(v)) for v in product(range(q), repeat=digits))
    return [v for v in every if any(v) and [x for x in v if x][-1] == 1]


def parse(q: int, domain: int, epsilon: int = 1_000_000, **more) -> Experiment:
    return Experiment.parse(number_json(domain, mechanism="pgr", q=q, epsilon=epsilon, **more))


def level_of(experiment: Experiment) -> Points:
    return cast(Any, experiment).points


class TestDraws:
    @pytest.mark.parametrize(("q", "domain"), [(3, 11), (53, 1024), (4093, 100_000), (2, 1 << 20)])
    def test_do_not_depend_on_value_or_side(self, q: int, domain: int) -> None:
        exp = parse(q, domain, 4_000_000)
        bounds = set()
        for index in (0, 1, q, q + 1, domain // 2, domain - 1):
            for truthful in (True, False):
                calls: list[tuple[str, int]] = []

                def below(n, calls=calls):
                    calls.append(("below", n))
                    return n - 1

                def bernoulli(n, calls=calls, truthful=truthful):
                    calls.append(("bernoulli", n))
                    return truthful

                code = exp.randomize(
                    min(index, domain - 1), SimpleNamespace(below=below, bernoulli=bernoulli)
                )
                assert 0 <= code < exp.code_count
                bounds.add(tuple(calls))
        outside = level_of(exp).outside
        assert bounds == {
            (("bernoulli", level_of(exp).threshold), ("below", outside - 1), ("below", outside))
        }


class TestParameters:
    @refusals(
        (1, 9, 1_000_000, "q must be an integer from 2 to 4096"),
        (4099, 9, 1_000_000, "q must be an integer from 2 to 4096"),
        ("3", 9, 1_000_000, "q must be an integer from 2 to 4096"),
        (None, 9, 1_000_000, "q is missing"),
        (9, 9, 1_000_000, "q must be a prime"),
        (4093, 1 << 24, 1_000_000, "more than 16777216 codes"),
        (2, 1 << 24, 1_000_000, "more than 16777216 codes"),
        call=parse,
        error=ExperimentRefused,
    )
    def test_rejects_invalid_values(self, refusal: Refusal):
        refusal.check()

    def test_has_only_q(self) -> None:
        with pytest.raises(ExperimentRefused, match="unknown field g"):
            parse(3, 9, g=3)
        assert parse(4093, 4093**2 + 4093 + 1).code_count == 4093**2 + 4093 + 1


class TestCodes:
    @each_shape
    def test_have_exactly_their_sides_probability(self, q: int, domain: int) -> None:
        exp = parse(q, domain, EPSILON)
        digits = next(t for t in range(2, 9) if len(points(q, t)) >= domain)
        every = points(q, digits)
        assert exp.code_count == len(every)
        inside = sum(1 for code in every if code[0] == 0)
        outside = len(every) - inside
        threshold = level_of(exp).threshold
        assert Fraction(threshold, ONE) <= inside * exp_below(EPSILON) / (
            inside * exp_below(EPSILON) + outside
        )
        chances = Fraction(threshold, ONE * inside), Fraction(ONE - threshold, ONE * outside)
        for index, value in zip(range(domain), every, strict=False):
            sides = [sum(a * b for a, b in zip(value, code, strict=True)) % q != 0 for code in every]
            exact = distribution(lambda rng, i=index: exp.randomize(i, rng))
            assert exact == {code: chances[side] for code, side in enumerate(sides)}

    @each_shape
    def test_any_two_values_share_equally_many(self, q: int, domain: int) -> None:
        exp = parse(q, domain)
        every = points(q, level_of(exp).t)
        sides = [{i for i, c in enumerate(every) if not sum(map(int.__mul__, v, c)) % q} for v in every]
        shared_counts = {len(a & b) for n, a in enumerate(sides) for b in sides[:n]}
        assert {len(side) for side in sides} == {level_of(exp).inside}
        assert shared_counts == {(level_of(exp).inside - 1) // q}

    def test_begin_at_the_levels_offset(self) -> None:
        level = Points(1_000_000, 10, 3, 100, 5)
        for node in range(10):
            assert set(distribution(lambda rng, node=node: level.respond(node, rng))) == set(range(100, 113))
        assert (level.weight, level.offset) == (5, 100)

    @pytest.mark.parametrize(("q", "domain"), [(2, 3), (2, (1 << 24) - 1), (4093, 4094), (4093, 16_000_000)])
    def test_are_likelier_inside_even_at_smallest_epsilon(self, q: int, domain: int) -> None:
        level = level_of(parse(q, domain, 1_000))
        assert level.threshold * level.outside > (ONE - level.threshold) * level.inside
