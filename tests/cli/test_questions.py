"""`hushmote questions` and `hushmote plan --pack`: their tables in 80 columns, and JSON."""

import json
from pathlib import Path

import pytest
from command_line import hushmote

from hushmote.planning import library
from hushmote.server.experiments.definition import parse


class TestQuestions:
    def test_table_fits_80_columns(self, tmp_path: Path):
        output = hushmote("questions", cwd=tmp_path)
        assert max(map(len, output.splitlines())) <= 80
        for name in (*library.QUESTIONS, *library.PACKS):
            assert name in output

    def test_json_agrees_with_the_table(self, tmp_path: Path):
        output = hushmote("questions", cwd=tmp_path)
        values = json.loads(hushmote("questions", "--json", cwd=tmp_path))
        assert [row["name"] for row in values["questions"]] == list(library.QUESTIONS)
        errors = values["questions"][0]["error"]
        assert errors["10000"] == pytest.approx(0.0278, abs=5e-5)
        assert "2.78" in output
        assert {name: tuple(members) for name, members in values["packs"].items()} == library.PACKS

    def test_prints_a_file_to_edit(self, tmp_path: Path):
        assert hushmote("questions", "crashed", cwd=tmp_path) == library.question_text("crashed")
        text = hushmote("questions", "std:feature", "--name", "dark_mode", cwd=tmp_path)
        assert parse(text).name == "dark_mode"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("nothing",), "no question nothing; it has crashed, "),
            (("crashed", "--json"), "omit --json"),
            (("--name", "x"), "need a question"),
            (("feature", "--name", "Dark Mode"), "name"),
        ],
    )
    def test_refusals(self, tmp_path: Path, arguments: tuple[str, ...], message: str):
        assert message in hushmote("questions", *arguments, cwd=tmp_path, expect=1)


class TestPlan:
    LINE = ("plan", "--pack", "release", "--devices", "20000", "--horizon", "5y")

    def test_table_of_a_pack(self, tmp_path: Path):
        output = hushmote(*self.LINE, cwd=tmp_path)
        assert max(map(len, output.splitlines())) <= 80
        row = next(line for line in output.splitlines() if line.startswith("crashed "))
        assert row.split() == ["crashed", "yes", "1.97", "3.41", "6.81"]
        assert "next: hushmote experiment add pack:release --owner" in output

    def test_json_has_every_quarter(self, tmp_path: Path):
        values = json.loads(hushmote(*self.LINE, "--json", cwd=tmp_path))
        crashed = values["questions"][0]
        assert len(crashed["reports_in_quarters"]) == values["quarters"] == 20
        assert crashed["by_size"]["3"] == crashed["last_quarter"] == pytest.approx(0.0341, abs=5e-5)
        assert crashed["spent_evenly"] == pytest.approx(0.0240, abs=5e-5)
        assert values["policy"]["experiments"] == ["crashed", "update", "days_behind"]

    def test_questions_and_files_together(self, tmp_path: Path):
        text = library.customize("signal", rename="mine")
        (tmp_path / "mine.toml").write_text(text)
        output = hushmote(
            "plan", "--question", "std:crashed", "--question", "mine.toml", "--devices", "9k", cwd=tmp_path
        )
        assert "of 2" in output
        assert "mine" in output

    @pytest.mark.parametrize("more", [("--release",), ("--output", "x.toml"), ("--values", "3")])
    def test_other_options_are_refused(self, tmp_path: Path, more: tuple[str, ...]):
        assert "omit" in hushmote(*self.LINE, *more, cwd=tmp_path, expect=1)
