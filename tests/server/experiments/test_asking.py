"""The answers that an experiment's type and mechanism allow."""

from typing import Any

import make_vectors as vectors
import pytest
from experiments import experiment_json, number_json

from hushmote.device.ldp_client import Experiment
from hushmote.server.experiments.answerable import answerable_questions


def test_number_answers_what_its_mechanism_supports():
    assert answerable_questions(Experiment.parse(number_json(8))) == {
        "frequencies",
        "ranges",
        "quantiles",
        "mean",
    }


@pytest.mark.parametrize(
    "fields", [{}, {"type": "choice", "labels": ["a", "b"], "mechanism": "grr"}], ids=["bool", "choice"]
)
def test_labels_have_no_quantiles_or_mean(fields: dict[str, Any]):
    assert answerable_questions(Experiment.parse(experiment_json(**fields))) == {"frequencies", "ranges"}


def test_texts_and_pairs_have_their_own_answers():
    assert answerable_questions(Experiment.parse(vectors.TEXTS.encode())) == {"candidates"}
    assert answerable_questions(Experiment.parse(vectors.PREFIXES.encode())) == {"discovery"}
    assert answerable_questions(Experiment.parse(vectors.PAIRS[0].encode())) == {"pairs"}
