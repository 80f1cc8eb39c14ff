"""The demo's questions on real flights: everything is counted, the truth is beside it, a sentence ends it."""

import functools
import json
from pathlib import Path

import pytest
from command_line import hushmote

from hushmote.server.words.epsilon import belief
from hushmote.simulator import demo_questions
from hushmote.simulator.demo_questions import airports

flights = functools.cache(demo_questions.flights)  # a second for all tests


@pytest.fixture(autouse=True)
def read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_questions, "flights", flights)


def test_flights_are_those_of_the_data_set():
    every = flights()
    assert len(every) == 327_346
    assert len({flight.destination for flight in every}) == 104
    assert sum(flight.delay for flight in every) / len(every) == pytest.approx(6.8954, abs=1e-4)
    assert len(airports()) == 1_458


@pytest.mark.parametrize("word", ["mean", "pairs", "labels"])
def test_a_question_is_answered_beside_the_truth(tmp_path: Path, word: str):
    """2,000 flights. Intervals miss 1 time in 20, correlated: fewer than 3 of 10 hits have less than 1e-9.

    A mean has two rows only, which both miss by more than two intervals 1e-9 of the time.
    """
    asked = ("demo", "--question", word, "--devices", "2000", "--broker", "embedded", "--json")
    found = json.loads(hushmote(*asked, cwd=tmp_path))
    assert found["reports"] == 2000
    assert found["in_words"].endswith(".")
    if word == "pairs":  # a report of 18 cells is right more often than not: it is no secret
        assert found["in_words"].endswith(belief(3, "pair of readings"))
    assert (tmp_path / found["plot"]).stat().st_size > 20_000
    rows = [row for one in found["answers"] for row in one["rows"]]
    assert len(rows) == found["intervals"]
    if len(rows) > 10:
        assert found["intervals_that_hold_the_truth"] >= 0.3 * len(rows)
    else:
        for row in rows:
            assert abs(row["value"] - row["truth"]) < 4 * (row["high"] - row["low"])
    again = hushmote("status", "--store", f"sqlite:///{found['store']}", "--json", cwd=tmp_path)
    assert [line["reports"] for line in json.loads(again)["experiments"]] == [2000]


def test_what_does_not_go_together_is_one_line(tmp_path: Path):
    line = hushmote("demo", "--question", "mean", "--page", cwd=tmp_path, expect=1)
    assert "the page shows the demo without --question" in line
    line = hushmote("demo", "--question", "mean", "--devices", "7", cwd=tmp_path, expect=1)
    assert line == "hushmote: --devices must be from 100 to 327346, the readings there are\n"


def test_its_last_line_is_the_answer(tmp_path: Path):
    shown = hushmote("demo", "--devices", "600", "--broker", "embedded", cwd=tmp_path).splitlines()
    asked = hushmote("estimate", "air_temp", "--store", "sqlite:///out/demo.sqlite", cwd=tmp_path)
    assert shown[-1] == asked.splitlines()[0]
