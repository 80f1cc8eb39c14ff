"""One question to a store, which reads each version once."""

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from experiment_kinds import WINDOWS, WORDS, fill_kinds, put
from experiments import experiment_json
from filled_store import fill, write

from hushmote.fleet.results.result import result_of
from hushmote.server.answers.ask import Reply, ask
from hushmote.server.answers.query import Facts
from hushmote.server.answers.question import PairQuestion, Question
from hushmote.server.answers.rows import ChangeRow
from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.errors import UsageError
from hushmote.server.estimate.statistic import EstimateError
from hushmote.server.store import Store
from hushmote.server.words.findings import CERTAIN, certainty

DAYS = ("2026-11-20", "2026-11-21", "2026-11-22")
TEMP = Question(experiment="temp", fleet="home")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[StoreReader]:
    url = f"sqlite:///{tmp_path / 'hushmote.sqlite'}"
    temp = experiment_json(
        name="temp", type="number", low=0, high=32_000, bins=32, mechanism="grr", epsilon=3_000_000
    )
    with Store(url) as store:
        fill(store, "home", temp, dict.fromkeys(DAYS, 500), unit="°C", asked="18:\nmedian")
        fill(store, "lab", temp, {DAYS[0]: 500}, [1 / 42] * 30 + [6 / 42] * 2)
    with StoreReader(url) as opened:
        yield opened


@pytest.mark.parametrize(
    "question",
    [
        TEMP.replace(ranges=("18:22",), quantiles=(0.5,)),
        TEMP.replace(trend=True),
        TEMP.replace(windows=DAYS[2:], against=DAYS[:1]),
    ],
    ids=["range and median", "trend", "comparison"],
)
def test_question_reads_versions_and_counts_once(
    reader: StoreReader, question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    for name in ("readable_experiments", "window_reports", "fleets"):
        original = getattr(Store, name)
        monkeypatch.setattr(
            Store, name, lambda *args, _name=name, _whole=original: read.append(_name) or _whole(*args)
        )
    ask(Facts(reader.store), question)
    assert sorted(read) == ["readable_experiments", "window_reports"]


def test_headline_is_about_the_named_rows(reader: StoreReader) -> None:
    question = TEMP.replace(ranges=("18:22",), quantiles=(0.5,), windows=DAYS)
    row = r"\d+(\.\d+)?"
    assert re.fullmatch(
        rf"18 to 22 °C: {row}% of devices \({row} to {row}%\), 20 to 22 Nov( 2026)?\. "
        rf"Median: {row} °C \({row} to {row}\), 20 to 22 Nov( 2026)?\.",
        ask(Facts(reader.store), question).headline,
    )


class TestPopulation:
    """Devices with spent budgets fall silent, so that shares are no longer of all devices."""

    @pytest.mark.parametrize(
        ("spent", "most", "population"),
        [
            (10, 2, "devices"),
            (11, 2, "readings"),
            (99, 3, "devices"),
            (99, 1, "devices"),
            (99, None, "devices"),
        ],
    )
    def test_is_readings_once_budgets_are_spent(
        self, tmp_path: Path, spent: int, most: int | None, population: str
    ) -> None:
        budget = {"rule": "unlimited"} if most is None else {"rule": "sum", "cap": 2_000_000 * most}
        payload = experiment_json(name="door", epsilon=2_000_000, budget=budget)
        question = Question(experiment="door", fleet="home")
        with Store(f"sqlite:///{tmp_path}/hushmote.sqlite") as store:
            experiment = fill(store, "home", payload, dict.fromkeys(DAYS, 500))
            write(store, "home", experiment, {}, [f"s{n}" for n in range(spent)], each=2)
            write(store, "home", experiment, {}, [f"c{n}" for n in range(99 - spent)])
            facts = Facts(store)
            replies = [ask(facts, question), ask(facts, question.replace(ranges=("yes",)))]
            status = overview_finding(store)
        for reply in replies:
            assert f"% of {population} (" in reply.headline
            assert "% of devices" not in reply.headline or population == "devices"
            note = "11 of 100 devices have no reports left, so shares are of readings, not of devices."
            assert reply.headline.count(note) == (population == "readings")
        fleet = "share of the fleet" if population == "devices" else "share of the readings"
        assert replies[0].answers[0].heading == fleet
        assert f"% of {population} (" in status


def overview_finding(store: Store) -> str:
    return result_of(store, "home", "door", datetime.datetime(2026, 11, 28, tzinfo=datetime.UTC)).finding


class TestTrend:
    @pytest.mark.parametrize(
        ("fleet", "windows", "subject"),
        [
            ("home", DAYS[:1], "the selection has 1"),
            ("lab", DAYS[:1], "temp has 1"),
            ("lab", (), "temp has 1"),
        ],
    )
    def test_needs_two_windows(
        self, reader: StoreReader, fleet: str, windows: tuple[str, ...], subject: str
    ) -> None:
        question = TEMP.replace(fleet=fleet, windows=windows, trend=True)
        with pytest.raises(EstimateError, match=f"a trend needs at least 2 windows with reports; {subject}$"):
            ask(Facts(reader.store), question)


class TestComparison:
    QUESTION = TEMP.replace(windows=DAYS[2:], against=DAYS[:1])

    def test_without_an_option_uses_the_file(self, reader: StoreReader) -> None:
        reply = ask(Facts(reader.store), self.QUESTION)
        shares, readings = reply.answers
        assert [row.name for row in shares.rows] == ["18 and above"]
        assert readings.rows[-1].name == "median"
        assert reply.headline.startswith("18 °C and above: ")
        assert ", 22 Nov, compared with " in reply.headline

    def test_quantile_question_ignores_the_file(self, reader: StoreReader) -> None:
        reply = ask(Facts(reader.store), self.QUESTION.replace(quantiles=(0.9,)))
        assert [row.name for row in reply.answers[-1].rows][2:] == ["90% quantile"]
        assert reply.headline.startswith("90% quantile: ")

    def test_considers_all_compared_rows(self, reader: StoreReader) -> None:
        reply = ask(Facts(reader.store), self.QUESTION.replace(rows=16))
        row = min(changes(reply), key=lambda change: change.p)
        assert row.p < 0.05 <= row.p_adjusted
        assert "No clear difference" in reply.headline

    def test_certainty_covers_all_compared_rows(self, reader: StoreReader) -> None:
        question = TEMP.replace(windows=DAYS[:1], against=("fleet=lab",), rows=16)
        reply = ask(Facts(reader.store), question)
        row = min(changes(reply), key=lambda change: change.p)
        assert row.p < CERTAIN < row.p_adjusted
        assert reply.headline.endswith(f", {certainty(row.p_adjusted)}).")

    def test_verdict_has_the_requested_confidence(self, reader: StoreReader) -> None:
        reply = ask(Facts(reader.store), self.QUESTION.replace(rows=16))
        lowest = min(change.p_adjusted for change in changes(reply))
        assert 0.05 <= lowest < 0.9
        for confidence, is_clear in ((0.99 - lowest, True), (1.01 - lowest, False)):
            headline = ask(Facts(reader.store), reply.question.replace(confidence=confidence)).headline
            assert ("No clear difference" not in headline) == is_clear


def test_rows_group_only_numbers(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'doors.sqlite'}") as store:
        fill(store, "home", experiment_json(name="door", epsilon=2_000_000), {DAYS[0]: 100})
        question = Question(experiment="door", fleet="home", rows=4)
        with pytest.raises(UsageError, match="groups a number's bins, but door has no number; omit it"):
            ask(Facts(store), question)


def test_discovery_lists_texts(tmp_path: Path) -> None:
    text = {"name": "crash", "type": "text", "salt": "s2", "slots": 1024, "prefixes": [2, 2]}
    payload = experiment_json(**text, mechanism="prefix", q=5, weights=[1, 1], epsilon=4_000_000)
    with Store(f"sqlite:///{tmp_path / 'crashes.sqlite'}") as store:
        put(store, "home", payload, {DAYS[0]: ["out", "out", "up"] * 500})
        (table,) = ask(Facts(store), Question(experiment="crash", fleet="home")).answers
    assert (table.kind, [row.name for row in table.rows]) == ("discovery", ["ou…", "up…"])


@pytest.mark.parametrize(
    ("options", "kinds"),
    [({}, ["histogram"]), ({"ranges": ("18:22",)}, ["ranges"]), ({"trend": True}, ["trend"])],
)
def test_picture_shows_the_requested_tables(
    reader: StoreReader, options: dict[str, Any], kinds: list[str]
) -> None:
    reply = ask(Facts(reader.store), TEMP.replace(**options))
    assert [table.kind for table in reply.picture_answers()] == kinds


@pytest.mark.parametrize("options", [{}, {"trend": True}, {"trend": True, "quantiles": (0.5,)}])
def test_finding_has_the_requested_unit(reader: StoreReader, options: dict[str, Any]) -> None:
    reply = ask(Facts(reader.store), TEMP.replace(unit="K", **options))
    assert " K (" in reply.headline
    assert "°C" not in reply.headline


FIRST, *_, LAST = WINDOWS
DAY, EARLIER = {"windows": (LAST,)}, {"windows": (LAST,), "against": (FIRST,)}
CRASHES = {"of": "crashed=yes", "given": "version"}
VERSIONS = {"of": "crashed=yes", "given": ("version=1.0", "version=1.1")}
EVERYTHING = {"ranges": ("4:8",), "quantiles": (0.5,), "cdf": True}


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Facts]:
    with Store(f"sqlite:///{tmp_path_factory.mktemp('kinds')}/store.sqlite") as store:
        fill_kinds(store)
        yield Facts(store)


@pytest.mark.parametrize(("confidence", "level"), [(0.95, "0.05"), (0.99, "0.01")])
def test_note_counts_texts_above_the_noise(facts: Facts, confidence: float, level: str) -> None:
    question = Question(
        experiment="firmware", fleet="home", ranges=(WORDS[0], "nowhere"), confidence=confidence
    )
    (table,) = ask(facts, question).answers
    notes = " ".join(table.notes)
    assert f"1 of 2 rows stand out from the noise (p-value below {level})" in notes
    # Its slot is one of the two taken ones among 256.
    assert "An unlisted text has a chance of 0.78% of being counted in some row" in notes


def test_trend_in_python_keeps_the_condition(facts: Facts) -> None:
    with StoreReader(f"sqlite:///{facts.store.where}") as reader:
        crash = reader.fleet("home").experiment("crash_by_version")
        for version, share in (("1.0", 0.5), ("1.1", 0.0)):
            (trend,) = crash.trend(pair=PairQuestion(of="crashed=yes", given=f"version={version}"))
            assert [row.value for row in trend.rows] == [pytest.approx(share, abs=0.1)] * len(WINDOWS)


class TestConfidence:
    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("room", DAY | EVERYTHING),
            ("room", EARLIER | EVERYTHING),
            ("room", {"trend": True, "ranges": ("4:8",), "quantiles": (0.5,)}),
            ("delay", {"trend": True}),
            ("firmware", DAY | {"ranges": WORDS}),
            ("firmware", DAY | {"ranges": WORDS, "together": True}),
            ("firmware", EARLIER | {"ranges": WORDS}),
            ("firmware", {"ranges": WORDS, "trend": True}),
            ("crash_by_version", DAY),
            ("crash_by_version", DAY | VERSIONS),
            ("crash_by_version", EARLIER | CRASHES),
            ("crash_by_version", CRASHES | {"trend": True}),
        ],
    )
    def test_reaches_every_interval(self, facts: Facts, name: str, options: dict[str, Any]) -> None:
        question = Question(experiment=name, fleet="home", **options)
        low, high = (ask(facts, question.replace(confidence=level)).answers for level in (0.5, 0.9999))
        assert [table.kind for table in low] == [table.kind for table in high]
        for narrow_table, wide_table in zip(low, high, strict=True):
            assert (narrow_table.confidence, wide_table.confidence) == (0.5, 0.9999)
            for narrow, wide in zip(narrow_table.rows, wide_table.rows, strict=True):
                assert narrow.high - narrow.low < wide.high - wide.low, (narrow_table.kind, narrow.name)


def changes(reply: Reply) -> list[ChangeRow]:
    return [row for row in reply.answers[0].rows if isinstance(row, ChangeRow)]


def test_reader_is_closed_at_the_end_of_its_block(reader: StoreReader) -> None:
    with reader:
        assert reader.fleets == ("home", "lab")
    with pytest.raises(UsageError, match="is closed; use it before its with block ends"):
        _ = reader.fleets


def test_estimate_in_python_reads_versions_once(reader: StoreReader, monkeypatch: pytest.MonkeyPatch) -> None:
    temp, read, original = reader.fleet("home").experiment("temp"), list[object](), Store.readable_experiments
    monkeypatch.setattr(Store, "readable_experiments", lambda *args: read.append(args) or original(*args))
    temp.estimate(DAYS[0])
    assert len(read) == 1
    temp.trend("mean")
    assert len(read) == 2
