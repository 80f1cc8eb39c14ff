"""Whatever arrives: only documented exceptions, no hang, nothing accepted that is not valid.

The inputs are those of benchmarks/fuzz.py, whose long form makes millions; here hypothesis makes the choices,
so that what fails is shrunk to the smallest input.
"""

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import fuzz  # pyright: ignore[reportMissingImports]

from hushmote.server.experiments import definition as experiment
from hushmote.server.experiments.reading import DefinitionError
from hushmote.server.store import Store

SETTINGS = {"deadline": None, "suppress_health_check": list(HealthCheck)}


class Drawn(fuzz.Choices):
    """Choices that hypothesis makes and shrinks."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def integer(self, low: int, high: int) -> int:
        return self._data.draw(st.integers(low, high))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "examples"),
    [*zip(fuzz.PURE, (300, 200, 500, 500, 150, 150), strict=True)],
    ids=[target.name for target in fuzz.PURE],
)
def test_only_documented_exceptions_come_out_of(target, examples):
    @settings(max_examples=examples, **SETTINGS)
    @given(st.data())
    def check(data):
        made = target.make(Drawn(data))
        with fuzz.no_hang():
            target.check(made)

    check()


def test_every_message_is_counted_as_its_format_says_or_rejected_by_reason(tmp_path):
    with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as store:
        path = fuzz.Ingest(store)

        @settings(max_examples=60, **SETTINGS)
        @given(st.data())
        def check(data):
            messages = fuzz.make_messages(Drawn(data))
            with fuzz.no_hang():
                path.check(messages)

        check()
        choose = fuzz.Random(1)
        for _ in range(50):
            path.check(fuzz.make_messages(choose))
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
)
def test_a_definition_of_absurd_numbers_or_nesting_is_refused_in_one_line(text, match):
    with fuzz.no_hang(), pytest.raises(DefinitionError, match=match) as caught:
        experiment.parse(text)
    assert "\n" not in str(caught.value)
