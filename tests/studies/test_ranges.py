"""`hushmote study ranges --quick`: its numbers and its output folder."""

import csv
import json
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from command_line import hushmote as called
from command_line import hushmote_process
from run_once import once

from hushmote.server.errors import HushmoteError
from hushmote.studies import catalogue, ranges
from hushmote.studies.daily import Daily, flights, synthetic
from hushmote.studies.frame import RunContext, StudyError, StudyResult
from hushmote.studies.noise import noise_variance
from hushmote.studies.ranges_figures import FIGURES
from hushmote.studies.ranges_findings import CASES, formula_length
from hushmote.studies.ranges_run import (
    FAMILIES,
    FULL,
    LENGTHS,
    QUICK,
    RangeCell,
    RangeDesign,
    fits_for,
    fitting_design,
    run_cell,
    starts,
)
from hushmote.studies.structures import CentralFlat, LocalHierarchy

# QUICK with fewer fits, ranges and fanouts: the same number of theory points, but noisier measurements.
SHORT = replace(QUICK, fanouts=(2, 16), fits=6, local_fits=3, ranges=40)


@dataclass
class StudyRun:
    """A study's design, folder, JSON, and rows with numbers."""

    design: RangeDesign
    folder: Path
    summary: dict[str, Any]
    rows: list[dict[str, Any]]
    flawed: list[dict[str, Any]]

    def curves(self) -> dict[tuple, list[dict[str, Any]]]:
        groups = defaultdict(list)
        for row in self.rows:
            groups[row["family"], row["fanout"], row["neighbours"], row["days"], row["length"]].append(row)
        return groups


def read(path: Path) -> list[dict[str, Any]]:
    words = ("series", "family", "plan", "neighbours", "flaws")
    with open(path, newline="", encoding="utf-8") as file:
        return [{k: v if k in words else float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def short(folder: Path) -> str:
    """Run a short study within this process; return its JSON."""
    parameters = catalogue.parameters("ranges", {"quick": True, "out": folder / "out"})
    with mock.patch.object(ranges, "QUICK", SHORT):
        return json.dumps(catalogue.run("ranges", parameters, RunContext(7)).json)


def quick(folder: Path) -> str:
    """Run the quick study as a user does."""
    return hushmote_process("study", "ranges", "--quick", "--out=out", "--seed", "7", "--json", cwd=folder)


@pytest.fixture(scope="module", params=[short, pytest.param(quick, marks=pytest.mark.long)])
def study_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> StudyRun:
    study: Callable[[Path], str] = request.param

    def make(folder: Path) -> None:
        (folder / "printed.json").write_text(study(folder), encoding="utf-8")

    folder = once(tmp_path_factory, f"{study.__name__} study of ranges", make)
    out = folder / "out"
    summary = json.loads((folder / "printed.json").read_text(encoding="utf-8"))
    design = SHORT if study is short else QUICK
    return StudyRun(design, out, summary, read(out / "ranges.csv"), read(out / "flaws.csv"))


class TestFlaws:
    def test_cause_each_surprise(self, study_run: StudyRun):
        def predicted(flaws, fanout, epsilon=1.0):
            rows = [
                r
                for r in study_run.flawed
                if (r["flaws"], r["fanout"], r["epsilon"]) == (flaws, fanout, epsilon)
            ]
            return {int(r["length"]): r["predicted"] for r in rows}

        flat = predicted("no hashing", 0)
        assert max(flat, key=lambda r: flat[r]) == study_run.design.flaw_days // 2, (
            "without hashing, half is worst"
        )
        assert flat[max(flat)] < 0.5 * max(flat.values())

        names = {name: str(flaws) for name, flaws in CASES.items()}
        # Use theory, with which every point agrees, because a short study's measured exponents vary too much.
        for kind in ("predicted_exponent", *(("exponent",) if study_run.design is QUICK else ())):
            exponent = {
                f["flaws"]: f[kind]
                for f in study_run.summary["fits"]
                if f["fanout"] == 2 and f["days"] == 128
            }
            assert exponent[names["no hashing"]] < exponent["correct"] - 0.2
            assert exponent[names["lie from all cells"]] > exponent["correct"] + 0.4
            assert exponent[names["root level"]] == pytest.approx(exponent["correct"], abs=0.1)
            assert min(exponent.values()) > -1.8

        def loss(flaws):
            small, large = predicted(flaws, 2), predicted(flaws, 16)
            return large[64] / small[64]

        assert loss(names["no hashing"]) > loss(names["root level"]) > loss("correct") > 1
        assert loss(names["lie from all cells"]) == pytest.approx(loss("correct"), rel=0.05)

        # None means never: sums of the fewest nodes never beat a flat estimate that knows the total
        wins = {name: days or math.inf for name, days in study_run.summary["hierarchy_wins_from"].items()}
        assert wins["all correct"] < wins["no consistency"]
        assert wins["no hashing, no consistency"] < wins["no consistency"]
        assert abs(wins["lie from all cells"] - wins["all correct"]) <= 3
        assert wins["thesis"] > 5

    def test_are_labelled_with_their_true_epsilon(self, study_run: StudyRun):
        for row in study_run.flawed:
            lies = "lie from all cells" in row["flaws"]
            assert lies == ("not ε-LDP" in row["flaws"])
            assert lies == (row["true_epsilon"] > row["epsilon"] + 0.1)
        assert all(row["true_epsilon"] == row["epsilon"] for row in study_run.rows)


class TestFolder:
    def test_has_every_figure_and_table(self, study_run: StudyRun):
        tables = {"ranges.csv", "flaws.csv", "short.csv", "fits.csv", "agreement.csv", "tables.md"}
        tables |= {"length_fits.csv", "break_even.csv"}
        assert {path.name for path in study_run.folder.iterdir()} == tables | {
            f"{name}.png" for name in FIGURES
        }
        assert len(FIGURES) == 12
        for name in FIGURES:
            assert (study_run.folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        with open(study_run.folder / "fits.csv", newline="", encoding="utf-8") as file:
            assert len(list(csv.DictReader(file))) == len(study_run.summary["fits"])
        with open(study_run.folder / "agreement.csv", newline="", encoding="utf-8") as file:
            verdicts = [row["agrees"] for row in csv.DictReader(file)]
        assert len(verdicts) == study_run.summary["curves"]
        assert verdicts.count("True") == study_run.summary["curves_that_agree"]


class TestCell:
    def test_repeats_only_with_the_same_seed(self):
        def cell(seed):
            structure = LocalHierarchy(4)
            series = flights().cut(32)
            return run_cell(
                RangeCell(series, 1.0, structure, (4, 8), 2, 10, np.random.SeedSequence(seed), False)
            ).points

        assert cell(1) == cell(1)
        assert cell(1) != cell(2)

    def test_has_noise_from_opendp_without_a_seed(self):
        cell = RangeCell(flights().cut(32), 1.0, CentralFlat(), (4,), 2, 50, np.random.SeedSequence(1), True)
        assert run_cell(cell).points != run_cell(cell).points


def run(texts: dict[str, Any], seed: int | None = None) -> StudyResult:
    """Run the study in this process, because the command first starts a process pool."""
    return catalogue.run("ranges", catalogue.parameters("ranges", texts), RunContext(seed))


class TestOwnData:
    @pytest.mark.slow
    def test_error_is_one_line(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "trips.csv").write_text("date,count\n2020-01-02,4\n2020-01-01,-4\n", encoding="utf-8")
        csv_file = {"input": "trips.csv"}
        about_a_file = "--time, --value, --by and --only are about a file: add --input FILE"
        for texts, text in (
            (
                csv_file | {"time": "date", "value": "count"},
                "trips.csv, line 3: count of 2020-01-01 is -4; counts are 0 or more",
            ),
            (csv_file, "--input FILE needs --time COLUMN, the column of dates or timestamps"),
            *(
                ({name: "date", "range": ["2013-01-01:2013-01-31"]}, about_a_file)
                for name in ("time", "value", "by", "only")
            ),
            (
                {"range": ["2013-01-01:2014-01-01"]},
                "flights has the days 2013-01-01 to 2013-12-31, not 2014-01-01",
            ),
        ):
            with pytest.raises(HushmoteError) as error:
                run(texts)
            assert str(error.value) == text
        line = called("study", "ranges", "--by=site", cwd=tmp_path, expect=1)
        assert line == f"hushmote: {about_a_file}\n"
        assert not (tmp_path / "study").exists()

    @pytest.mark.slow
    def test_date_ranges_show_truth_answer_and_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """Compare each error with theory.

        Beyond 8 standard deviations is a false alarm with a chance below 1e-12 for a normal distribution, and
        below 1e-9 for a few Laplace numbers.
        """
        rows = [f"{i},2024-0{1 + i % 3}-{1 + i % 28:02d}T08:00,{'AB'[i % 2]}\n" for i in range(20_000)]
        (tmp_path / "loans.csv").write_text("id,out,library\n" + "".join(rows), encoding="utf-8")
        texts: dict[str, Any] = {"input": "loans.csv", "time": "out", "by": "library", "only": "A"}
        dates = "2024-01-01:2024-01-31,2024-02-10:2024-02-10"
        monkeypatch.chdir(tmp_path)
        result = run(texts | {"range": [dates]}).json
        assert [row["structure"] for row in result["ranges"]] == list(FAMILIES) * 2
        days = [(1 + i % 3, 1 + i % 28) for i in range(0, 20_000, 2)]
        for row in result["ranges"]:
            month = row["range"].startswith("2024-01")
            assert row["days"] == (31 if month else 1)
            assert row["truth"] == sum(day[0] == 1 if month else day == (2, 10) for day in days)
            assert row["error"] == pytest.approx(row["answer"] - row["truth"])
            assert abs(row["error"]) < 8 * row["expected"] + 1
        options = [f"--{key}={value}" for key, value in texts.items()]
        text = called("study", "ranges", *options, f"--range={dates}", "--seed", "3", cwd=tmp_path)
        assert max(map(len, text.splitlines())) <= 80
        assert "2024-01-01 to 2024-01-31: 31 days," in text
        assert "2024-02-10 to 2024-02-10: 1 day," in text
        first, repeated = (run(texts | {"range": [dates]}, seed=3) for _ in range(2))
        assert first.json == repeated.json
        assert f"{first.json['ranges'][0]['answer']:,.1f}" in text
        assert not (tmp_path / "study").exists()


class TestRun:
    @pytest.mark.slow
    def test_agrees_with_theory_at_every_point(self, study_run: StudyRun):
        """Even without a seed, 6.5 deviations in any of 1,600 points have a false alarm below 1e-6."""
        worst = max(abs(row["deviations"]) for row in study_run.rows + study_run.flawed)
        assert worst < 6.5
        z = np.array([row["deviations"] for row in study_run.rows + study_run.flawed])
        assert abs(z.mean()) < 0.5
        assert 0.7 < z.std() < 1.3
        assert study_run.summary["points"] == len(z) == len(study_run.rows) + len(study_run.flawed)

    def test_covers_the_whole_design(self, study_run: StudyRun):
        design = study_run.design
        parameters = {(n, e, r) for n in design.lengths for e in design.epsilons for r in design.lengths[n]}
        per_point = 4 + len(design.fanouts) + 2 + len(design.fanouts)
        assert {(r["days"], r["epsilon"], r["length"]) for r in study_run.rows} == parameters
        assert len(study_run.rows) == len(parameters) * per_point
        assert {r["series"] for r in study_run.rows} == {"flights", "synthetic"}

    def test_errors_fall_with_epsilon_and_grow_with_records(self, study_run: StudyRun):
        for key, rows in study_run.curves().items():
            predicted = [r["predicted"] for r in sorted(rows, key=lambda r: r["epsilon"])]
            assert predicted == sorted(predicted, reverse=True), key
            measured = {r["epsilon"]: r["rmse"] for r in rows}
            assert measured[0.4] > 1.5 * measured[2.0], key

    def test_central_flat_follows_its_formula(self, study_run: StudyRun):
        for row in study_run.rows:
            if row["family"] == "central flat":
                scale = 1 if row["neighbours"] == "added" else 2
                formula = math.sqrt(row["length"] * noise_variance(scale, row["epsilon"]))
                assert row["predicted"] == pytest.approx(formula, rel=1e-4)

    def test_hierarchies_win_on_long_ranges(self, study_run: StudyRun):
        def rmse(family, days, length):
            (row,) = [
                r for r in study_run.rows
                if (r["family"], r["days"], r["length"], r["fanout"]) == (family, days, length, 0)
                and r["epsilon"] == 1.0 and r["neighbours"] == "replaced"
            ]  # fmt: skip
            return row["rmse"]

        assert rmse("central hierarchy", 512, 220) < 0.7 * rmse("central flat", 512, 220)
        assert rmse("local hierarchy", 512, 220) < 0.5 * rmse("local flat", 512, 220)
        assert min(row["measured"] for row in study_run.summary["break_even"]) > 3, "flat wins for a few days"
        assert rmse("local hierarchy", 512, 220) > 100 * rmse("central hierarchy", 512, 220)

    def test_break_even_lengths_match_the_formulas(self, study_run: StudyRun):
        """The formula's tables match, and consistency lets the hierarchy win long before them."""
        days = (256, 512, 1024, 2048)
        assert [formula_length(2, n) for n in days] == [256, 324, 400, 484]
        assert [formula_length(3, n) for n in days] == [216, 216, 294, 294]
        assert [formula_length(4, n) for n in days] == [128, 200, 200, 288]
        rows = study_run.summary["break_even"]
        assert [(row["fanout"], row["days"]) for row in rows] == [(2, 512), (3, 512), (4, 512)]
        for row in rows:
            assert row["consistent"] < row["summed"] < row["formula"]
            assert row["consistent"] / 2 <= row["measured"] <= 2 * row["consistent"]

    def test_error_follows_its_lengths_law(self, study_run: StudyRun):
        fits = {(f["family"], f["neighbours"], f["days"]): f for f in study_run.summary["length_fits"]}
        assert {family for family, _, _ in fits} == set(FAMILIES)
        for neighbours in ("added", "replaced"):
            flat = fits["central flat", neighbours, 512]
            assert flat["r2_root"] > 0.95
        for fit in fits.values():
            assert all(0 <= fit[name] <= 1 for name in ("r2_root", "r2_log", "r2_line", "r2_quadratic"))
            assert fit["r2_quadratic"] >= fit["r2_line"] - 1e-12


class TestDesign:
    def test_full_study_has_the_pages_numbers_of_fits(self):
        page = (Path(__file__).parents[2] / "studies" / "README.md").read_text(encoding="utf-8")
        fits = f"over {FULL.fits} fits ({FULL.local_fits} for a local structure) of {FULL.ranges} ranges each"
        assert fits in " ".join(page.split())

    def test_ranges_of_a_length_are_spread_over_all_places(self):
        for days, lengths in LENGTHS.items():
            for length in lengths:
                at = starts(days, length, 100)
                assert at.min() >= 0
                assert at.max() + length <= days
                counts = np.bincount(at, minlength=days - length + 1)
                assert counts.max() - counts[counts > 0].min() <= 1
                assert abs(at.mean() - (days - length) / 2) < 0.51

    def test_depends_on_the_number_of_own_days(self):
        assert list(fitting_design(FULL, synthetic(365)).lengths) == [32, 128, 256, 512]
        assert fitting_design(FULL, synthetic(365)).flaw_days == 512
        for days in (16, 20):
            assert list(fitting_design(FULL, synthetic(days)).lengths) == [32]
        with pytest.raises(StudyError, match="has 10 days; at least 16 are needed"):
            fitting_design(FULL, synthetic(10))
        with pytest.raises(StudyError, match="has 32 records in its first 32 days; 1000 are needed"):
            fitting_design(FULL, Daily("few", flights().first, np.ones(40, np.int64)))

    def test_many_records_have_fewer_fits(self):
        few, many = (Daily("trips", flights().first, np.full(32, a_day)) for a_day in (10**3, 10**6))
        assert fits_for(FULL, LocalHierarchy(), few) == FULL.local_fits
        assert fits_for(FULL, LocalHierarchy(), many) == 3
        assert fits_for(FULL, CentralFlat(), many) == FULL.fits
