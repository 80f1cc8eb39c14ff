"""`hushmote estimate --candidates`: shares of texts that were listed after the reports were sent."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run, runner
from experiments import experiment_json, number_json
from filled_store import fill
from refusals import Refusal, refusals

from hushmote import open as open_store
from hushmote.device.ldp_client import Experiment
from hushmote.server.store import Store

WORDS = [f"1.{i}" for i in range(40)]
DAYS = ("2026-11-19", "2026-11-20", "2026-11-21")
REPORTS = 30_000  # per day


def text_json(salt: str, slots: int) -> bytes:
    around = {"name": "fw", "type": "text", "salt": salt, "slots": slots, "budget": {"rule": "unlimited"}}
    return experiment_json(**around, mechanism="olh", g=7, epsilon=2_000_000)


def shares(first: float) -> list[float]:
    """Return the words' shares: `first` for the first, and the rest divided by Zipf's law."""
    weights = 1 / np.arange(1.0, len(WORDS))
    return [first, *((1 - first) * weights / weights.sum())]


TRUE_SHARES = dict(zip(WORDS, shares(0.2), strict=True))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide fw over three days, with a new salt and more slots from the second day, and old on one day."""
    folder = tmp_path_factory.mktemp("candidates")
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as opened:
        for fleet, first in (("home", 0.2), ("old", 0.3)):
            for payload, days in ((text_json("a", 1024), DAYS[:1]), (text_json("b", 4096), DAYS[1:])):
                e = Experiment.parse(payload)
                population = np.zeros(e.domain)
                slots: Any = [e.bucket(word) for word in WORDS]
                np.add.at(population, slots, shares(first))
                fill(opened, fleet, payload, dict.fromkeys(days, REPORTS), population.tolist())
        fill(opened, "home", number_json(16), {DAYS[0]: 1000})
    return folder


@pytest.fixture
def hushmote(store: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("estimate", store, monkeypatch, "--fleet", "home")


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.txt"
    path.write_text("\n".join([*WORDS, "9.9", "ünlisted"]) + "\n", encoding="utf-8")
    return path


def ask(hushmote: Run, *arguments: str) -> list[dict]:
    (answer,) = json.loads(hushmote("fw", *arguments, "--json"))["answers"]
    return answer["rows"]


class TestEstimates:
    @pytest.mark.slow
    def test_combines_versions_with_different_salts(self, hushmote, words):
        """Each row must be within 6.5 standard errors; that fails by chance in less than 1 of 1e8 runs."""
        rows = ask(hushmote, "--candidates", str(words))
        *listed, others = rows
        assert {text for row in listed for text in row["texts"]} == {*WORDS, "9.9", "ünlisted"}
        for row in listed:
            true = sum(TRUE_SHARES.get(text, 0.0) for text in row["texts"])
            assert abs(row["value"] - true) < 6.5 * (row["high"] - row["low"]) / 3.92
        assert (others["name"], others["texts"], others["p"]) == ("all others", [], None)
        assert others["low"] < 0 < others["high"]
        values = [row["value"] for row in listed]
        assert values == sorted(values, reverse=True)
        assert listed[0]["name"] == "1.0"
        assert listed[0]["p_adjusted"] < 1e-10
        by_name = {row["name"]: row for row in listed}
        assert by_name["9.9"]["p_adjusted"] > 0.01

    @pytest.mark.slow
    def test_single_text_by_name(self, hushmote):
        first, others = ask(hushmote, "--range", "1.0")
        assert first["texts"] == ["1.0"]
        assert first["low"] < 0.2 < first["high"]
        assert others["value"] == pytest.approx(1 - first["value"])

    @pytest.mark.slow
    def test_combined_texts_share_a_row(self, hushmote):
        (row,) = ask(hushmote, "--range", "1.0", "--range", "1.1", "--range", "absent", "--together")
        assert row["texts"] == ["1.0", "1.1", "absent"]
        assert row["low"] < 0.2 + TRUE_SHARES["1.1"] < row["high"]

    @pytest.mark.slow
    def test_shows_trends_and_changes(self, hushmote):
        trend = ask(hushmote, "--range", "1.0", "--range", "1.1", "--trend")
        assert [row["window"] for row in trend] == [*DAYS, *DAYS]
        assert all(abs(row["value"] - TRUE_SHARES[row["name"]]) < (row["high"] - row["low"]) for row in trend)
        change = ask(hushmote, "--range", "1.0", "--range", "1.1", "--against", "fleet=old")
        by_name = {row["name"]: row for row in change}
        assert by_name["1.0"]["low"] < -0.1 < by_name["1.0"]["high"] < -0.05
        assert by_name["1.0"]["p_adjusted"] < 1e-6


class TestTextChanges:
    """The confidence stated for the intervals in a table of changed texts."""

    @pytest.mark.slow
    def test_states_confidence_of_each_interval(self, hushmote):
        """The interval for all other texts ignores common texts that share listed texts' slots."""
        text = hushmote("fw", "--range", "1.0", "--range", "1.1", "--against", "fleet=old")
        table, _, note = text.partition("all others")
        assert " interval" in table
        assert "95%" not in table
        note = " ".join(note.split())
        assert "The interval of a row with texts is right at least 95 times in 100." in note
        assert "The interval of all others is less reliable, and its p-value tends to be too small" in note


class TestOutput:
    @pytest.mark.slow
    def test_table_is_short_but_files_are_complete(self, hushmote, words, tmp_path):
        files = [tmp_path / "all.csv", tmp_path / "all.json"]
        arguments = [x for file in files for x in ("--output", str(file))]
        text = hushmote("fw", "--candidates", str(words), "--top", "5", *arguments)
        table = text.split("share of the fleet")[1].split("more rows")[0]
        assert sum(line.startswith("1.") for line in table.splitlines()) == 5
        assert "all others" in table
        assert "Name the texts" not in text
        assert "95%" not in table  # the interval for all other texts has a lower confidence
        assert "The intervals of all others and of all listed texts together are less reliable" in " ".join(
            text.split()
        )
        assert "more rows are in the table's CSV or JSON file." in text
        assert all(len(line) <= 80 for line in text.splitlines())
        rows = list(csv.DictReader(files[0].open(encoding="utf-8")))
        plain = json.loads(files[1].read_text(encoding="utf-8"))["answers"][0]["rows"]
        assert len(rows) == len(plain) > 35
        assert [json.loads(row["texts"]) for row in rows] == [row["texts"] for row in plain]
        assert [float(row["value"]) for row in rows] == [row["value"] for row in plain]

    @pytest.mark.slow
    def test_notebook_gives_same_answer(self, store: Path, hushmote, words):
        rows = ask(hushmote, "--candidates", str(words))
        with open_store(f"sqlite:///{store / 'hushmote.sqlite'}") as opened:
            answer = opened.fleet("home").experiment("fw").estimate().candidates([*WORDS, "9.9", "ünlisted"])
            assert [row.to_dict()["value"] for row in answer.rows] == [row["value"] for row in rows]
            assert "all others" in str(answer)
            assert "<td>1.0</td>" in answer._repr_html_()

    @pytest.mark.slow
    def test_writes_plot(self, hushmote, words, tmp_path):
        hushmote("fw", "--candidates", str(words), "--top", "12", "--output", str(tmp_path / "fw.png"))
        assert (tmp_path / "fw.png").read_bytes().startswith(b"\x89PNG")


def lines(count: int) -> bytes:
    return "\n".join(map(str, range(count))).encode()


class TestRefusals:
    @pytest.mark.slow
    @refusals(
        ("fw --candidates words.txt", "has no candidates: write one text per line", {"words.txt": b""}),
        ("fw --candidates words.txt", "has no candidates: write one text per line", {"words.txt": b"\n\r\n"}),
        (
            "fw --candidates words.txt",
            "line 2 is not UTF-8: save the file as UTF-8",
            {"words.txt": b"a\n\xff\n"},
        ),
        (
            "fw --candidates words.txt",
            "line 2: a candidate can have at most 255 bytes because boards ignore the rest; this one has 256",
            {"words.txt": b"a\n" + b"x" * 256},
        ),
        ("fw --candidates words.txt", "a is listed twice, on lines 1 and 3", {"words.txt": b"a\r\nb\na\n"}),
        (
            "fw --candidates words.txt",
            "has 1,048,577 candidates; list at most 1,048,576",
            {"words.txt": lines((1 << 20) + 1)},
        ),
        (
            "fw --candidates words.txt",
            "100,000 candidates fill the 1,024 slots of fw; list fewer",
            {"words.txt": lines(100_000)},
        ),
        command="estimate --fleet home",
    )
    def test_unusable_file(self, refusal: Refusal, store: Path):
        refusal.check(store)

    @pytest.mark.slow
    @refusals(
        ("fw", "fw answers only the shares of texts that you name: name them, with --candidates FILE"),
        ("fw --candidates absent.txt", "cannot read absent.txt: No such file or directory"),
        ("x --candidates many.txt", "x answers only shares, quantiles and its mean: omit --cand"),
        ("fw --range a --range a", "'a' is listed twice; name every candidate only once"),
        ("fw --candidates many.txt --trend", "a trend can show at most 20 texts, not 30; name the ones"),
        ("fw --range a --quantile 0.5", "texts that you name: omit --quantile"),
        ("fw --range a --post smooth", "texts that you name: omit --post"),
        (f"fw --range {'ä' * 128}", f"because boards ignore the rest; {'ä' * 20}... has 256"),
        command="estimate --fleet home",
        files={"many.txt": lines(30)},
    )
    def test_is_one_line(self, refusal: Refusal, store: Path):
        refusal.check(store)


class TestListedTexts:
    """Texts in the experiment's file, which `estimate` looks for unless others are named."""

    @pytest.fixture
    def listed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
        e = Experiment.parse(text_json("a", 1024))
        population = np.zeros(e.domain)
        slots: Any = [e.bucket(word) for word in WORDS]
        np.add.at(population, slots, shares(0.2))
        with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as opened:
            counted = dict.fromkeys(DAYS, REPORTS)
            fill(
                opened,
                "home",
                text_json("a", 1024),
                counted,
                population,
                asked="\n".join([*WORDS[:10], "9.9"]),
            )
            fill(opened, "home", number_json(16), {DAYS[0]: 1000})
        return runner("estimate", tmp_path, monkeypatch, "--fleet", "home")

    def test_are_estimated_by_default(self, listed):
        rows = ask(listed, "--top", "20")
        assert {text for row in rows for text in row["texts"]} == {*WORDS[:10], "9.9"}
        assert rows[0]["texts"] == ["1.0"]

    def test_named_texts_replace_them(self, listed, words):
        assert [row["texts"] for row in ask(listed, "--range", "1.1")] == [["1.1"], []]
        assert len(ask(listed, "--candidates", str(words))) > 35

    def test_have_trends_and_changes(self, listed):
        assert {row["name"] for row in ask(listed, "--trend")} == {*WORDS[:10], "9.9"}
        rows = ask(listed, "--window", DAYS[1], "--against", DAYS[0])
        assert {row["name"] for row in rows} >= {*WORDS[:10], "9.9"}

    def test_number_has_no_texts(self, listed):
        assert json.loads(listed("x", "--json"))["answers"][0]["kind"] == "histogram"
