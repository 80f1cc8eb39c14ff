"""Mechanism descriptions, section by section, from their docstrings."""

import pytest
from experiments import experiment_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.mechanisms import MECHANISMS, mechanism_of
from hushmote.server.mechanisms.about import about, plain_description
from hushmote.server.mechanisms.direct import Direct


@pytest.mark.parametrize("word", MECHANISMS)
def test_every_mechanism_has_all_sections(word: str):
    description = about(MECHANISMS[word])
    for part in (
        description.what,
        description.privacy,
        description.utility,
        description.cost,
        description.auto,
        description.citation,
    ):
        assert part
        assert "\n" not in part
        for other in ("Privacy:", "Utility:", "Cost:", "Auto:", "Citation:"):
            assert other not in part
    assert not description.what.startswith(word)


class WithSections(Direct):
    """The first sentence.

    A second paragraph, which is not shown. Privacy: of the coin. Utility:
    low. Citation: none.
    """


class WithoutSections(Direct):
    """Only one sentence."""


def test_sections_come_from_class_or_module():
    description = about(WithSections)
    assert description.what == "The first sentence."
    assert (description.privacy, description.utility, description.cost, description.citation) == (
        "of the coin.",
        "low.",
        "",
        "none.",
    )
    assert about(WithoutSections).what == "Only one sentence."
    assert about(WithoutSections).citation == ""


@pytest.mark.parametrize(
    ("docstring", "what"),
    [
        ("coin: the value, or the result of a coin.", "The value, or the result of a coin."),
        ("A shuffled bucketing: each bucket is equally likely.", None),
    ],
)
def test_definition_omits_the_name_before_it(docstring: str, what: str | None):
    """A beginning of 20 letters or more is not a mechanism's name."""
    mechanism = type("Named", (Direct,), {"__doc__": docstring, "__module__": __name__})
    assert about(mechanism).what == (what or docstring)


@pytest.mark.parametrize("word", MECHANISMS)
def test_plain_description_is_a_sentence(word: str):
    for fields in MECHANISMS[word].examples:
        experiment = Experiment.parse(experiment_json(**fields, budget={"rule": "unlimited"}))
        description = plain_description(mechanism_of(experiment))
        assert description[0].isupper()
        assert description.endswith(".")
