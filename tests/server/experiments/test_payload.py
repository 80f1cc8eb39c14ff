"""Experiments that only computations use."""

import pytest

from hushmote.server.experiments.payload import experiment_over


@pytest.mark.parametrize(("domain", "type_"), [(2, "bool"), (3, "number")])
def test_experiment_over_two_values_is_a_yes_or_no(domain: int, type_: str):
    experiment = experiment_over(domain, 1_000_000, {"mechanism": "grr"})
    assert (experiment.type, experiment.domain, experiment.epsilon) == (type_, domain, 1_000_000)
