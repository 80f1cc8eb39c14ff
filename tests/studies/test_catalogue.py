"""Studies' parameters as options of the command line."""

import pytest

from hushmote.studies import catalogue


@pytest.mark.parametrize(
    ("study", "name", "text"),
    [
        ("scale", "boards", ""),  # required
        ("scale", "stay", ""),
        ("arrival", "spread", ""),  # depends on the boards
        ("scale", "every", "1w"),
        ("scale", "region", "0.1"),
        ("curves", "totals", "1,2,5,10"),
        ("curves", "delta", "1e-06"),
    ],
)
def test_defaults_are_shown_as_typed(study: str, name: str, text: str):
    assert catalogue.default(catalogue.model(study).model_fields[name]) == text
