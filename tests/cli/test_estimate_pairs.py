"""`hushmote estimate` of a pair: default output, one part given another, differences and errors."""

import csv
import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from command_line import Run, runner
from experiments import experiment_json
from filled_store import fill
from refusals import Refusal, refusals

from hushmote.server.store import Store

VERSIONS, RATES = np.array([0.3, 0.6, 0.1]), np.array([0.20, 0.05, 0.10])
SHARES = np.stack([VERSIONS * (1 - RATES), VERSIONS * RATES], axis=1).ravel()
PARTS = [{"name": "version", "type": "choice", "labels": ["1.2", "1.3"]}, {"name": "crashed", "type": "bool"}]
DAYS = ("2026-11-19", "2026-11-20")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide two days of a pair, in versions with different mechanisms, and a bool: 50,000 reports each."""
    folder, windows = tmp_path_factory.mktemp("pairs"), dict.fromkeys(DAYS, 50_000)
    fields = {"name": "crash_by_version", "type": "pair", "of": PARTS, "epsilon": 4_000_000}
    views = {"mechanism": "views", "views": [[0], [0, 1]], "cells": [3, 6]}
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as opened:
        fill(opened, "home", experiment_json(**fields, mechanism="grr"), windows, SHARES)
        fill(opened, "home", experiment_json(**fields, **views), windows, SHARES, seed=2)
        fill(opened, "home", experiment_json(name="door", epsilon=4_000_000), windows, (0.7, 0.3))
    return folder


@pytest.fixture
def hushmote(store: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("estimate", store, monkeypatch)


def ask(hushmote: Run, *arguments: str) -> list[dict]:
    return json.loads(hushmote("crash_by_version", *arguments, "--json"))["answers"]


def near(row: dict, truth: float) -> None:
    """Check that a row is within 7 standard errors of the truth; chance alone fails with 3e-12."""
    assert abs(row["value"] - truth) <= 7 / 1.96 * (row["high"] - row["low"]) / 2


@pytest.mark.slow
def test_default_shows_all_tables_in_80_columns(hushmote):
    answers = ask(hushmote)
    assert [a["kind"] for a in answers] == ["joint", "marginal", "marginal", "conditional"]
    assert answers[0]["reports"] == 200_000
    for row, truth in zip(answers[0]["rows"], SHARES, strict=True):
        near(row, truth)
    for row, truth in zip(answers[3]["rows"], RATES, strict=True):
        near(row, truth)
    text = hushmote("crash_by_version")
    assert max(map(len, text.splitlines())) <= 80
    assert "crashed=yes given each version" in text
    assert f"{100 * answers[0]['rows'][0]['value']:.2f}" in text


def test_conditional_shares(hushmote):
    (answer,) = ask(hushmote, "--of", "crashed=yes", "--given", "version=1.2|1.3")
    (row,) = answer["rows"]
    near(row, (0.3 * 0.2 + 0.6 * 0.05) / 0.9)
    (answer,) = ask(hushmote, "--of", "version", "--given", "crashed=yes")
    assert sum(row["value"] for row in answer["rows"]) == pytest.approx(1)
    assert answer["title"] == "version given crashed=yes"


def test_difference_between_two_conditions(hushmote):
    both, less = ask(hushmote, "--of", "crashed=yes", "--given", "version=1.2", "--given", "version=1.3")
    near(less["rows"][0], 0.15)
    assert less["rows"][0]["p"] < 1e-9
    assert less["rows"][0]["first"] == both["rows"][0]["value"]
    text = hushmote("crash_by_version", "--given", "version=1.2", "--given", "version=1.3")
    assert "version=1.2 less version=1.3" in text


@pytest.mark.slow
def test_changes_and_trends(hushmote):
    (change,) = ask(hushmote, "--window", DAYS[1], "--against", DAYS[0], "--of", "crashed")
    assert change["kind"] == "change"
    for row in change["rows"]:
        near(row, 0.0)
    (trend,) = ask(hushmote, "--trend", "--of", "crashed=yes", "--given", "version=1.3")
    assert [row["window"] for row in trend["rows"]] == list(DAYS)
    assert trend["p_values"]["version=1.3"] > 1e-9


@pytest.mark.slow
def test_pictures_tables_and_files_agree(hushmote, tmp_path):
    paths = [tmp_path / name for name in ("a.png", "a.csv", "a.json")]
    hushmote("crash_by_version", "--joint", *(x for path in paths for x in ("--output", str(path))))
    assert matplotlib.image.imread(paths[0]).ndim == 3
    rows = list(csv.DictReader(paths[1].read_text().splitlines()))
    (answer,) = json.loads(paths[2].read_text())["answers"]
    assert [(r["part_version"], r["part_crashed"]) for r in rows][:2] == [("1.2", "no"), ("1.2", "yes")]
    assert [float(r["value"]) for r in rows] == [r["value"] for r in answer["rows"]]


@refusals(
    ("crash_by_version --range 1.2", "use --of and --given, as in --of crashed --given version"),
    ("crash_by_version --quantile 0.5", "omit --quantile"),
    ("crash_by_version --top 3", "omit --top"),
    ("crash_by_version --post nonnegative", "omit --post"),
    ("crash_by_version --of crashed=maybe", "crashed has no label maybe; it has no, yes"),
    ("crash_by_version --given weather", "has no part weather; it has version, crashed"),
    ("door --of crashed=yes", "omit --of, --given and --joint"),
    ("crash_by_version --given version=1.2 --given x", "a condition must be part=value"),
    (
        "crash_by_version --given crashed --given crashed --given crashed",
        "--given can be given once, or twice",
    ),
    command="estimate",
)
def test_refusal_is_one_line(refusal: Refusal, store: Path):
    refusal.check(store)
