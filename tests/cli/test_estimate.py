"""`hushmote estimate` as an analyst uses it: windows, fleets, versions, changes, trends and errors."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import Run, hushmote_process, runner
from designs import bell, choice_payload, number_payload
from filled_store import fill
from refusals import Refusal, refusals
from sqlalchemy import Engine, event

from hushmote.server.answers.answer import Answers
from hushmote.server.answers.ask import ask as reply
from hushmote.server.answers.query import Facts
from hushmote.server.answers.question import Question
from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.hints import use_interface
from hushmote.server.store import Store

MODES = (0.6, 0.3, 0.1, 0.0)
PAIR = ("--fleet", "home", "--against", "fleet=lab")
DAYS = ("2026-11-19", "2026-11-20", "2026-11-21")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide two fleets over three days: a number in two versions and a choice, 20,000 reports a day."""
    folder = tmp_path_factory.mktemp("estimates")
    with Store(f"sqlite:///{folder / 'hushmote.sqlite'}") as opened:
        for fleet, shift in (("home", 0), ("lab", 3)):
            bells = {day: bell(32, 12 + shift + 2 * n, 4) for n, day in enumerate(DAYS)}
            for seed, epsilon in enumerate((1, 2)):
                payload = number_payload(32, epsilon, 0, 32_000, "temp")
                fill(opened, fleet, payload, dict.fromkeys(DAYS, 20_000), bells, seed=shift + seed)
            modes = choice_payload(["idle", "heating", "door"], 2)
            fill(opened, fleet, modes, dict.fromkeys(DAYS, 20_000), MODES)
    return folder


@pytest.fixture
def hushmote(store: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner("estimate", store, monkeypatch, "--fleet", "home")


def ask(hushmote, *arguments: str) -> dict:
    return json.loads(hushmote(*arguments, "--json"))


class TestChanges:
    @pytest.mark.slow
    def test_compares_with_earlier_day_and_other_fleet(self, store: Path, hushmote):
        """Means differ by 4 and 3 degrees; their standard errors are below 0.5, and six of them mean 2e-9."""
        since = ask(hushmote, "temp", "--window", DAYS[2], "--against", DAYS[0])
        mean = since["answers"][1]["rows"][0]
        assert (since["answers"][0]["kind"], mean["name"]) == ("change", "mean")
        assert abs(mean["value"] - 4) < 6 * 0.5
        assert mean["p_adjusted"] < 1e-3
        fleets = ask(hushmote, "temp", "--against", "fleet=lab", "--quantile", "0.5")
        assert abs(fleets["answers"][1]["rows"][0]["value"] + 3) < 6 * 0.5
        text = hushmote("temp", "--against", "fleet=lab")
        assert "against fleet lab" in " ".join(text.split())
        assert max(map(len, text.splitlines())) <= 80

    @pytest.mark.slow
    def test_trend_has_every_window(self, store: Path, hushmote):
        result = ask(hushmote, "temp", "--trend", "--range", "16:")
        (share,) = result["answers"]
        assert [row["window"] for row in share["rows"]] == list(DAYS)
        assert [row["value"] for row in share["rows"]] == sorted(row["value"] for row in share["rows"])
        assert [answer["quantity"] for answer in ask(hushmote, "temp", "--trend")["answers"]] == ["reading"]
        table = " ".join(hushmote("temp", "--trend", "--range", "16:").split())
        assert re.search(r"16 and above \d+\.\d+% ▁[▂▃▄▅▆▇]█ \d+\.\d+%", table)
        assert hushmote("temp", "--trend", "--range", "16:", "--rows", "9").count("\n2026-11-") == len(DAYS)
        days = ask(hushmote, "temp", "--by", "day", "--range", "16:", "--window", f"{DAYS[0]}..{DAYS[-1]}")
        assert [row["window"] for row in days["answers"][0]["rows"]] == list(DAYS)
        modes = ask(hushmote, "mode", "--trend")
        assert {row["name"] for row in modes["answers"][0]["rows"]} == {"idle", "heating", "door", "other"}

    @pytest.mark.slow
    def test_accept_quantiles_and_cdf(self, store: Path, hushmote):
        """The median rises by 2 bins a day; an interval is 4 bins off with probability below 1e-9."""
        trend = ask(hushmote, "temp", "--trend", "--quantile", "0.5", "--quantile", "0.9")["answers"]
        assert [answer["kind"] for answer in trend] == ["trend"]
        medians = [row for row in trend[0]["rows"] if row["name"] == "median"]
        assert [row["window"] for row in medians] == list(DAYS)
        assert medians[0]["value"] < medians[1]["value"] < medians[2]["value"]
        assert all(row["low"] < row["value"] < row["high"] for row in medians)
        assert trend[0]["p_values"]["median"] < 1e-6
        change = ask(hushmote, "temp", "--against", "fleet=lab", "--cdf")["answers"]
        below = change[1]["rows"]
        assert (len(below), below[11]["name"]) == (31, "below 12")
        assert below[11]["value"] > 0.05


class TestOutput:
    @pytest.mark.slow
    def test_format_follows_suffix_and_never_overwrites(
        self, store: Path, hushmote, monkeypatch: pytest.MonkeyPatch
    ):
        arguments = ("mode", "--top", "2", "--post", "nonnegative", "--output", "a.csv", "--output", "a.png")
        text = hushmote(*arguments, "--plot", "a.json")
        assert all(words in text for words in ("belongs there", "nonnegative"))
        assert {line["kind"] for line in csv.DictReader((store / "a.csv").open())} == {"histogram", "top"}
        assert (store / "a.png").read_bytes().startswith(b"\x89PNG")
        assert json.loads((store / "a.json").read_text()) == ask(hushmote, *arguments[:5])
        (store / "a.csv").write_text("mine")
        for also in ("a.csv", "a.png"):
            message = hushmote("mode", "--output", "new.json", "--output", also, expect=1)
            assert f"{also} already exists" in message
        assert (store / "a.csv").read_text() == "mine"
        assert not (store / "new.json").exists()
        monkeypatch.setenv("HUSHMOTE_OVERWRITE", "1")
        hushmote("mode", "--output", "a.csv")
        assert (store / "a.csv").read_text().startswith("kind,")

    @refusals(
        ("a.txt", "a.txt must end in .csv, .json, .png, .pdf or .svg"),
        ("none/a.csv", "cannot write none/a.csv: folder none does not exist"),
        ("none/a.png", "cannot write none/a.png"),
        command="estimate nothing --output",
    )
    def test_rejects_file_before_reading_store(self, refusal: Refusal, store: Path):
        refusal.check(store)

    @pytest.mark.slow
    def test_picture_shows_named_tables(self, store: Path, hushmote, monkeypatch: pytest.MonkeyPatch):
        pictured: list[list[str]] = []
        draw = Answers.plot

        def noting(self: Answers, *arguments: object, **options: object) -> object:
            pictured.append([answer.kind for answer in self])
            return draw(self, *arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(Answers, "plot", noting)
        monkeypatch.setenv("HUSHMOTE_OVERWRITE", "1")
        for options in ((), ("--cdf",), ("--quantile", "0.5", "--range", "4:8"), ("--trend",)):
            hushmote("temp", *options, "--output", "b.svg")
        assert pictured == [["histogram"], ["cdf"], ["ranges", "quantiles"], ["trend"]]

    @pytest.mark.slow
    def test_ends_with_privacy_exactness_and_next_step(self, store: Path, hushmote):
        text = " ".join(hushmote("temp", "--window", DAYS[0], "--unit", "°C").split())
        assert "Privacy: One report can raise someone's confidence in a guess about the reading" in text
        assert "How exact: A share is known to about ±" in text
        assert "points and the mean to about ±" in text
        assert "Next: With four times as many reports (160,000), the intervals would be half as wide." in text
        assert "--trend shows how it changed over time." in " ".join(hushmote("temp").split())
        said = ask(hushmote, "temp", "--window", DAYS[0], "--unit", "°C")["in_words"]
        assert all(sentence in text for sentence in said.values())

    def test_pipe_gets_uncut_numbers(self, store: Path):
        """In a separate process whose output is a pipe, every interval has both ends."""
        text = hushmote_process("estimate", "temp", *PAIR, cwd=store, columns="64")
        assert max(map(len, text.splitlines())) <= 64
        assert "…" not in text
        intervals = re.findall(r"-?\d+\.\d+ to -?\d+\.\d+", " ".join(text.split()))
        assert len(intervals) == 18 + 1  # in the table and in the sentence


class TestRefusals:
    @refusals(
        (
            "temp --trend --top 3",
            "--trend does not support --top: ask for the shares of single values, --range LABEL",
        ),
        ("temp --trend --cdf", "--trend does not support --cdf: ask for --range :HIGH or --quantile"),
        ("temp --trend --post smooth", "--trend does not support --post: processed shares have no intervals"),
        ("temp --trend --last 9x", "a length of time must look like 7d, 12h, 2w or all, not 9x"),
        (f"temp --last 7d --window {DAYS[0]}", "--window and --last both name a period; use only one"),
        ("temp --against fleet=lab --top 3", "--against does not support --top"),
        ("temp --against fleet=lab --post nonnegative", "--against does not support --post"),
        ("temp --against fleet=lab --rows 8 --range 4:8", "--rows applies only to histograms"),
        ("mode --rows 4", "--rows groups a number's bins, but mode has no number"),
        ("mode --together", "name some"),
        ("mode --trend --range idle --together", "does not support --together"),
        command="estimate --fleet home",
    )
    def test_rejects_contradicting_options(self, refusal: Refusal, store: Path):
        refusal.check(store)

    @pytest.mark.slow
    @refusals(
        ("nothing", "no experiment nothing in fleet home; its experiments: mode, temp"),
        ("temp --fleet attic", "no fleet attic in this store; its fleets: home, lab"),
        ("temp --window 2027-01-01", "no reports in window 2027-01-01; it has 2026-11-19, 2026-11-20"),
        ("temp --version zz", "temp has no version zz; its versions: "),
        ("temp --against fleet=home", "both sides are the same"),
        (f"temp --against {DAYS[0]}", f"reports of {DAYS[0]} would be on both sides"),
        ("temp --trend --against fleet=lab", "cannot be combined; use one at a time"),
        (f"temp --trend --window {DAYS[0]}", "a trend needs at least 2 windows"),
        ("temp --range 20:10", "a range must go from low to high, not 20:10"),
        ("temp --range 90:95", "contains no whole bin of 0 to 32"),
        ("temp --quantile 1", "a quantile must be between 0 and 1 (0.5 is the median), not 1"),
        ("temp --confidence 1", "confidence must be between 0 and 1, not 1"),
        ("temp --top 32", "k"),
        ("temp --against flet=lab", "--against takes a window, fleet=NAME, version=DIGEST or group"),
        ("temp --against fleet=a --against fleet=a", "takes at most one fleet, one version and one group"),
        ("mode --quantile 0.5", "mode answers only shares: omit --quantile"),
        ("mode --delta 1e-9", "--delta changes only the ε of the histogram: add --privacy, or omit --delta"),
        ("mode --trend --honest 90%", "--honest changes only the ε of the histogram: add --privacy"),
        command="estimate --fleet home",
    )
    def test_is_one_line(self, refusal: Refusal, store: Path):
        refusal.check(store)


class TestShares:
    def test_ranges_use_the_readings_unit(self, store: Path, hushmote):
        ranges = (word for bounds in ("16:", ":16", "14:18") for word in ("--range", bounds))
        result = ask(hushmote, "temp", *ranges, "--confidence", "0.9")
        shares = {row["name"]: row["value"] for row in result["answers"][1]["rows"]}
        assert list(shares) == ["16 and above", "below 16", "14 to 18"]
        assert shares["16 and above"] + shares["below 16"] == pytest.approx(1, abs=1e-6)
        assert result["confidence"] == 0.9

    def test_top_lists_ties_in_second_table(self, store: Path, hushmote):
        answers = ask(hushmote, "temp", "--top", "3")["answers"]
        assert [answer["kind"] for answer in answers] == ["histogram", "moments", "top", "ties"]
        assert [len(answer["rows"]) for answer in answers[2:]] == [3, len(answers[3]["rows"])]
        assert "cannot tell these apart" in answers[3]["notes"][0]
        text = hushmote("temp", "--top", "3")
        assert text.index("most common") < text.index("may also belong there")

    @pytest.mark.slow
    def test_notes_moved_range_in_every_output(self, store: Path, hushmote):
        note = "14.2:18 is counted as 14 to 18: bins are 1 °C wide, from 0."
        for options in ((), ("--trend",), ("--against", "fleet=lab")):
            arguments = ("temp", "--range", "14.2:18", "--unit", "°C", *options)
            answers = ask(hushmote, *arguments)["answers"]
            assert [
                line for answer in answers for text in answer["notes"] for line in text.splitlines()
            ].count(note) == 1
            assert note in " ".join(hushmote(*arguments).split())
        assert "is counted as" not in hushmote("temp", "--range", "14:18")

    def test_notes_impossible_shares_once_per_table(self, store: Path, hushmote):
        answers = ask(hushmote, "temp", "--cdf", "--window", DAYS[0])["answers"]
        assert min(row["low"] for row in answers[0]["rows"]) < 0
        assert max(row["high"] for row in answers[2]["rows"]) > 1
        for answer, processed in ((answers[0], True), (answers[2], False)):
            (note,) = (text for text in answer["notes"] if "below 0% or above 100%" in text)
            assert ("--post nonnegative also shows shares from 0% to 100%." in note) == processed
        assert not any("below 0%" in text for text in answers[1]["notes"])

    def test_together_adds_labels(self, hushmote):
        options = ("mode", "--window", DAYS[0], "--range", "idle", "--range", "door", "--post", "nonnegative")
        rows = {row["name"]: row for row in ask(hushmote, *options)["answers"][1]["rows"]}
        (both,) = ask(hushmote, *options, "--together")["answers"][1]["rows"]
        assert both["name"] == "idle or door"
        assert both["value"] == pytest.approx(rows["idle"]["value"] + rows["door"]["value"])
        assert both["processed"] == pytest.approx(rows["idle"]["processed"] + rows["door"]["processed"])
        # Single shares are negatively correlated, so the sum's error is not that of independent shares.
        half = [(row["high"] - row["low"]) / 2 for row in (both, rows["idle"], rows["door"])]
        assert half[0] != pytest.approx(np.hypot(*half[1:]), rel=1e-3)


class TestSelection:
    @pytest.mark.slow
    def test_windows_add_up_and_versions_pool(self, store: Path, hushmote):
        selections = [tuple(word for day in DAYS[:n] for word in ("--window", day)) for n in (1, 2, 0)]
        first, two, everything = (ask(hushmote, "temp", *days) for days in selections)
        assert [result["reports"] for result in (first, two, everything)] == [40_000, 80_000, 120_000]
        version = (
            Store(f"sqlite:///{store / 'hushmote.sqlite'}").experiments("home")[0].experiment.digest.hex()
        )
        assert ask(hushmote, "temp", "--version", version[:6])["reports"] == 60_000
        assert [a["kind"] for a in first["answers"]] == ["histogram", "moments"]

    @pytest.mark.slow
    def test_reads_versions_once(self, store: Path, hushmote):
        read: list[str] = []

        def count(connection: object, cursor: object, statement: str, *_: object) -> None:
            if "experiment.payload" in statement:
                read.append(statement)

        event.listen(Engine, "before_cursor_execute", count)
        try:
            hushmote("temp", "--trend", "--range", "16:")
            assert len(read) == 1
        finally:
            event.remove(Engine, "before_cursor_execute", count)

    def test_period_applies_to_both_sides(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        days = ("2025-10-29", "2025-10-30", "2025-11-01", "2025-11-02")
        with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as opened:
            for fleet, epsilon, selected in (
                ("home", 1, days[:2]),
                ("home", 2, days[2:]),
                ("attic", 2, days[1::2]),
            ):
                fill(opened, fleet, choice_payload(["idle"], epsilon), dict.fromkeys(selected, 1000))
            old, new = (version.experiment.digest.hex() for version in opened.experiments("home"))
        run = runner("estimate", tmp_path, monkeypatch, "--fleet", "attic")
        since = ("--window", "2025-11", "--against", "2025-10", "--against")
        for against, *options in (
            ("2025-10-29 and 2025-10-30", "--fleet", "home", "--version", new, *since, f"version={old}"),
            ("2025-10-29 and 2025-10-30", *since, "fleet=home"),
            ("2025-10-29 and 2025-10-30", "--window", "2025-10", "--against", "fleet=home"),
            ("2025-10-29 to 2025-11-02 (4 days)", "--last", "9999d", "--against", "fleet=home"),
        ):
            assert against in ask(run, "mode", *options)["answers"][0]["against"], options

    @pytest.mark.slow
    def test_question_as_command_line_gives_same_reply(self, store: Path, hushmote):
        url = f"sqlite:///{store / 'hushmote.sqlite'}"
        home = Question(experiment="temp", fleet="home", windows=DAYS[:2])
        options = {"quantiles": (0.5, 0.05), "rows": 8, "confidence": 0.99, "cdf": True, "top": 2}
        questions = [
            home.replace(ranges=("-1:12", "20:"), **options),
            home.replace(trend=True, ranges=(":12",)),
            home.replace(against=(DAYS[2],), quantiles=(0.1,)),
            Question(
                experiment="mode", fleet="home", ranges=("idle", "door"), together=True, post="nonnegative"
            ),
        ]
        with StoreReader(url) as reader, use_interface("command"):
            for question in questions:
                expected = json.loads(reply(Facts(reader.store), question).to_json())
                assert ask(hushmote, *question.arguments()) == expected


class TestFirstLine:
    """The output's first line, and the details that options add."""

    @pytest.mark.parametrize(
        ("options", "beginning"),
        [
            (("temp", "--range", "16:18"), "16 to 18: "),
            (("temp", "--quantile", "0.9"), "90% quantile: "),
            (("mode", "--top", "1"), "idle: "),
            (("mode", "--range", "door"), "door: "),
            (("temp",), "Median: "),
        ],
        ids=["range", "quantile", "top", "label", "nothing named"],
    )
    def test_answers_the_selected_statistic(self, hushmote, options: tuple[str, ...], beginning: str):
        assert hushmote(*options).startswith(beginning)

    def test_named_rows_come_before_histogram(self, hushmote):
        text = hushmote("temp", "--range", "16:18")
        assert text.index("ranges") < text.index("share of the fleet")

    def test_json_has_the_files_finding(self, hushmote):
        assert ask(hushmote, "temp", "--range", "16:18")["finding"].startswith("Median: ")

    def test_details_appear_only_on_request(self, hushmote):
        arguments = ("temp", "--against", "fleet=lab", "--range", "16:", "--quantile", "0.5")
        plain, private, method = (
            hushmote(*arguments, *more) for more in ((), ("--privacy",), ("--verbose",))
        )
        assert not any(word in plain for word in ("ε", "δ", "Holm", "hh", "histogram"))
        assert "ε of a report: " in private
        assert "Holm" not in private
        assert "Holm's method" in method
        assert ": hh, " in method or ": grr" in method or ": olh" in method
        assert "ε" not in method
        for label in ("Privacy: ", "How exact: ", "Next: "):
            assert all(f"\n{label}" in text for text in (plain, private, method))
