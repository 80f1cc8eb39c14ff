"""Estimates of one growing fleet, compared with theory for every mechanism and type."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from command_line import DOOR, hushmote
from designs import bell, number_with_mechanism
from experiments import ROOM, experiment_json

import hushmote as face
from hushmote.device.ldp_client import Experiment
from hushmote.server.estimate.estimate import estimate
from hushmote.simulator import vectorised
from hushmote.simulator.convergence import PictureContent, accumulate, fewest_reports, follow, sizes
from hushmote.simulator.convergence_plot import plot
from hushmote.simulator.faithful import SimulatedFleet, codes_of

MODE = DOOR.replace('"bool"', '"choice"\nlabels = ["heating", "cooling", "off"]')
DESIGNS = {
    "rr": (Experiment.parse(experiment_json(epsilon=3_000_000)), 2000),
    "hh": (number_with_mechanism("hh", 16, 2.5, fanout=4, cells=[4, 5]), 400),
}


def draw_batches(
    experiment: Experiment, batches: list[int], rng: np.random.Generator
) -> tuple[np.ndarray, list]:
    """Return the shares of a fleet that grows by these batches, and its histogram after each."""
    shares = bell(experiment.domain, experiment.domain / 3, experiment.domain / 6)
    code_counts = [rng.multinomial(n, shares) for n in batches]
    histograms = np.cumsum([vectorised.histogram(experiment, counts, rng) for counts in code_counts], axis=0)
    return np.sum(code_counts, axis=0) / sum(batches), list(histograms)


class TestSteps:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", DESIGNS)
    def test_error_matches_theory_at_start_and_end(self, name: str):
        """Draw 400 or 2,000 fleets of 500 and then 2,500 reports.

        A mean squared error is 8 of its standard errors off in fewer than 1 of 10^10 runs: a mean over many
        fleets is nearly normal. If theory did not draw the fleet from the population, it would be off by 30%
        or more for rr.
        """
        experiment, fleets = DESIGNS[name]
        rng = np.random.default_rng(5)
        squares, predicted = [], []
        for _ in range(fleets):
            truth, histograms = draw_batches(experiment, [500, 2000], rng)
            steps = follow(experiment, histograms, truth).steps
            squares.append([step.error**2 for step in steps])
            predicted.append([step.predicted**2 for step in steps])
        measured, theory = np.mean(squares, axis=0), np.mean(predicted, axis=0)
        uncertainty = np.std(squares, axis=0, ddof=1) / np.sqrt(fleets)
        assert (np.abs(measured - theory) < 8 * uncertainty).all(), (measured, theory, uncertainty)
        assert (uncertainty < 0.05 * theory).all(), "else the comparison would find nothing"

    def test_last_step_estimates_all_reports(self):
        experiment, _ = DESIGNS["hh"]
        truth, histograms = draw_batches(experiment, [300, 700, 3000], np.random.default_rng(1))
        growth = follow(
            experiment, histograms, truth, showing=PictureContent((":0.25", "0.75:"), (0.25, 0.5))
        )
        estimated = estimate(experiment, histograms[-1])
        assert [step.reports for step in growth.steps] == [300, 1000, 4000]
        last = growth.steps[-1]
        assert last.shares[0].value == pytest.approx(estimated.range(0, experiment.domain // 4).value)
        assert last.shares[0].truth == pytest.approx(truth[: experiment.domain // 4].sum())
        assert [row.name for row in last.quantiles] == ["25% quantile", "median"]
        assert np.array_equal(growth.estimates.frequencies, estimated.frequencies)

    def test_reports_accumulate_in_order_of_arrival(self):
        payload = experiment_json(epsilon=2_000_000)
        experiment = Experiment.parse(payload)
        fleet = SimulatedFleet("f", [payload], size=500, rng=np.random.default_rng(2), repeatable=True)
        for delivery in fleet.make_reports({experiment.name: [i % 3 == 0 for i in range(500)]}):
            fleet.acknowledge(delivery)
        grown = [
            counts.copy()
            for counts in accumulate(experiment, codes_of(experiment, fleet.acknowledged.values()))
        ]
        assert [int(counts.sum()) for counts in grown] == sizes(500, 30)
        assert all((after >= before).all() for before, after in itertools.pairwise(grown))
        assert np.array_equal(grown[-1], fleet.histogram(experiment))

    def test_first_step_has_thirty_reports_per_level(self):
        assert [fewest_reports(DESIGNS[name][0]) for name in ("rr", "hh")] == [30, 60]

    def test_bool_shows_only_its_yes(self):
        experiment, _ = DESIGNS["rr"]
        truth, histograms = draw_batches(experiment, [500], np.random.default_rng(1))
        (step,) = follow(experiment, histograms, truth).steps
        assert [(row.name, row.truth) for row in step.shares] == [("yes", truth[1])]

    def test_sizes_rise_to_the_total(self):
        for total, fewest in ((100, 30), (100, 500), (26_115, 180), (10**9, 30)):
            steps = sizes(total, fewest)
            assert steps == sorted(set(steps))
            assert steps[-1] == total
            assert steps[0] >= min(fewest, total // 2)


class TestPicture:
    @pytest.mark.parametrize(
        ("reports", "ticks"),
        [
            (50_000, [500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000]),
            (100_000, [1_000, 10_000, 100_000]),
        ],
    )
    def test_report_counts_do_not_overlap(self, reports: int, ticks: list[int]):
        experiment, _ = DESIGNS["rr"]
        truth, histograms = draw_batches(experiment, [500, reports - 500], np.random.default_rng(1))
        axis = plot(follow(experiment, histograms, truth)).axes[0].xaxis
        low, high = axis.get_view_interval()
        assert [x for x in axis.get_majorticklocs() if low <= x <= high] == pytest.approx(ticks)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("room", ROOM), ("mode", MODE), ("door", DOOR)):
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    return tmp_path


class TestSimulate:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "population", "more"),
        [
            ("room", "normal:21:3", ("--range", "18:24", "--quantile", "0.1", "--quantile", "0.9")),
            ("mode", "weights:5:3:1:1", ("--faithful",)),
        ],
        ids=["number", "choice by real clients"],
    )
    def test_writes_a_picture_of_every_type(self, folder: Path, name, population, more):
        arguments = (
            "simulate",
            f"{name}.toml",
            "--population",
            population,
            "--devices",
            "900",
            "--seed",
            "3",
        )
        pictures = ("--output", "convergence.png", "--output", "convergence.svg")
        result = json.loads(hushmote(*arguments, *more, *pictures, "--json", cwd=folder))
        assert (folder / "convergence.png").read_bytes().startswith(b"\x89PNG")
        steps = result["convergence"]
        assert steps["reports"][-1] == result["reports"]
        assert steps["reports"] == sorted(steps["reports"])
        assert steps["rms_error_in_theory"] == sorted(steps["rms_error_in_theory"], reverse=True)
        assert (folder / "convergence.svg").read_text().count("<svg") == 1

    def test_seed_gives_the_same_last_step(self, folder: Path):
        simulated = face.simulate(
            folder / "room.toml", population="normal:21:3", devices=3000, seed=1, convergence=PictureContent()
        )
        assert simulated.convergence is not None
        last = simulated.convergence.steps[-1]
        assert last.reports == simulated.reports
        assert last.quantiles[0] == simulated.quantile(0.5).rows[0]
        rows = {row.name: row for row in simulated.histogram().rows}
        for row in last.shares:
            same = rows[row.name]
            assert (row.value, row.low, row.high, row.truth) == (same.value, same.low, same.high, same.truth)

    @pytest.mark.parametrize(
        ("more", "text"),
        [
            (("--devices", "49"), "a convergence picture needs 100 reports, not 98"),
            (
                ("--attack", "random:0.1"),
                "a convergence picture does not support fake devices; omit --attack",
            ),
            (("--range", "yes") * 7, "a convergence picture shows at most 6 ranges"),
            (("--output", "c.txt"), "c.txt must end in .csv, .json, .png, .pdf or .svg"),
        ],
    )
    def test_error_is_one_line(self, folder: Path, more, text):
        arguments = (
            "simulate",
            "door.toml",
            "--population",
            "weights:7:3",
            "--output",
            "convergence.png",
            *more,
        )
        assert text in hushmote(*arguments, cwd=folder, expect=1)
        assert not (folder / "convergence.png").exists()
