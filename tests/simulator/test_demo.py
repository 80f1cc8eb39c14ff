"""The demo on real temperatures."""

import json
from pathlib import Path

import pytest
from command_line import hushmote


def test_shows_the_truth_next_to_the_answers(tmp_path: Path):
    """With 2,000 readings, neighbouring intervals miss together; under 3 hits of 10 have chance < 1e-9."""
    line = ("demo", "--devices", "2000", "--broker", "embedded", "--json")
    result = json.loads(hushmote(*line, cwd=tmp_path))
    assert result["reports"] == 2000
    assert result["epsilon"] == 2
    assert result["intervals_that_hold_the_truth"] >= 0.3 * result["intervals"]
    for name in ("plot", "convergence"):
        assert (tmp_path / result[name]).stat().st_size > 20_000
    status = hushmote("status", "--store", f"sqlite:///{result['store']}", "--json", cwd=tmp_path)
    assert [line["reports"] for line in json.loads(status)["experiments"]] == [2000]


@pytest.mark.slow
def test_too_few_devices_are_one_line(tmp_path: Path):
    line = hushmote("demo", "--devices", "7", cwd=tmp_path, expect=1)
    assert line == "hushmote: --devices must be from 100 to 26115, the number of readings\n"


def test_last_line_is_the_answer(tmp_path: Path):
    lines = hushmote("demo", "--devices", "600", "--broker", "embedded", cwd=tmp_path).splitlines()
    answer = hushmote("estimate", "air_temp", "--store", "sqlite:///out/demo.sqlite", cwd=tmp_path)
    assert lines[-1] == answer.splitlines()[0]
