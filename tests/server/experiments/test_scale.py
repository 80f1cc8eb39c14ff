"""Logarithmic bins in an experiment's file, in its versions, and in the names of its bins."""

import json
import re

import numpy as np
import pytest
from refusals import fails

from hushmote.device import ldp_scale
from hushmote.server.estimate import estimate
from hushmote.server.estimate.pooling import pool
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.experiments import units
from hushmote.server.experiments.answerable import answerable_questions
from hushmote.server.experiments.definition import parse
from hushmote.server.experiments.payload import at_epsilon
from hushmote.server.experiments.reading import MAX_LOG_BINS, DefinitionError
from hushmote.server.wire.experiments import log_edges, parse_experiment
from hushmote.server.words.experiment import readings

FLOW = """name = "flow"
purpose = "p"
owner = "o"
expires = 9999-12-31
type = "number"
unit = "s"
low = 1
high = 1000
bins = 6
scale = "log"
epsilon = 2
[budget]
rule = "sum"
cap = 2
"""
PAIR = FLOW.replace(
    'type = "number"\nunit = "s"\nlow = 1\nhigh = 1000\nbins = 6\nscale = "log"\n', 'type = "pair"\n'
) + (
    '[[of]]\nname = "size"\ntype = "number"\nlow = 1\nhigh = 1000\nbins = 6\nscale = "log"\n'
    '[[of]]\nname = "hot"\ntype = "bool"\n'
)
EXPERIMENT = parse(FLOW).experiment()


def changed(old: str, new: str) -> str:
    assert FLOW.count(old) == 1
    return FLOW.replace(old, new)


class TestDefinition:
    def test_scale_is_sent_to_boards_only_if_set(self):
        assert json.loads(parse(FLOW).payload())["scale"] == "log"
        assert "scale" not in json.loads(parse(changed('scale = "log"\n', "")).payload())

    @pytest.mark.parametrize(
        ("old", "new", "text"),
        [
            ('"log"', '"linear"', "scale must be 'log', not 'linear'"),
            ("low = 1\n", "low = 0\n", 'scale = "log" needs a low above 0, not 0'),
            ("low = 1\n", "low = -3\n", 'scale = "log" needs a low above 0, not -3'),
            ("low = 1\n", "low = 2000\n", "low must be less than high"),
            ("bins = 6", "bins = 257", 'scale = "log" needs at most 256 bins, not 257'),
            ("high = 1000", "high = 1.005", "6 do not fit between 1 and 1.005"),
            ("bins = 6", 'bins = 6\nstatistics = "mean"', "a mechanism for the mean needs equal bins"),
            ("bins = 6", 'bins = 6\nmechanism = "sw"\nreach = 2', "sw supports only equal bins"),
            (
                "epsilon = 2",
                'planned = {of = "mean", devices = 9, error = 0.1}\nepsilon = 2',
                "a mean can be planned only for equal bins",
            ),
        ],
    )
    def test_rejects_what_does_not_fit_a_scale(self, old: str, new: str, text: str):
        with fails(re.escape(text), DefinitionError):
            parse(changed(old, new)).payload()

    def test_is_only_for_a_number(self):
        kind = 'type = "choice"\nlabels = ["a"]\nscale = "log"\n'
        number = 'type = "number"\nunit = "s"\nlow = 1\nhigh = 1000\nbins = 6\nscale = "log"\n'
        with fails("scale is only for a number", DefinitionError):
            parse(changed(number, kind))

    def test_limit_of_bins_is_that_of_boards(self):
        assert parse(changed("bins = 6", f"bins = {MAX_LOG_BINS}")).payload()
        assert ldp_scale._MAX_BINS == MAX_LOG_BINS

    def test_ranges_are_bins_of_the_scale(self):
        text = changed("bins = 6", 'bins = 6\nranges = [":3.2", "100:"]')
        assert parse(text).experiment().mechanism

    def test_part_of_a_pair_may_have_a_scale(self):
        experiment = parse(PAIR).experiment()
        assert json.loads(parse(PAIR).payload())["of"][0]["scale"] == "log"
        assert units.index_names(experiment)[:2] == ["below 3.162, no", "below 3.162, yes"]

    def test_experiment_at_another_epsilon_keeps_the_scale(self):
        for experiment in (EXPERIMENT, parse(PAIR).experiment()):
            copy = at_epsilon(experiment, 3_000_000)
            assert units.index_names(copy) == units.index_names(experiment)


class TestUnits:
    def test_edges_are_those_of_boards(self):
        assert list(units.bin_edges(EXPERIMENT)) == [1, 3.162, 9.999, 31.62, 99.994, 316.218, 1000]
        assert list(units.edges_between(1_000, 1_000_000, 6, "log")) == list(units.bin_edges(EXPERIMENT))
        assert EXPERIMENT.bucket(3.161) == 0
        assert EXPERIMENT.bucket(3.162) == 1

    def test_names_have_the_precision_of_their_own_bins(self):
        assert units.index_names(EXPERIMENT)[-2:] == ["99.994 to 316.218", "316.218 and above"]

    def test_range_moves_to_the_nearest_edges(self):
        r = units.parse_range(EXPERIMENT, "5:250")
        assert (r.low, r.high, r.text) == (1, 5, "3.162 to 316.218")
        note = units.moved_note(EXPERIMENT, [r], "s")
        assert note == "5:250 is counted as 3.162 to 316.218: bins are 2.162 to 683.8 s wide, from 1."

    def test_description_says_that_bins_differ(self):
        assert readings(EXPERIMENT, "s") == "1 to 1000 s, 6 bins on a logarithmic scale, of 2.162 to 683.8 s"


class TestVersions:
    def test_equal_and_logarithmic_bins_are_not_pooled(self):
        equal = parse(changed('scale = "log"\n', "")).experiment()
        counts = [np.full(e.code_count, 10) for e in (equal, EXPERIMENT)]
        both = [estimate(e, c) for e, c in zip((equal, EXPERIMENT), counts, strict=True)]
        with fails("only if their scale is the same, not linear and log", EstimateError):
            pool(both)

    def test_mean_needs_shares_on_a_scale(self):
        payload = parse(FLOW).payload().replace(b'"log"', b'"log","reach":2')
        fields = json.loads(payload) | {"mechanism": "sw"}
        kept = {k: v for k, v in fields.items() if k not in ("fanout", "cells", "weights", "g", "q")}
        sw = parse_experiment(json.dumps(kept).encode())
        assert log_edges(sw)
        assert answerable_questions(sw) == frozenset()
        assert "mean" in answerable_questions(EXPERIMENT)
