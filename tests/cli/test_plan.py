"""`hushmote plan` as a planner sees it: tables, JSON, files that boards accept, and one-line errors."""

import contextlib
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from page_commands import command_examples, prints
from typer.testing import CliRunner

from hushmote.cli.plan import command as plan_cli
from hushmote.cli.plan import plot as plan_plot
from hushmote.cli.plan.run import WORKED_EXAMPLES
from hushmote.planning.devices import PlanError
from hushmote.planning.expected_error import Question
from hushmote.planning.experiment_file import name_from, nats
from hushmote.planning.request import PlanRequest, question_of, reading_of
from hushmote.server.answers.figure import figure as figure_of_answers
from hushmote.server.errors import UsageError
from hushmote.server.experiments.definition import load
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.words.epsilon import rounded_up

app = typer.Typer()
app.command()(plan_cli.plan_command)
LIFETIME = "--devices 20000 --lifetime 2 --horizon 2y --call 1h"


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def plan(line: str) -> str:
    result = CliRunner().invoke(app, shlex.split(line))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.stdout


def refusal(line: str) -> str:
    result = CliRunner().invoke(app, shlex.split(line))
    assert isinstance(result.exception, PlanError | UsageError), result.output + repr(result.exception)
    return str(result.exception)


class TestWorkedExamples:
    def test_plan_without_options_prints_them(self) -> None:
        printed = plan("")
        assert all(text in printed for example in WORKED_EXAMPLES for text in example)

    @pytest.mark.parametrize(
        ("question", "line", "sentence"),
        WORKED_EXAMPLES,
        ids=[question for question, _, _ in WORKED_EXAMPLES],
    )
    def test_match_their_commands(self, question: str, line: str, sentence: str) -> None:
        assert question.endswith("?")
        assert " ".join(plan(line.removeprefix("hushmote plan")).split()).startswith(sentence)


class TestHistogramEpsilon:
    @pytest.mark.slow
    def test_is_shown_with_limits(self) -> None:
        line = "--devices 26000 --epsilon 2 --values 64"
        result = json.loads(plan(line + " --json"))["histogram"]
        assert result["epsilon"] < 0.1
        assert (result["delta"], result["reports"], result["own_reports"]) == (1e-6, 26_000, 1)
        text = " ".join(plan(line).split())
        output = (
            f"{result['epsilon']:.3g} of the histogram (δ = 1e-06), against whoever sees histograms only; not"
        )
        assert output in text
        lifetime = LIFETIME + " --values yes-no"
        windows = json.loads(plan(lifetime + " --json"))["histograms"]
        assert [w["window"] for w in windows] == ["a day", "a week", "30 days", "all of it"]
        text = " ".join(plan(lifetime).split())
        day, week, month, all_of_it = (f"{rounded_up(w['epsilon'])} of" for w in windows)
        assert f"{day} the last day, {week} the last week, {month} the last 30 days, {all_of_it} all" in text
        assert "not against the broker, the aggregator's operator or the database's journal" in text

    @pytest.mark.slow
    def test_can_be_the_target(self) -> None:
        line = "--devices 26000 --values 16 --histogram-epsilon 0.05"
        result = json.loads(plan(line + " --json"))
        assert result["solved"] == "error"
        assert result["histogram"]["epsilon"] <= result["histogram"]["wanted"] == 0.05 < result["epsilon"]
        text = " ".join(plan(line).split())
        assert (
            f"ε {result['epsilon']:g} of a report, the largest that keeps the histogram at 0.05; "
            "against" in text
        )
        weaker = json.loads(plan(line + " --delta 1e-4 --json"))
        assert weaker["histogram"]["delta"] == 1e-4
        assert weaker["epsilon"] > result["epsilon"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("line", "text"),
        [
            ("--json", "give three of devices, epsilon, values and error"),
            ("--devices 1000", "add two of epsilon (2 is a common choice) or values or error"),
            ("--values 16 --error 0.1 --histogram-epsilon 0.1", "requires --devices and --values"),
            ("--devices 1000 --values 16 --error 0.1 --histogram-epsilon 0.1", "and no error"),
            ("--devices 1000 --values 16 --epsilon 1 --histogram-epsilon 0.1", "omit --epsilon"),
            ("--devices 1000 --values 16 --histogram-epsilon 1e-9", "use more devices"),
            ("--devices 1000 --values 16 --histogram-epsilon 0.1 --delta 2", "delta"),
            ("--devices 1 --values 16 --histogram-epsilon 0.1", "devices must be from 2"),
            (LIFETIME + " --values yes-no --histogram-epsilon 0.1", "omit --lifetime"),
            ("--devices 1000 --epsilon nan --values 16", "epsilon must be a number"),
            ("--devices 1000 --epsilon 1 --values a,,b", "not empty"),
            ("--devices 1000 --epsilon 1 --values a,other", "omit it"),
            ("--devices 1000 --epsilon 1 --values a,b --for range", "requires a number"),
            ("--devices 1000 --epsilon 1 --values 16 --range 5:2", "reversed"),
            ("--devices 1000 --epsilon 1 --values a,b --for mean", "a mean requires a number"),
            ("--devices 1000 --epsilon 1 --values 16 --for mean --share 0.2", "give --deviation"),
            (
                "--devices 1000 --epsilon 1 --values 16 --deviation 0.2",
                "--deviation applies to a mean, not to a range",
            ),
            (
                "--devices 1000 --epsilon 1 --values 16 --for mean --deviation 0.6",
                "from 0 to half of the range, not 0.6 of it",
            ),
            (
                "--epsilon 1 --values 16 --for mean --error 0.6s",
                "--error 0.6s requires a mean or a quantile with --low",
            ),
            ("--epsilon 1 --values 16 --for mean --error 0.6", "error must be a part of the range"),
            ("--devices 1000 --epsilon 1 --values 16 --range five", "must be low:high"),
            ("--devices 1000 --epsilon 1 --values 16 --range :", "not cover all of it"),
            ("--devices 1000 --epsilon 1 --range 1:2 --error 0.2", "--range requires --values"),
            ("--devices 1000 --epsilon 1 --values 16 --range 16", "from 1 to 15"),
            ("--devices 1000 --epsilon 1 --values 16 --range 2 --range 1:2", "not both"),
            ("--devices 1000 --epsilon 1 --values 16 --error much", "an error must be a number"),
            ("--devices 1000 --epsilon 1 --values 16 --share 2", "from 0 to 1"),
            ("--devices 1000 --epsilon 1 --values 16 --quantile 1.5", "a quantile must be between 0 and 1"),
            ("--devices 1000 --epsilon 1 --values 16 --quantile 0.5 --share 0.5", "--quantile 0.9"),
            ("--devices 1000 --epsilon 1 --values 16 --low 2 --high 1", "must be below"),
            (
                "--devices 1000 --epsilon 1 --values 16 --statistics pairs",
                "frequencies, ranges, quantiles and mean",
            ),
            ("--devices 1000 --values 16 --for quantile --error 1s", "--error 1s requires"),
            (
                "--devices 1000 --values 16 --for quantile --low 0 --high 1 --unit s --error 9s",
                "between 0 and 0.3",
            ),
            (
                "--devices 1000 --epsilon 1 --values 16 --plot plan.txt",
                "must end in .toml, .png, .pdf or .svg",
            ),
            (
                "--devices 1000 --epsilon 1 --values 16 --output /nowhere/e.toml --low 0 --high 1",
                "folder /nowhere does not exist",
            ),
            ("--devices 1000 --epsilon 1 --values 16 --output e.toml", "--low and --high"),
            (LIFETIME, "requires --values, and --devices or --error"),
            (LIFETIME + " --values 16 --epsilon 1", "omit --epsilon"),
            (LIFETIME + " --values 16 --limit 0", "from 0.001 to 16"),
            ("--devices 1000 --lifetime 2 --values 16", "requires --horizon and --call"),
            ("--devices 1000 --lifetime 1 --values 16 --horizon soon --call 1d", "a duration must be like"),
            ("--rise 0.03", "--rise needs --release: add --release or omit --rise"),
            ("--worse-by 0.03", "--worse-by needs --release"),
            ("--decimal ,", "--decimal says how to read --input: add --input FILE:COLUMN, or omit --decimal"),
            (LIFETIME + " --values yes-no --keep-value -200", "--keep-value says how to read --input"),
            ("--pack release --devices 10000 --decimal ,", "--decimal says how to read --input"),
            ("--release --rise 0.03 --keep-value 3", "--keep-value says how to read --input"),
            ("--devices 1000 --epsilon 1 --values yes-no --unit °C", "--unit applies only to a number"),
            ("--devices 1000 --epsilon 1 --values a,b --unit °C", "--unit applies only to a number"),
            ("--release --devices 200", "--release needs --rise, such as --rise 0.03"),
            ("--release --rise 0.03 --devices 20000 --output x.toml", "neither reads nor writes files"),
        ],
    )
    def test_is_one_line(self, line: str, text: str) -> None:
        message = refusal(line)
        assert text in message
        assert "\n" not in message


class TestUnits:
    def test_error_is_share_times_density(self) -> None:
        common = "--epsilon 1 --values 32 --quantile 0.5 --json"
        by_unit = json.loads(plan(f"{common} --low 0 --high 50 --unit C --error 1C"))
        by_share = json.loads(plan(f"{common} --error 0.02"))
        assert by_unit["devices"] == by_share["devices"]
        assert by_unit["half_width_95_in_unit"] == pytest.approx(1, rel=1e-3)
        assert by_unit["half_bin_in_unit"] == pytest.approx(50 / 64)

    def test_mean_error_as_share_of_range_or_in_unit(self) -> None:
        common = "--epsilon 1 --values 64 --for mean --low -20 --high 44 --unit °C"
        by_unit = json.loads(plan(f"{common} --error 0.64°C --json"))
        by_part = json.loads(plan(f"{common} --error 0.01 --json"))
        assert by_unit["devices"] == by_part["devices"]
        assert by_unit["half_width_95_in_unit"] == pytest.approx(64 * by_unit["half_width_95"])
        assert by_unit["half_bin_in_unit"] == 0.5
        printed = " ".join(plan(f"{common} --devices 20000").split())
        assert "The mean is then known to" in printed
        assert "% of the range, 95 times in 100" in printed
        assert "°C; half a bin is 0.5" in printed
        narrow = json.loads(plan(f"{common} --devices 20000 --deviation 4 --json"))
        assert narrow["spread"] == 4 / 64
        assert narrow["half_width_95"] < json.loads(plan(f"{common} --devices 20000 --json"))["half_width_95"]

    def test_apply_to_ranges(self) -> None:
        for request, indices in (
            (PlanRequest(ranges=["0:"], values=10, low=-5, high=5), (5, 10)),
            (PlanRequest(ranges=["2:4"], values=10), (2, 4)),
        ):
            assert question_of(request, reading_of(request)) == Question(ranges=(indices,))


class TestLifetime:
    def test_devices_for_error_are_the_minimum(self) -> None:
        common = "--lifetime 2 --horizon 1y --call 1h --values yes-no --error 0.04 --json"
        for place, needed in enumerate(
            json.loads(plan(f"--devices 20000 {common}"))["devices_for_error"].values()
        ):
            for devices, meets in ((needed, True), (needed - 1, False)):
                best = json.loads(plan(f"--devices {devices} {common}"))["best"]
                assert (best["windows"][place]["half_width_95_last"] <= 0.04) is meets

    def test_describes_all_reports_from_a_board(self) -> None:
        two = plan("--devices 20000 --lifetime 2.9 --horizon 2y --call 1h --values yes-no --share 0.3")
        assert "from 10% to at most 67%" in " ".join(two.split())  # e^2.9 / 9
        output = plan(LIFETIME + " --values yes-no --delta 1e-6 --limit 0.1")
        assert "All reports of a device together are (2, 1e-06)-LDP. One report can raise" in " ".join(
            output.split()
        )


class TestFile:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("line", "reading"),
        [
            (LIFETIME + " --values yes-no", "bool"),
            (LIFETIME + " --values open,shut", "choice"),
            (LIFETIME + " --values 16 --low -20 --high 12.5 --unit °C", "number"),
            pytest.param(
                LIFETIME + " --values 16 --low 0 --high 1 --limit 0.02 --delta 1e-6",
                "number",
                id="limit and delta",
            ),
            ("--devices 9000 --epsilon 1 --values 16 --low 0 --high 10", "number"),
            ("--devices 9000 --epsilon 1 --values a,b --for frequency", "choice"),
            ("--devices 9000 --epsilon 1 --values 16 --for mean --low 0 --high 10", "number"),
            (LIFETIME + " --values 16 --low 0 --high 1 --for mean", "number"),
        ],
    )
    def test_matches_plan(self, line: str, reading: str, tmp_path: Path) -> None:
        path = tmp_path / "My fridges!.toml"
        result = json.loads(plan(f"{line} --json --output '{path}'"))
        definition = load(path)
        experiment = definition.experiment()
        definition.check_not_expired()
        assert (definition.name, definition.owner, definition.type) == (
            "my_fridges",
            "owner@example.org",
            reading,
        )
        best = result.get("best", result)
        assert experiment.epsilon / 1e6 == best["epsilon"]
        assert experiment.every == best.get("every", 1)
        assert (experiment.mechanism, experiment.domain) == (best["mechanism"], result["domain"])
        fields = mechanism_of(experiment).fields()
        assert {name: best.get(name, value) for name, value in fields.items()} == fields
        assert experiment.cap // experiment.cost() == best.get("reports_per_device", 1)
        if "lifetime_epsilon" in result and experiment.rule == "sum":
            assert experiment.cap <= result["lifetime_epsilon"] * 1e6

    def test_is_never_overwritten(self, tmp_path: Path) -> None:
        path = tmp_path / "e.toml"
        path.write_text("mine")
        assert "already exists" in refusal(f"{LIFETIME} --values yes-no --output {path}")
        assert path.read_text() == "mine"

    def test_formats_names_and_nats(self) -> None:
        assert name_from(Path("a/Cold Room (2).toml")) == "cold_room_2"
        assert name_from(Path("°.toml")) == "planned"
        assert [nats(n) for n in (1, 4_000_000, 1_333_333)] == ["0.000001", "4.0", "1.333333"]


class TestOutput:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "line",
        [
            "--devices 100000 --epsilon 1 --values 16",
            "--devices 20000 --epsilon 1 --error 0.05 --for frequency",
            "--devices 20000 --values 16 --error 0.05 --range 3:8 --range 12:",
            "--epsilon 1 --values 32 --error 0.02 --quantile 0.9 --low -20 --high 60 --unit °C",
            "--epsilon 1 --values cooling,heating,idle --error 0.01",
            pytest.param(
                LIFETIME + " --values 16 --for quantile --low 0 --high 40 --delta 1e-6 --error 0.02",
                id="quantile over a lifetime",
            ),
            "--devices 20000 --epsilon 1 --values 64 --for mean --low -20 --high 44 --unit °C --deviation 4",
            pytest.param(
                LIFETIME + " --values 16 --for mean --low 0 --high 40 --unit C --error 0.5C",
                id="mean over a lifetime",
            ),
            LIFETIME + " --values yes-no",
            "--devices 5000 --lifetime 1 --horizon 1y --call 1w --values 16",
            "--devices 5000 --lifetime 1 --horizon 10h --call 1h --values 16",
        ],
    )
    def test_tables_fit_80_columns(self, line: str) -> None:
        printed = plan(line)
        assert "mechanism" in printed
        assert "…" not in printed
        assert max(len(text) for text in printed.splitlines()) <= 80

    def test_json_and_table_agree(self) -> None:
        line = "--epsilon 1 --values 16 --error 0.02 --for frequency"
        result = json.loads(plan(line + " --json"))
        assert result["solved"] == "devices"
        assert result["half_width_95"] <= 0.02
        assert f"{result['devices']:,}   <- the answer" in plan(line)

    @pytest.mark.slow
    def test_writes_plots(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        left_axes: list[Axes] = []

        @contextlib.contextmanager
        def figure(path: Path, columns: int) -> Iterator[tuple[Figure, list[Axes]]]:
            with figure_of_answers(path, columns=columns) as (drawing, axes):
                left_axes.append(axes[0])
                yield drawing, axes

        monkeypatch.setattr(plan_plot, "figure", figure)
        texts = list[str]()
        for number, line in enumerate(
            ("--devices 9000 --epsilon 1 --values 16", LIFETIME + " --values yes-no")
        ):
            path = tmp_path / f"{number}.png"
            texts.append(plan(f"{line} --plot {path}"))
            assert path.stat().st_size > 20_000
        # The largest points are those of the best way, which the table marks.
        (best,) = re.findall(r"^> +([\d,]+) +(\S+)", texts[-1], re.M)
        points = [line for line in left_axes[-1].lines if line.get_marker() == "o"]
        size = max(line.get_markersize() for line in points)
        (row,) = {int(np.ravel(line.get_ydata())[0]) for line in points if line.get_markersize() == size}
        assert left_axes[-1].get_yticklabels()[row].get_text() == " × ".join(best)

    @pytest.mark.slow
    def test_matches_documentation(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pairs = command_examples((Path(__file__).parents[2] / "docs/planning.md").read_text("utf-8"), "plan")
        assert len(pairs) == 2
        monkeypatch.chdir(tmp_path)
        for (_, *arguments), expected in pairs:
            output = plan(shlex.join(arguments))
            assert prints(output, expected), output

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            (
                "--epsilon 2 --values yes-no --error 0.02",
                "Use 4,140 devices, each with one report of ε = 2.",
            ),
            (
                "--devices 4140 --values yes-no --error 0.02",
                "Use ε = 2 for one report from each of 4,140 devices.",
            ),
            (
                "--devices 4140 --values yes-no --epsilon 2",
                "The share of yes is then known to ±2 points, 95 times in 100.",
            ),
            (
                "--devices 500 --values 16 --epsilon 0.1",
                "cannot be estimated then; use more devices, a larger ε or fewer",
            ),
            ("--devices 900 --values yes-no --epsilon 0.2", "The share of yes cannot be estimated then"),
            (
                LIFETIME + " --values yes-no --share 0.05",
                "Let a device make 1 report of ε = 2 in its lifetime. One call in 17,513",
            ),
            (
                LIFETIME + " --values yes-no --share 0.05 --error 0.2",
                "±20 points is met with at least a week of reports.",
            ),
            (
                LIFETIME + " --values yes-no --share 0.05 --error 0.001",
                "±0.1 points is not met by 30 days alone; that would take",
            ),
        ],
    )
    def test_answer_is_first_sentence(self, line: str, expected: str) -> None:
        text = plan(line)
        answer = " ".join(text.split("\n\n")[0].split())
        assert expected in answer
        assert "confidence in a guess about the reading from 10% to at most" in answer
        assert " ".join(json.loads(plan(line + " --json"))["answer"]) == answer
        assert text.rstrip().splitlines()[-1].startswith("next: ")

    @pytest.mark.slow
    def test_labels_have_no_median_or_range(self):
        for line in ("--devices 20000 --epsilon 2 --values a,b,c,d", f"{LIFETIME} --values a,b,c,d"):
            text = plan(line)
            assert "value" in text
            assert "median" not in text
            assert "range" not in text
        assert "median" in plan("--devices 20000 --epsilon 2 --values 5")
