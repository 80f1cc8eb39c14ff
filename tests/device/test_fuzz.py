"""Arbitrary input raises only documented exceptions, never hangs, and is never accepted if invalid.

Hypothesis makes the draws in support/fuzz_inputs.py and shrinks a failure to the smallest input. The long
form, benchmarks/fuzz.py, makes millions.
"""

from random import Random

import fuzz_inputs as fuzz
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hushmote.server.experiments import definition as experiment
from hushmote.server.experiments.reading import DefinitionError
from hushmote.server.store import Store


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "examples"),
    [*zip(fuzz.PURE, (150, 100, 250, 250, 75, 75), strict=True)],
    ids=[target.name for target in fuzz.PURE],
)
def test_raises_only_documented_exceptions(target, examples):
    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(st.randoms(use_true_random=False))
    def check(rng):
        fuzz_input = target.make(rng)
        with fuzz.no_hang():
            target.check(fuzz_input)

    check()


@pytest.mark.slow
def test_counts_or_rejects_every_message_by_format(tmp_path):
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
        path = fuzz.Ingest(store)

        @settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
        @given(st.randoms(use_true_random=False))
        def check(rng):
            messages = fuzz.make_messages(rng)
            with fuzz.no_hang():
                path.check(messages)

        check()
        rng = Random(1)  # noqa: S311
        for _ in range(50):
            path.check(fuzz.make_messages(rng))
        path.check_store()
        assert path.accepted > 100
        assert path.rejected > 100


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("bins = 1e-999999999", "write 0, or a number from 1e-30 to 1e30"),  # once: minutes, and all memory
        ("bins = 1e99999999999999999999", "write 0, or a number"),
        ("bins = " + "9" * 5000, "thousands of digits"),
        ("bins = " + "[" * 5000, "nested too deeply"),
        ('"a\\nb" = 1\nowner = 1', None),
        (f"low = {'9' * 4200}", None),
    ],
    ids=["tiny number", "huge number", "5000 digits", "5000 brackets", "newline in key", "4200 digits"],
)
def test_rejects_absurd_definition_in_one_line(text, match):
    with fuzz.no_hang(), pytest.raises(DefinitionError, match=match) as caught:
        experiment.parse(text)
    assert "\n" not in str(caught.value)
