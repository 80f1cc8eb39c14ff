"""Prefix levels on the board: each report has one level's slot, and draws do not depend on the reading.

tests/contracts/test_epsilon.py proves privacy, and test_privacy.py proves it for report().
"""

from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from enumeration import distribution
from experiments import experiment_json
from refusals import Refusal, refusals

from hushmote.device.ldp_client import DRBG, Experiment, ExperimentRefused

TEXTS: tuple[Any, ...] = (None, "", "a", "ab", "ab\0", "abcdefgh", "ä" * 200, b"\xff\xfe", "\ud800")
SMALL = {"slots": 4, "prefixes": [1, 2, 2], "q": 2, "weights": [1, 2, 3]}
LARGE = {"slots": 1 << 16, "prefixes": [2, 3, 4, 5, 6, 6], "q": 53, "weights": [1, 2, 2, 2, 2, 4]}


def prefix_json(**changes: Any) -> bytes:
    fields = {"type": "text", "salt": "pepper", "mechanism": "prefix", "budget": {"rule": "unlimited"}}
    return experiment_json(**fields | changes)


def exact(payload: bytes, index: int | None) -> dict[int, Fraction]:
    experiment = Experiment.parse(payload)
    return distribution(lambda rng: experiment.randomize(index, rng))


def test_report_reveals_slot_of_one_level_only():
    """Levels have exactly their weights, and each has pgr's distribution over its slots."""
    experiment = Experiment.parse(prefix_json(**SMALL))
    assert [level.weight for level in experiment.levels] == [1, 2, 3]
    for index in (0, 1, 6, 27, 63):
        expected: Counter[int] = Counter()
        for number, level in enumerate(experiment.levels):
            alone = distribution(lambda rng, slot=index // 4**number % 4, x=level: x.respond(slot, rng))
            expected.update({code: chance * level.weight / 6 for code, chance in alone.items()})
        assert exact(prefix_json(**SMALL), index) == expected
    ends = [level.offset + level.code_count for level in experiment.levels]
    assert [0, *ends] == [*(level.offset for level in experiment.levels), experiment.code_count]


class _Counting:
    """A random source that records its calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self._drbg = DRBG(b"0" * 32)

    def bernoulli(self, threshold: int) -> bool:
        self.asked.append(("bernoulli", threshold))
        return self._drbg.bernoulli(threshold)

    def below(self, n: int) -> int:
        self.asked.append(("below", n))
        return self._drbg.below(n)


def test_draws_do_not_depend_on_reading():
    experiment = Experiment.parse(prefix_json(**LARGE, epsilon=4_000_000))
    assert experiment.domain == (1 << 16) ** 6
    assert (experiment.code_count, experiment.code_bytes) == (910_440, 3)
    seen = set()
    for text in TEXTS:
        rng = _Counting()
        for _ in range(20):
            assert 0 <= experiment.randomize(experiment.bucket(text), rng) < experiment.code_count
        seen.add(tuple(rng.asked))
    assert len(seen) == 1
    with pytest.raises(ValueError, match="bad index"):
        experiment.randomize(experiment.domain, DRBG(b"0" * 32))


@refusals(
    ({"prefixes": None}, "prefix requires a text with prefixes"),
    (
        {"type": "bool", "salt": None, "slots": None, "prefixes": None},
        "prefix requires a text with prefixes",
    ),
    ({"q": None}, "q is missing"),
    ({"q": 4}, "q must be a prime"),
    ({"q": 1}, "q must be an integer from 2 to"),
    ({"weights": [1, 2]}, "weights must be a list of 3 integers from 1 to 65535"),
    ({"weights": [1, 0, 2]}, "weights must be a list of 3 integers from 1 to 65535"),
    ({"g": 3}, "unknown field g"),
    ({"slots": 1 << 20, "q": 7}, "more than 16777216 codes"),
    call=lambda changes: Experiment.parse(prefix_json(**SMALL | changes)),
    error=ExperimentRefused,
)
def test_rejects_invalid_experiment(refusal: Refusal):
    refusal.check()


def test_weights_default_to_equal():
    fields = SMALL | {"weights": None}
    assert {level.weight for level in Experiment.parse(prefix_json(**fields)).levels} == {1}


def test_all_slots_of_all_levels_fit_in_an_index():
    """The widest case has 16 levels of 2**20 slots; for most q, these have too many codes."""
    experiment = Experiment.parse(prefix_json(slots=2, prefixes=[1] * 16, q=2))
    indices = {experiment.bucket(bytes([a, b])) for a, b in product(range(40), range(2))}
    assert len(indices) == 40
    assert all(index is not None and 0 <= index < 1 << 16 for index in indices)
    assert experiment.domain == 1 << 16
