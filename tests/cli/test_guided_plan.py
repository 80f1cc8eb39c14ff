"""`hushmote plan` without options: five questions on a real terminal, a recommendation and a file."""

from pathlib import Path

import pytest
from command_line import Run, runner
from terminal import INTERRUPT, on_terminal

from hushmote.planning.answer import answer
from hushmote.planning.five_questions import asked, next_steps, recommendation
from hushmote.server.experiments.definition import load

FRIDGES = ["-30 to 34 °C", "20,000", "above 8 to 5 %", "80", "2 years, every hour"]


def test_five_answers_on_a_terminal_end_in_a_recommendation_and_a_file(tmp_path: Path):
    shown, status = on_terminal(["plan"], [*FRIDGES, ""], tmp_path)
    assert status == 0
    text = " ".join(shown.split())
    assert [f"{n}. " in text for n in range(1, 7)] == [True] * 5 + [False]
    assert "Which share of the devices reads 8 °C or more? Boards answer it with yes or no" in text
    assert "How private: Someone 10 % sure of a device's reading can become at most 80 % sure" in text
    assert "How exact: The share of yes is then known to ±" in text
    assert "What it costs: a device sends 2 reports of 10 bytes" in text
    assert "What next: plan.toml is written." in text
    definition = load(tmp_path / "plan.toml")
    assert (definition.name, definition.type) == ("plan", "bool")
    assert definition.purpose == "Which share of the devices reads 8 °C or more?"
    experiment = definition.experiment()
    assert experiment.cap == 3_583_000  # ln(0.8 / 0.2 * 9) = 3.5835
    assert "hushmote experiment show plan.toml" in text


def test_a_bad_answer_is_asked_again_and_enter_takes_what_is_proposed(tmp_path: Path):
    answers = ["sometimes", "", "many", "", "", "5", "", "soon", "", "y"]
    shown, status = on_terminal(["plan", "--output", "heating.toml"], answers, tmp_path)
    text = " ".join(shown.split())
    assert status == 0
    assert "Not understood: write yes/no, or different labels with commas" in text
    assert "Not understood: the number of devices is a whole number such as 20,000, not many." in text
    assert "Not understood: it was 10 % before: write what it may become at most" in text
    assert "Not understood: write for how long, and how often: 2 years, every hour." in text
    definition = load(tmp_path / "heating.toml")
    assert (definition.name, definition.owner, definition.type) == ("heating", "owner@example.org", "bool")
    assert definition.experiment().cap == 2_036_000


def test_ctrl_c_and_a_file_that_is_there_write_nothing(tmp_path: Path):
    shown, status = on_terminal(["plan"], ["", "", INTERRUPT], tmp_path)
    assert status in (1, 130)
    assert "hushmote: stopped" in shown
    assert list(tmp_path.iterdir()) == []
    shown, status = on_terminal(["plan"], [*FRIDGES, "n"], tmp_path)
    assert status == 0
    assert "Write plan.toml? [Y/n]" in shown
    assert "Nothing is written." in shown
    assert list(tmp_path.iterdir()) == []
    mine = tmp_path / "mine.toml"
    mine.write_text("mine")
    shown, status = on_terminal(["plan", "--output", "mine.toml"], [], tmp_path)
    assert status == 1
    assert "mine.toml is there already" in shown
    assert "1. What" not in shown
    assert mine.read_text() == "mine"


def test_in_a_pipe_it_says_which_options_to_give(tmp_path, monkeypatch):
    hushmote: Run = runner("plan", tmp_path, monkeypatch)
    text = hushmote(expect=1)
    assert "give three of --devices, --epsilon, --values and --error" in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        (["a, b", "50000", "5 %", "90", "1 year, every day"], "share of one value"),
        (["0 to 50 °C", "50000", "the median to 10 %", "90", "1y, 1d"], "The median is then known to"),
        (["0 to 50 °C", "50000", "everything", "90", "1y, 1d"], "The share of any range of bins is then"),
        (["yes/no", "2", "1 %", "12", "1 day, every hour"], "is not known at all: take more devices"),
    ],
)
def test_other_questions_are_answered_too(answers: list[str], says: str):
    left = iter(answers)
    wish, purpose = asked(lambda question, default: next(left))
    made = answer(wish)
    lines = recommendation(made, purpose)
    assert lines[0].startswith("\nYour wish cannot be met: ") == bool(made.not_met)
    assert says in "\n".join(lines)
    assert "yes or no, and send no number" not in lines[0]
    steps = next_steps(made, Path("my plan.toml"), "my_plan")
    assert "hushmote experiment show 'my plan.toml'" in steps[1]
    assert steps[-1].endswith("--experiments my_plan")
