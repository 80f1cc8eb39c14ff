"""Populations of texts: readings, slot probabilities, files and errors."""

from pathlib import Path

import numpy as np
import pytest
from command_line import hushmote as run
from experiments import experiment_json

from hushmote.device.ldp_client import Experiment
from hushmote.simulator import drift
from hushmote.simulator.population import PopulationError, read_csv
from hushmote.simulator.simulate import simulate
from hushmote.simulator.texts import Texts, parse, text_shares

FIRMWARE = """
name = "firmware"
purpose = "Which versions are still in use?"
owner = "ops@example.org"
expires = 9999-12-31
type = "text"
epsilon = 3
slots = 4096
[budget]
rule = "count"
cap = 1
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "firmware.toml"
    path.write_text(FIRMWARE, encoding="utf-8")
    return path


def text_experiment(slots: int = 64) -> Experiment:
    fields = {"type": "text", "salt": "s", "slots": slots, "mechanism": "grr", "epsilon": 4_000_000}
    return Experiment.parse(experiment_json(**fields))


class TestErrors:
    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            ("normal:1:2", "'normal:1:2' is not a population of texts; write zipf:exponent"),
            ("zipf", "'zipf' is not a population of texts"),
            ("zipf:-1", "'zipf:-1' is not a population of texts"),
            ("zipf:1:absent.txt", "cannot read absent.txt: No such file or directory"),
            ("zipf:1:empty.txt", "empty.txt has no texts; write one per line"),
            ("zipf:1:twice.txt", "the text 'a' occurs 2 times; list each text once"),
            ("zipf:1:latin.txt", "cannot read latin.txt: not UTF-8 text"),
            ("file:absent.csv", "cannot read absent.csv: No such file or directory"),
            ("file:empty.txt", "empty.txt is empty"),
            ("file:wrong.csv", "wrong.csv, line 2: share is 'x', not a number"),
            ("file:none.csv", "shares of texts must be numbers of 0 or more, not all 0"),
        ],
    )
    def test_invalid_specification_is_one_line(self, tmp_path, monkeypatch, spec, message):
        monkeypatch.chdir(tmp_path)
        Path("empty.txt").write_bytes(b"")
        Path("twice.txt").write_bytes(b"a\nb\na\n")
        Path("latin.txt").write_bytes(b"\xe4\n")
        Path("wrong.csv").write_bytes(b"text,share\na,x\n")
        Path("none.csv").write_bytes(b"text,share\na,0\n")
        with pytest.raises(PopulationError) as error:
            parse(spec)
        assert message in str(error.value)

    def test_texts_do_not_fit_other_types(self):
        number = Experiment.parse(experiment_json(type="bool"))
        with pytest.raises(PopulationError, match="a population of texts does not fit e, which is a bool"):
            parse("zipf:1").probabilities(number)


class TestPopulation:
    def test_slot_has_the_sum_of_its_texts_shares(self):
        people, e = parse("zipf:1.1"), text_experiment()
        chances = people.probabilities(e)
        assert chances.shape == (65,)
        assert chances[-1] == 0
        assert chances.sum() == pytest.approx(1)
        slot = e.bucket(people.texts[0])
        shares = zip(people.texts, people.shares, strict=True)
        assert chances[slot] == pytest.approx(sum(share for text, share in shares if e.bucket(text) == slot))

    def test_samples_follow_the_shares(self):
        """With 20,000 readings, a count is six standard deviations off in less than 1 of 1e8 runs."""
        people = Texts(("a", "b", "c"), np.array([0.6, 0.3, 0.1]))
        readings = people.sample(text_experiment(), 20_000, np.random.default_rng(1))
        for text, share in zip(people.texts, people.shares.tolist(), strict=True):
            assert readings.count(text) == pytest.approx(20_000 * share, abs=6 * (20_000 * share) ** 0.5)

    def test_drift_moves_boards_to_the_first_text(self):
        people = Texts(("a", "b"), np.array([0.5, 0.5]))
        moved = drift.shift_population(people, text_experiment(), 0.2)
        assert text_shares(moved) == pytest.approx({"a": 0.6, "b": 0.4})


class TestFile:
    def test_has_texts_or_texts_with_shares(self, tmp_path: Path):
        (tmp_path / "words.txt").write_text("1.2\n\nä b\n", encoding="utf-8")
        assert parse(f"zipf:1:{tmp_path / 'words.txt'}").texts == ("1.2", "ä b")
        (tmp_path / "shares.csv").write_text("share,text\n3,1.2\n1,1.3\n", encoding="utf-8")
        people = parse(f"file:{tmp_path / 'shares.csv'}")
        assert text_shares(people) == {"1.2": 0.75, "1.3": 0.25}

    def test_column_gives_recorded_texts(self, tmp_path: Path):
        (tmp_path / "log.csv").write_text("version\n1.2\n1.3\nNA\n1.2\n", encoding="utf-8")
        people = read_csv(tmp_path / "log.csv", "version", "text")
        assert text_shares(people) == {"1.2": 0.5, "1.3": 0.25}
        with pytest.raises(PopulationError, match="recorded texts cannot drift"):
            drift.shift_population(people, text_experiment(), 0.1)


class TestSimulate:
    @pytest.mark.parametrize("faithful", [False, True], ids=["drawn", "real clients"])
    def test_estimates_the_truth_either_way(self, file: Path, faithful: bool):
        """Simulate 1,200 boards either way; every row is within 6 standard errors of the truth."""
        from hushmote.simulator.faithful import Faults

        faults = Faults() if faithful else None
        estimate = simulate(file, devices=1200, population="zipf:1.5", faults=faults, seed=2)
        answer = estimate.candidates(list(estimate.texts or ())[:40])
        *rows, others = answer.rows
        assert all(row.truth is not None for row in answer.rows)
        assert sum(row.truth or 0 for row in rows) + (others.truth or 0) == pytest.approx(1)
        for row in rows:
            assert abs(row.value - (row.truth or 0)) < 6 * (row.high - row.low) / 3.92

    @pytest.mark.slow
    def test_command_shows_texts_with_their_truth(self, file: Path, tmp_path: Path):
        text = run("simulate", file.name, "--devices", "50000", "--seed", "1", "--rows", "4", cwd=tmp_path)
        assert "text-1" in text
        assert "true %" in text
        assert "more rows are in the table's CSV or JSON file" in text
        filled = ("--to", "sqlite:///s.sqlite", "--days", "3", "--devices", "3000", "--seed", "1")
        output = run("simulate", file.name, *filled, cwd=tmp_path)
        assert "hushmote estimate firmware --range text-1 --trend" in output
        trend = run(
            "estimate",
            "firmware",
            "--store",
            "sqlite:///s.sqlite",
            "--range",
            "text-1",
            "--trend",
            cwd=tmp_path,
        )
        assert "over time" in trend

    @pytest.mark.slow
    def test_real_clients_report_prefixes_in_a_huge_domain(self):
        """Half of 1,000 boards hold the same text, which is found; each row has its truth.

        About 4 tables of 100 list a text that no board sent: here seeds 4 and 5, and 4 of 110 others.
        """
        from hushmote.simulator.faithful import Faults

        path = Path(__file__).parents[2] / "examples" / "error_codes.toml"
        discovered = simulate(path, devices=1000, population="zipf:2", faults=Faults(), seed=6).discover()
        assert discovered.rows
        assert all(row.truth is not None and row.truth > 0 for row in discovered.rows)
