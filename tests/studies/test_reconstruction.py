"""The reconstruction study: its runs match theory, and its page matches its command."""

import json
import math
import re
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
from command_line import hushmote
from run_once import once
from scipy.special import ndtr

from hushmote.studies import catalogue, reconstruction
from hushmote.studies.daily import flights
from hushmote.studies.frame import RunContext, StudyError
from hushmote.studies.noise import SeededNoise, noise_variance, seeded_source
from hushmote.studies.reconstruction import (
    RECORDS,
    Attack,
    Target,
    attack_label,
    averaged_right,
    column,
    kept_right,
    study,
)
from hushmote.studies.structures import CentralHierarchy

EPSILON = 0.2  # the command's default
QUESTION_COUNTS = (64, 1024)  # numbers of questions, for tests in which the number does not matter
ALLOWED = math.exp(EPSILON) / (1 + math.exp(EPSILON))
PAGE = Path(__file__).parents[2] / "studies" / "README.md"


ROW = re.compile(r"(\S.*?\S) +([\d,]+) +([\d,.]+) +([\d,.]+) +([\d,.]+)")


class Line(NamedTuple):
    """A line of the tables: shares in percent, errors in records."""

    words: str
    questions: int
    spent: float
    measured: float
    predicted: float


class StudyRun:
    """The output of the page's command, and the lines of its two tables."""

    def __init__(self, folder: Path):
        self.text = (folder / "printed.txt").read_text(encoding="utf-8")
        self.picture = folder / "reconstruction.png"
        tables = self.text.split("\n\n")
        self.records, self.days = (self._lines(text) for text in tables[:2])

    @staticmethod
    def _lines(text: str) -> list[Line]:
        rows = [match for match in map(ROW.fullmatch, map(str.strip, text.splitlines())) if match]
        numbers = ([float(cell.replace(",", "")) for cell in row.groups()[1:]] for row in rows)
        return [Line(row[1], int(n), *rest) for row, (n, *rest) in zip(rows, numbers, strict=True)]

    def of(self, attack: Attack, days: bool = False) -> list[Line]:
        """Return an attack's lines."""
        return [line for line in (self.days if days else self.records) if line.words == attack_label(attack)]


@pytest.fixture(scope="module")
def study_run(tmp_path_factory: pytest.TempPathFactory) -> StudyRun:
    def make(folder: Path) -> None:
        command = ("study", "reconstruction", "--seed", "1", "--workers", "1", "--plot", "reconstruction.png")
        (folder / "printed.txt").write_text(hushmote(*command, cwd=folder), encoding="utf-8")

    return StudyRun(once(tmp_path_factory, "reconstruction", make))


class TestPage:
    def test_has_its_commands_output(self, study_run: StudyRun):
        lines = [line.rstrip() for line in study_run.text.splitlines() if not line.startswith("written: ")]
        assert "\n".join(lines).rstrip() in PAGE.read_text(encoding="utf-8"), study_run.text
        assert max(map(len, lines)) <= 80
        assert study_run.picture.read_bytes().startswith(b"\x89PNG")

    def test_sentences_match_the_tables(self, study_run: StudyRun):
        page = " ".join(PAGE.read_text(encoding="utf-8").split())
        subsets = {line.questions: line.measured for line in study_run.of("subsets")}
        assert subsets[8192] == 100.0
        for sentence in (
            f"an attacker guesses {subsets[4096]:.1f}% of the records correctly; after 8,192, all",
            f"the attacker guesses {study_run.of('kept')[0].measured:.1f}% of the records correctly.",
            f"only once, the attacker guesses {study_run.of('boards')[0].measured:.1f}%.",
            f"ranges start at {study_run.of('ranges')[0].measured:.1f}%.",
            f"tree has an error of {study_run.of('kept', days=True)[0].measured:.1f} records",
            f"boards have an error of {study_run.of('boards', days=True)[0].measured:,.0f},",
            f"has an error of {study_run.of('repeat', days=True)[0].measured:.1f} at the first question",
            f"e^ε / (1 + e^ε) = {100 * ALLOWED:.1f}%",
            f"{flights().cut(128).counts.mean():.0f} a day on average",
        ):
            assert sentence in page, sentence


class TestAttacks:
    def test_match_theory(self, study_run: StudyRun):
        """In 10 runs, each of the 40 lines is off with probability below 10^-11.

        A share of 256 records has a standard deviation of at most 4 points in one run, even if its records
        depend on one another: 1.3 points in ten runs, and 9 points are 7 of them. The root of a mean of
        1,280 squares of nearly normal errors has a relative deviation of 0.02; of 128 in ten runs that depend
        on one another in pairs, 0.03: 25% are more than 8.
        """
        assert (len(study_run.records), len(study_run.days)) == (26, 14)
        for line in study_run.records:
            assert abs(line.measured - line.predicted) < 9, line
        for line in study_run.days:
            assert abs(line.measured - line.predicted) < 0.25 * line.predicted, line

    def test_fresh_noise_reveals_everything_and_kept_noise_nothing(self, study_run: StudyRun):
        assert study_run.of("subsets")[-1].measured > 99
        assert study_run.of("repeat")[-1].measured > 97
        (kept,), (boards,) = study_run.of("kept"), study_run.of("boards")
        assert kept.predicted < 100 * ALLOWED
        assert boards.predicted == pytest.approx(100 * ALLOWED, abs=0.1)
        assert kept.spent == boards.spent == 0.2
        for attack in ("repeat", "ranges", "subsets"):
            lines = study_run.of(attack)
            assert [line.spent for line in lines] == pytest.approx([0.2 * line.questions for line in lines])
            assert [line.predicted for line in lines] == sorted(line.predicted for line in lines)

    def test_many_random_sets_follow_the_closed_form(self, study_run: StudyRun):
        many = [line for line in study_run.of("subsets") if line.questions >= 8 * RECORDS]
        assert len(many) == 4
        for line in many:
            closed = ndtr(math.sqrt((line.questions - RECORDS) / noise_variance(1, EPSILON)) / 4)
            assert line.predicted == pytest.approx(100 * closed, abs=1)


class TestChance:
    def test_repeated_answers_error_is_their_noise(self):
        """For 200,000 means of 5 numbers, 0.008 is over 7 standard deviations, with probability 10^-12.

        A mean of 5 whole numbers is never 1/2; one of 4 may be, and counts half.
        """
        noise = SeededNoise(np.random.default_rng(3))
        for times in (4, 5):
            sums = noise.draw(200_000 * times, 1, 0.7).reshape(-1, times).sum(axis=1)
            correct = np.mean(sums < times / 2) + np.mean(sums == times / 2) / 2
            assert averaged_right(0.7, times) == pytest.approx(correct, abs=0.008)
        assert averaged_right(0.2, 1) == pytest.approx(math.exp(0.2) / (1 + math.exp(0.2)), rel=1e-9)
        assert averaged_right(0.2, 1024) == pytest.approx(
            ndtr(32 / 2 / math.sqrt(noise_variance(1, 0.2))), abs=1e-3
        )

    @pytest.mark.parametrize("epsilon", [0.5, 4.0])
    def test_kept_noise_gives_the_trees_error(self, epsilon: float):
        """Guess 400 fits of 64 records, worth at least 6,400 independent guesses; 0.045 is 7 deviations."""
        structure, bits = CentralHierarchy(4), column(64)
        source = seeded_source(5)
        at = np.arange(64)
        fits = [structure.fit(bits, epsilon, source).answer(at, at + 1) for _ in range(400)]
        correct = np.mean((np.array(fits) > 0.5) == (bits == 1))
        assert kept_right(structure, 64, epsilon) == pytest.approx(correct, abs=0.045)


class TestOutcome:
    def test_uncertainty_is_the_means_standard_error(self):
        """The root of the mean of 9² and 11² is nearly their mean, whose standard error is 1."""
        pairs = np.array([(9.0, 10.0), (11.0, 10.0)])
        means: dict[Target, float] = {"records": 10.0, "days": math.sqrt(101)}
        for target, measured in means.items():
            row = reconstruction._outcome(target, "kept", 128, pairs, 0.2)
            assert (row["measured"], row["predicted"]) == pytest.approx((measured, 10.0))
            assert row["uncertainty"] == pytest.approx(1, abs=0.01)


class TestColumn:
    def test_is_real_and_half_yes(self):
        counts = flights().cut(RECORDS).counts
        assert column().sum() == RECORDS // 2
        assert counts[column() == 1].min() > counts[column() == 0].max() - 1


class TestStudy:
    @pytest.mark.slow
    @mock.patch.object(reconstruction, "SOLVED", QUESTION_COUNTS)
    def test_repeats_with_a_seed_and_limits_epsilon(self, tmp_path: Path):
        once, repeated, other = (study(0.5, RunContext(seed), runs=2) for seed in (2, 2, 3))
        assert once == repeated != other
        with pytest.raises(StudyError):
            study(0.0, RunContext(1))
        text = hushmote("study", "reconstruction", "--epsilon=99", cwd=tmp_path, expect=1)
        assert "99" in text

    @pytest.mark.long
    def test_unseeded_noise_is_from_opendp_and_follows_theory(self):
        """In two runs, 18 points are at least 6 standard deviations (4 points / √2) of a share, as above."""
        result = study(EPSILON, RunContext(), runs=2)
        for row in result:
            if row["target"] == "records":
                assert abs(row["measured"] - row["predicted"]) < 0.18, row
        assert result != study(EPSILON, RunContext(1), runs=2)

    @pytest.mark.slow
    @mock.patch.object(reconstruction, "SOLVED", QUESTION_COUNTS)
    @mock.patch.object(reconstruction, "RUNS", 2)
    def test_json_has_every_line_and_the_allowed_share(self):
        parameters = catalogue.parameters("reconstruction", {})
        result = json.loads(json.dumps(catalogue.run("reconstruction", parameters, RunContext(1)).json))
        assert result["allowed_share"] == pytest.approx(ALLOWED)
        assert {(o["target"], o["attack"]) for o in result["outcomes"]} == {
            *(("records", attack) for attack in ("repeat", "ranges", "subsets", "kept", "boards")),
            *(("days", attack) for attack in ("repeat", "ranges", "kept", "boards")),
        }
