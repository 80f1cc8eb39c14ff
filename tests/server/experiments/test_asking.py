"""What an experiment can be asked follows from its type and its mechanism."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from experiments import experiment_json, number_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.experiments.asking import answers_of


def of_type(**fields: Any) -> Experiment:
    """No more than answers_of() may look at: above all no domain."""
    return cast(Experiment, SimpleNamespace(**fields))


def test_a_number_answers_what_its_mechanism_does():
    assert answers_of(Experiment.parse(number_json(8))) == {"frequencies", "ranges", "quantiles", "mean"}


@pytest.mark.parametrize("fields", [{}, {"type": "choice", "labels": ["a", "b"], "mechanism": "grr"}])
def test_labels_have_no_order_and_so_neither_quantiles_nor_a_mean(fields: dict[str, Any]):
    assert answers_of(Experiment.parse(experiment_json(**fields))) == {"frequencies", "ranges"}


def test_texts_and_pairs_are_asked_in_their_own_ways_whatever_their_mechanism():
    assert answers_of(of_type(type="text", mechanism="olh")) == {"candidates"}
    assert answers_of(of_type(type="text", mechanism="prefix")) == {"discovery"}
    assert answers_of(of_type(type="pair", mechanism="hh")) == {"pairs"}
