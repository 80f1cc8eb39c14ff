"""Descriptions of mechanisms, part by part, from their own files."""

import pytest
from experiments import experiment_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.mechanisms import MECHANISMS, mechanism_of
from hushmote.server.mechanisms.about import about, plain_description
from hushmote.server.mechanisms.direct import Direct


@pytest.mark.parametrize("word", MECHANISMS)
def test_every_mechanism_has_all_parts(word: str):
    said = about(MECHANISMS[word])
    for part in (said.what, said.privacy, said.utility, said.cost, said.auto, said.citation):
        assert part
        assert "\n" not in part
        for other in ("Privacy:", "Utility:", "Cost:", "Auto:", "Citation:"):
            assert other not in part
    assert not said.what.startswith(word)


class Said(Direct):
    """The first sentence.

    More of it, which is not shown. Privacy: of the coin. Utility:
    low. Citation: none.
    """


class Silent(Direct):
    """Nothing but this."""


def test_parts_come_from_class_or_file():
    said = about(Said)
    assert said.what == "The first sentence."
    assert (said.privacy, said.utility, said.cost, said.citation) == ("of the coin.", "low.", "", "none.")
    assert about(Silent).what == "Nothing but this."
    assert about(Silent).citation == ""


@pytest.mark.parametrize("word", MECHANISMS)
def test_plain_description_is_a_sentence(word: str):
    """What the page's plan says of it."""
    for fields in MECHANISMS[word].examples:
        experiment = Experiment.parse(experiment_json(**fields, budget={"rule": "unlimited"}))
        said = plain_description(mechanism_of(experiment))
        assert said[0].isupper()
        assert said.endswith(".")
