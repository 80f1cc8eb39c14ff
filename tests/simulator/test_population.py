"""Populations: distributions of readings and counts, columns of files, and errors.

Chi-square statistics are compared with the 1e-12 quantile, over cells that each expect over 500 readings.
"""

import numpy as np
import pytest
from experiments import experiment_json
from hypothesis import given
from hypothesis import strategies as st
from refusals import Refusal, fails, refusals
from scipy.stats import chi2

from hushmote.device.ldp_client import Experiment
from hushmote.server.experiments.definition import parse
from hushmote.simulator import population
from hushmote.simulator.drift import choose_population, default_drift, shift_population
from hushmote.simulator.population import PopulationError

NUMBER = Experiment.parse(
    experiment_json(type="number", low=-20_000, high=50_000, bins=48, mechanism="olh", g=3)
)
NARROW = Experiment.parse(experiment_json(type="number", low=-3, high=4, bins=20, mechanism="olh", g=3))
LOG = Experiment.parse(
    experiment_json(type="number", low=1_000, high=1_000_000, bins=48, scale="log", mechanism="olh", g=3)
)
CHOICE = Experiment.parse(experiment_json(type="choice", labels=["red", "other", "blue"], mechanism="grr"))
BOOL = Experiment.parse(experiment_json())

SPECS = [
    "uniform:-30:45.5",
    "normal:21:3",
    "lognormal:12:0.8",
    "exponential:7.5",
    "bimodal:-5:2:22:4",
    "bimodal:0:1:30:6:0.2",
    "constant:21.4",
    "uniform",
    "zipf:1.2",
    "concentrated:0.9",
    "concentrated:0.5:47",
]


def merged_chi_square(counts, expected):
    """Return the statistic and its limit, with neighbouring cells merged until each expects over 500."""
    edges, total = [0], 0.0
    for i, value in enumerate(expected):
        total += value
        if total > 500:
            edges.append(i + 1)
            total = 0.0
    edges[-1] = len(expected)
    got = np.add.reduceat(counts, edges[:-1])
    want = np.add.reduceat(expected, edges[:-1])
    if len(got) == 1:
        return 0.0, 1.0
    return ((got - want) ** 2 / want).sum(), chi2.isf(1e-12, len(got) - 1)


def bucket_counts(experiment, readings):
    indices = [experiment.bucket(x) for x in readings]
    assert None not in indices
    return np.array([indices.count(i) for i in range(experiment.domain)])


class TestDistribution:
    @pytest.mark.parametrize("experiment", [NUMBER, LOG], ids=["equal bins", "log scale"])
    @pytest.mark.parametrize("spec", SPECS)
    def test_samples_follow_probabilities(self, spec, experiment):
        people = population.parse(spec)
        n = 100_000
        readings = people.sample(experiment, n, np.random.default_rng(1))
        counts = bucket_counts(experiment, readings)
        probabilities = people.probabilities(experiment)
        assert probabilities.shape == (49,)
        assert probabilities.sum() == pytest.approx(1, abs=1e-12)
        assert probabilities[-1] == 0
        assert (counts[probabilities[:-1] == 0] == 0).all()
        statistic, limit = merged_chi_square(counts, n * probabilities[:-1])
        assert statistic < limit

    def test_differs_detectably_from_another(self):
        readings = population.parse("normal:21:3").sample(NUMBER, 100_000, np.random.default_rng(2))
        counts = bucket_counts(NUMBER, readings)
        statistic, limit = merged_chi_square(
            counts, 100_000 * population.parse("normal:21.2:3").probabilities(NUMBER)[:-1]
        )
        assert statistic > limit

    @pytest.mark.parametrize("experiment", [NUMBER, CHOICE, BOOL], ids=["number", "choice", "bool"])
    @pytest.mark.parametrize("spec", ["uniform", "zipf:2", "concentrated:0.7:1"])
    def test_weights_fit_every_type(self, spec, experiment):
        people = population.parse(spec)
        readings = people.sample(experiment, 30_000, np.random.default_rng(3))
        counts = bucket_counts(experiment, readings)
        statistic, limit = merged_chi_square(counts, 30_000 * people.probabilities(experiment)[:-1])
        assert statistic < limit

    def test_every_index_has_a_reading(self):
        for experiment in (NUMBER, LOG, CHOICE, BOOL):
            readings = [population.reading_in(experiment, i) for i in range(experiment.domain)]
            assert [experiment.bucket(x) for x in readings] == list(range(experiment.domain))

    @given(st.integers(-60_000, 90_000), st.integers(-10, 10))
    def test_constant_falls_into_the_boards_bucket(self, wide, narrow):
        """This holds even for bins narrower than 0.001."""
        for experiment, milli in ((NUMBER, wide), (NARROW, narrow)):
            probabilities = population.constant(milli / 1000).probabilities(experiment)
            assert probabilities[experiment.bucket(milli / 1000)] == 1

    def test_explicit_weights_are_proportions(self):
        people = population.parse("weights:1:2:1:0")
        assert people.probabilities(CHOICE).tolist() == [0.25, 0.5, 0.25, 0, 0]
        assert population.weighted([3, 1]).probabilities(BOOL).tolist() == [0.75, 0.25, 0]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "weather.csv"
    path.write_text(
        'time,temp,sky,rain\n1,20.5,red,yes\n2,NA,"blue",0\n3,,green,NA\n4,-3e1,NA,True\n5,20.5\n'
    )
    return path


class TestColumn:
    def test_number_column_keeps_blanks_as_missing(self, table):
        people = population.read_csv(table, "temp")
        assert people.readings == (20.5, None, None, -30.0, 20.5)
        counts = people.counts(NUMBER)
        assert counts.sum() == 5
        assert counts[-1] == 2
        assert counts[NUMBER.bucket(20.5)] == 2
        assert counts[0] == 1
        assert people.probabilities(NUMBER)[-1] == 0.4
        sample = people.sample(NUMBER, 2_000, np.random.default_rng(7))
        assert set(sample) == {20.5, None, -30.0}

    def test_may_be_labels_or_bools(self, table):
        sky = population.read_csv(table, "sky", "choice")
        assert sky.readings == ("red", "blue", "green", None, None)
        assert sky.counts(CHOICE).tolist() == [1, 0, 1, 1, 2]
        rain = population.read_csv(table, "rain", "bool")
        assert rain.readings == (True, False, None, True, None)


class TestErrors:
    @refusals(
        ("gauss:1:2", r"unknown distribution 'gauss'; choose from uniform, normal"),
        ("", r"unknown distribution ''"),
        ("normal:21", r"'normal:21' must have the form normal:mean:deviation"),
        ("normal:21:3:4", r"must have the form normal:mean:deviation"),
        ("normal:21:warm", r"'normal:21:warm' must have the form normal:mean:deviation, with finite numbers"),
        ("normal:21:inf", r"with finite numbers"),
        ("normal:nan:1", r"with finite numbers"),
        ("normal:21:0", r"needs a deviation above 0"),
        ("uniform:3", r"must have the form uniform, or uniform:low:high"),
        ("uniform:", r"must have the form uniform, or uniform:low:high"),
        ("uniform:5:5", r"needs low below high"),
        ("exponential:-1", r"needs a mean above 0"),
        ("bimodal:1:2:3", "must have the form bimodal:mean:deviation:mean2:deviation2[:share]"),
        ("bimodal:1:2:3:0", r"needs deviations above 0"),
        ("bimodal:1:2:3:4:5", r"share, the last number, must be from 0 to 1"),
        ("zipf:-1", r"exponent of 0 or more"),
        ("concentrated:1.5", r"share from 0 to 1"),
        ("concentrated:0.5:1.5", r"index must be a whole number"),
        ("weights:1", r"must have the form weights:w0:w1"),
        ("weights:1:-1", r"0 or more, not all 0"),
        ("weights:0:0", r"0 or more, not all 0"),
        call=population.parse,
        error=PopulationError,
    )
    def test_malformed_specification_is_one_line(self, refusal: Refusal):
        refusal.check()

    def test_rejects_another_types_population(self):
        rng = np.random.default_rng(5)
        with pytest.raises(PopulationError, match="normal supports only number experiments; e is a choice"):
            population.parse("normal:1:1").sample(CHOICE, 1, rng)
        with pytest.raises(PopulationError, match="normal supports only number experiments; e is a bool"):
            population.parse("normal:1:1").probabilities(BOOL)
        with pytest.raises(PopulationError, match="3 weights do not fit an experiment with 4 indices"):
            population.parse("weights:1:2:3").probabilities(CHOICE)
        with pytest.raises(PopulationError, match=r"index 9 must be in range\(4\)"):
            population.parse("concentrated:0.5:9").probabilities(CHOICE)
        with pytest.raises(PopulationError, match="e must be a number or None"):
            population.Recorded(("warm",)).sample(NUMBER, 1, rng)
        with pytest.raises(PopulationError, match=r"narrower than 0\.001"):
            population.parse("uniform").sample(NARROW, 1, rng)

    @pytest.mark.parametrize(
        ("text", "column", "type", "line"),
        [
            ("a,b\n1,2\n", "c", "number", r"t\.csv has no column 'c'; it has a, b$"),
            ("", "c", "number", r"t\.csv is empty$"),
            ("a\n", "a", "number", r"t\.csv has no rows below its heading$"),
            ("a\n1\nwarm\n", "a", "number", r"t\.csv, line 3: a is 'warm', not a number$"),
            ("a\n1\nwarm\nhot\n", "a", "number", r"a is 'warm', not a number, like 1 other cell$"),
            (
                "a\n1\nperhaps\n",
                "a",
                "bool",
                r"line 3: a is 'perhaps', not one of 1, true, yes, on, 0, false, no, off$",
            ),
            (b"a\n\x81\n", "a", "number", r"is neither UTF-8 nor Windows-1252; convert it: iconv"),
            (b"a\n1\0\n2\n", "a", "number", r"t\.csv"),
        ],
    )
    def test_malformed_file_is_one_line(self, tmp_path, text, column, type, line):
        path = tmp_path / "t.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with fails(line, PopulationError):
            population.read_csv(path, column, type)

    def test_unreadable_file_is_one_line(self, tmp_path):
        with pytest.raises(PopulationError, match=r"cannot read .*absent\.csv: No such file or directory$"):
            population.read_csv(tmp_path / "absent.csv", "a")
        with pytest.raises(PopulationError, match=r"cannot read .*: Is a directory$"):
            population.read_csv(tmp_path, "a")


class TestDefault:
    TEXT = (
        'name = "flow"\npurpose = "p"\nowner = "o"\nexpires = 9999-12-31\ntype = "number"\n'
        'low = 1\nhigh = 1000\nbins = 24\nscale = "log"\nepsilon = 2\n[budget]\nrule = "sum"\ncap = 2\n'
    )

    def test_is_around_the_middle_of_a_logarithmic_scale(self):
        definition = parse(self.TEXT)
        people, _ = choose_population(definition, None)
        below = np.cumsum(people.probabilities(definition.experiment())[:-1])
        assert below[11] == pytest.approx(0.5, abs=0.01)
        assert below[5] < 0.01
        assert below[17] > 0.99

    def test_drift_moves_an_eighth_of_a_logarithmic_scale(self):
        definition = parse(self.TEXT)
        experiment = definition.experiment()
        people, _ = choose_population(definition, None)
        moved = shift_population(people, experiment, 10 * default_drift(definition, people, 10))
        below = np.cumsum(moved.probabilities(experiment)[:-1])
        assert below[14] == pytest.approx(0.5, abs=0.1)  # 3 of 24 bins higher
