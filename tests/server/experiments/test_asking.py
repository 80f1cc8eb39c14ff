"""What an experiment can be asked follows from its type and its mechanism."""

from typing import Any

import make_vectors as vectors
import pytest
from experiments import experiment_json, number_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.experiments.answerable import answers_of


def test_a_number_answers_what_its_mechanism_does():
    assert answers_of(Experiment.parse(number_json(8))) == {"frequencies", "ranges", "quantiles", "mean"}


@pytest.mark.parametrize("fields", [{}, {"type": "choice", "labels": ["a", "b"], "mechanism": "grr"}])
def test_labels_have_no_quantiles_and_no_mean(fields: dict[str, Any]):
    assert answers_of(Experiment.parse(experiment_json(**fields))) == {"frequencies", "ranges"}


def test_texts_and_pairs_have_answers_of_their_own():
    assert answers_of(Experiment.parse(vectors.TEXTS.encode())) == {"candidates"}
    assert answers_of(Experiment.parse(vectors.PREFIXES.encode())) == {"discovery"}
    assert answers_of(Experiment.parse(vectors.PAIRS[0].encode())) == {"pairs"}
