"""Populations over the cells of a pair: tables of counts, named distributions and the real client."""

import numpy as np
import pytest
from experiments import experiment_json
from refusals import fails

from hushmote.device.ldp_client import Experiment
from hushmote.planning.readings_file import ColumnType
from hushmote.simulator import pairs
from hushmote.simulator.faithful import Faults
from hushmote.simulator.population import PopulationError, Recorded, even, reading_in
from hushmote.simulator.simulate import simulate

PARTS = [ColumnType("version", "choice"), ColumnType("crashed", "bool"), ColumnType("delay", "number")]
TOML = """
name = "crash_by_version"
purpose = "Do old versions crash more?"
owner = "firmware@example.org"
expires = 9999-12-31
type = "pair"
epsilon = 4
[[of]]
name = "version"
type = "choice"
labels = ["1.2", "1.3"]
[[of]]
name = "crashed"
type = "bool"
[budget]
rule = "sum"
cap = 8
"""


@pytest.fixture
def toml(tmp_path):
    (tmp_path / "crash.toml").write_text(TOML)
    return tmp_path / "crash.toml"


def experiment() -> Experiment:
    version = {"name": "version", "type": "choice", "labels": ["1.2", "1.3"]}
    delay = {"name": "delay", "type": "number", "low": 0, "high": 8_000, "bins": 4}
    parts = [version, {"name": "crashed", "type": "bool"}, delay]
    fields = {"type": "pair", "of": parts, "mechanism": "grr", "epsilon": 2_000_000}
    return Experiment.parse(experiment_json(**fields, budget={"rule": "unlimited"}))


def read(tmp_path, text: str) -> Recorded:
    (tmp_path / "counts.csv").write_text(text)
    return pairs.read_counts(tmp_path / "counts.csv", PARTS)


class TestReading:
    def test_falls_into_its_index(self):
        e = experiment()
        assert reading_in(e, 0) == ("1.2", False, 1.0)
        for index in range(e.domain):
            assert e.bucket(reading_in(e, index)) == index
        sampled = even().sample(e, 50, np.random.default_rng(1))
        assert all(isinstance(reading, tuple) and e.bucket(reading) is not None for reading in sampled)


class TestTable:
    def test_counts_give_the_rows_shares(self, tmp_path):
        text = "delay,version,crashed,count\n1,1.2,no,30\n7.5,9.9,yes,10\n,1.3,no,5\n1.5,1.2,0,5\n"
        people = read(tmp_path, text)
        e = experiment()
        chances = people.probabilities(e)
        assert chances[e.bucket(("1.2", False, 1.0))] == pytest.approx(0.7)
        assert chances[e.bucket(("x", True, 7.0))] == pytest.approx(0.2)
        assert chances[-1] == pytest.approx(0.1)  # a pair with a missing part has no reading
        assert chances.sum() == pytest.approx(1)
        sampled = people.sample(e, 4_000, np.random.default_rng(2))
        none = sum(e.bucket(reading) is None for reading in sampled)
        assert 200 < none < 600  # expected 400, within 10 standard deviations

    def test_without_counts_counts_each_row_once(self, tmp_path):
        people = read(tmp_path, "version,crashed,delay\n1.2,no,1\n1.2,no,1\n1.3,yes,2\n")
        assert people.weights == (2.0, 1.0)

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("version,crashed,count\n1.2,no,3\n", "has no column 'delay'"),
            ("version,crashed,delay,count\n", "no rows below its heading"),
            ("version,crashed,delay,count\n1.2,no,1,many\n", "line 2: count is 'many', not a number"),
            ("version,crashed,delay,count\n1.2,no,1,-1\n", "line 2: count is -1, not a number of 0 or more"),
            ("version,crashed,delay,count\n1.2,no,1,0\n", "counts.csv has no readings"),
            ("version,crashed,delay\n1.2,perhaps,1\n", "line 2: crashed is 'perhaps', not one of"),
            ("version,crashed,delay\n1.2,no,soon\n", "line 2: delay is 'soon', not a number"),
        ],
        ids=range(7),
    )
    def test_malformed_table_is_one_line(self, tmp_path, text, reason):
        with fails(reason, PopulationError):
            read(tmp_path, text)

    def test_another_experiments_table_is_rejected(self, tmp_path):
        (tmp_path / "c.csv").write_text("version,crashed,delay\n1.2,no,1\n")
        people = pairs.read_counts(tmp_path / "c.csv", PARTS[:2])
        with pytest.raises(PopulationError, match="e must be a pair or None"):
            people.probabilities(experiment())


class TestParse:
    def test_reads_names_and_files(self, tmp_path):
        (tmp_path / "c.csv").write_text("version,crashed\n1.2,no\n")
        assert isinstance(pairs.parse(f"file:{tmp_path / 'c.csv'}", PARTS[:2]), Recorded)
        assert pairs.parse("zipf:1", PARTS).probabilities(experiment())[0] > 0.2
        with pytest.raises(PopulationError, match="cannot read"):
            pairs.parse("file:nowhere.csv", PARTS)


class TestSimulate:
    @pytest.mark.parametrize("faults", [None, Faults()], ids=["vectorised", "real clients"])
    def test_finds_the_truth_either_way(self, toml, tmp_path, faults):
        """Each row of 20,000 or 600 reports is within 7 standard errors, which fails with chance 1e-11."""
        (tmp_path / "c.csv").write_text("version,crashed,count\n1.2,no,5\n1.2,yes,2\n1.3,no,3\n,yes,1\n")
        devices = 300 if faults else 10_000
        simulated = simulate(
            toml, devices=devices, population=f"file:{tmp_path / 'c.csv'}", faults=faults, seed=3
        )
        assert simulated.reports == 2 * devices
        for answer in simulated.pairs.summary():
            for row in answer.rows:
                assert row.truth is not None
                if abs(row.value) < 1.5:  # shares
                    assert abs(row.value - row.truth) < 7 / 1.96 * (row.high - row.low)
