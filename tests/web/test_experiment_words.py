"""The experiment view without a browser, with its URLs, ranges, localized sentences and caches."""

import datetime
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from babel import Locale
from designs import bell, choice_payload, number_payload
from experiment_kinds import TEXT
from experiments import experiment_json
from filled_store import fill

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers.answer import Answer, Answers
from hushmote.server.answers.ask import answer_question
from hushmote.server.answers.finding import find
from hushmote.server.answers.query import Facts, Selected
from hushmote.server.answers.question import BEFORE, FINE, Question, Selection
from hushmote.server.answers.result_cache import ResultCache
from hushmote.server.answers.rows import ChangeRow, Row
from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.errors import UsageError
from hushmote.server.experiments.units import UnitsError
from hushmote.server.overview.fleets import days_left
from hushmote.server.store import Store
from hushmote.server.store.versions import Description
from hushmote.server.words import answers as words
from hushmote.server.words import findings
from hushmote.simulator import vectorised
from hushmote.web.charts import over_days
from hushmote.web.experiment import charts, files, queries, sentences
from hushmote.web.experiment.answer_table import format_row
from hushmote.web.experiment.choices import (
    QUANTILES,
    Choices,
    fitting,
    from_query,
    left_out,
    over_names,
    range_between,
    typed_quantiles,
    typed_range,
    typed_texts,
)
from hushmote.web.experiment.defaults import with_defaults
from hushmote.web.experiment.queries import BothEpsilons, SharedQueries
from hushmote.web.live import LiveStore
from hushmote.web.reader import Reader

ENGLISH, GERMAN = Reader(Locale("en", "US")), Reader(Locale("de", "DE"))
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
AT = datetime.datetime(2026, 1, 20, tzinfo=datetime.UTC)
TEMP = Question(experiment="temp", fleet="home")
MODE = Question(experiment="mode", fleet="home")


@pytest.fixture
def store(tmp_path):
    """Provide a store with a number and a choice, and grow(name, window, reports), which adds reports."""
    url, rng = f"sqlite:///{tmp_path / 'store.sqlite'}", np.random.default_rng(3)
    payloads = {
        "temp": number_payload(64, 2, -4_000, 28_000, "temp"),
        "mode": choice_payload(["a", "b, c"], 2),
    }
    with Store(url) as opened:
        opened.add_fleet("home", keyed=False)
        for payload in payloads.values():
            words = Description("°C", "What for?", "owner@example.org")
            opened.add_experiment("home", payload, datetime.date(2026, 1, 4), description=words)

    def grow(name: str, window: str, reports: int) -> None:
        with Store(url) as opened:
            (version,) = (v for v in opened.experiments("home") if v.experiment.name == name)
            shares = bell(64, 30, 8) if name == "temp" else np.array([5, 3, 2]) / 10
            counts = vectorised.histogram(version.experiment, rng.multinomial(reports, shares), rng)
            with opened.ingest() as transaction:
                added = {(version.id, window, 0, int(c)): int(counts[c]) for c in np.flatnonzero(counts)}
                transaction.write({}, added, {})

    return url, grow


def read_selected(reader: StoreReader, fleet: str, name: str, cache: ResultCache | None = None) -> Selected:
    return Facts(reader.store, cache=cache or ResultCache()).selected(Selection(name, fleet))


def table_answers(table: str, choices: Choices, selected: Selected) -> Answers:
    return answer_question(selected.facts, files.question(table, choices, selected).resolve(selected.facts))[
        1
    ]


class TestTrend:
    def trend(self, url: str, name: str, **chosen: Any) -> Answer:
        with StoreReader(url) as reader:
            over = chosen.pop("over", "mean")
            question = Question(experiment=name, fleet="home", windows=DAYS, **chosen)
            return table_answers("trend", Choices(question, over), read_selected(reader, "home", name))[0]

    def test_matches_lines_of_note(self, store):
        url, grow = store
        for day in DAYS[:2]:
            grow("temp", day, 1000)
        answer = self.trend(url, "temp")
        assert sentences.trend(answer, ENGLISH) == []  # two days are too few for a scan
        note = "mean: up from 21.5 °C before 13 Nov (about 1 in 1,200 by chance).\nmean of 15%"
        lines = sentences.trend(replace(answer, note=note), GERMAN)
        assert lines == [
            "Mean: up from 21,5 °C before 13. Nov. (about 1 in 1.200 by chance).",
            "Mean of 15\xa0%",
        ]

    def test_label_at_start_of_line_is_unchanged(self, store):
        url, grow = store
        for day in DAYS[:2]:
            grow("mode", day, 1000)
        answer = replace(self.trend(url, "mode", ranges=("a",)), note="a: no change since 1 Jan.")
        assert sentences.trend(answer, ENGLISH) == ["a: no change since Jan 1."]
        with StoreReader(url) as reader:
            selected = read_selected(reader, "home", "mode")
            (change,) = table_answers(
                "change", Choices(MODE.replace(ranges=("a",)), since=DAYS[:1]), selected
            )
        (row,) = change.rows
        assert isinstance(row, ChangeRow)
        assert sentences.change(row, "a", change, ENGLISH).startswith("a ")


class TestEpsilons:
    def both(self, url: str, windows: tuple[str, ...], compared: tuple[Selection, ...] = ()) -> BothEpsilons:
        with StoreReader(url) as reader:
            queries = SharedQueries(LiveStore(url))
            selection = Selection("temp", "home", windows)
            return queries._both(Facts(reader.store), selection, compared)

    def test_once_covers_both_sides_of_comparison(self, store):
        url, grow = store
        for day in DAYS:
            grow("temp", day, 1000)
        single = self.both(url, DAYS[1:]).once
        both = self.both(
            url, DAYS[1:], (Selection("temp", "home", DAYS[1:]), Selection("temp", "home", DAYS[:1]))
        )
        assert single.histogram is not None
        assert both.once.histogram is not None
        assert both.once.histogram > single.histogram
        assert both.once.reports == single.reports + 1000
        assert both.every_day.reports == 3000

    def test_once_covers_days_before_change(self, tmp_path):
        url = f"sqlite:///{tmp_path / 'store.sqlite'}"
        today = datetime.datetime.now(datetime.UTC).date()
        days = tuple(f"{today - datetime.timedelta(ago)}" for ago in range(41, 1, -1))
        rise = {w: np.eye(8)[1 if n < 33 else 6] for n, w in enumerate(days)}
        with Store(url) as opened:
            payload = number_payload(8, 2, 0, 8_000, "temp")
            fill(opened, "home", payload, dict.fromkeys(days, 900), rise, asked="5:")
            sums = {*find(Facts(opened), Selection("temp", "home", days[-7:])).histograms, days[-7:]}
        assert max(map(len, sums)) > 30
        assert self.both(url, days[-7:]).once.reports == sum(map(len, sums)) * 900

    def test_is_dash_for_running_window(self, store):
        url, grow = store
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        for day in (DAYS[0], today):
            grow("temp", day, 1000)
        both, temp = (
            self.both(url, (DAYS[0], today)),
            Experiment.parse(number_payload(64, 2, 0, 64_000, "temp")),
        )
        lines = sentences.epsilons(temp, both.once, both.every_day, ENGLISH)
        assert lines[1].startswith("ε for someone who sees this once: –. ")
        assert lines[2] == "ε for someone who has seen every day: –."
        both = self.both(url, DAYS[:1])
        lines = sentences.epsilons(temp, both.once, both.every_day, ENGLISH)
        assert not [line for line in lines if "–" in line]
        grouped = Experiment.parse(experiment_json(group="firmware", groups=["2.4.0"]))
        lines = sentences.epsilons(grouped, both.once, both.every_day, ENGLISH)
        assert lines[1].startswith("Each report contains the board's firmware (2.4.0, other) in the clear")

    def test_are_reused_for_a_minute(self, store, monkeypatch):
        url, grow = store
        grow("mode", DAYS[0], 1000)
        shared, now_s = SharedQueries(LiveStore(url)), 0.0
        monkeypatch.setattr(queries, "time", SimpleNamespace(monotonic=lambda: now_s))

        def both() -> BothEpsilons:
            with StoreReader(url) as reader:
                return shared._both(Facts(reader.store), Selection("mode", "home", DAYS[:1]), ())

        first, now_s = both(), 59.9
        grow("mode", DAYS[0], 1000)
        assert both() is first
        now_s = 60.0
        second = both()
        assert (first.once.reports, second.once.reports) == (1000, 2000)


class TestRanges:
    def test_are_whole_bins_and_open_at_ends(self, store):
        url, _ = store
        with StoreReader(url) as reader:
            experiment = read_selected(reader, "home", "temp").newest.experiment
        assert range_between(experiment, 3.1, 9.8) == "3:10"
        assert range_between(experiment, -100, 9.6) == ":9.5"
        assert range_between(experiment, np.float64(20), np.float64(28)) == "20:"
        for low, high in ((5, 5), (9, 3), (float("nan"), 3), (5.01, 5.1), (40, 50)):
            with pytest.raises(UnitsError):
                range_between(experiment, low, high)

    def test_typed_range_is_rounded_or_rejected(self, store):
        url, _ = store
        with StoreReader(url) as reader:
            experiment = read_selected(reader, "home", "temp").newest.experiment  # -4 to 28 in halves
        assert typed_range(experiment, 3.1, 9.8) == "3:10"
        assert sentences.range_name(experiment, "3:10", "°C", GERMAN) == "3 to 10 °C"
        assert sentences.range_name(experiment, ":9.5", "°C", GERMAN) == "below 9,5 °C"
        for low, high, message in (
            (24, 24, "From must be below To"),
            (30, 10, "From must be below To"),
            (None, 10, "numbers"),
            (float("nan"), 10, "From must be below To"),
            (40, 50, "from -4 to 28"),
            (5.01, 5.1, "no whole row of 0.5"),
        ):
            with pytest.raises(UnitsError, match=message):
                typed_range(experiment, low, high)
        assert typed_quantiles("5; 50 %, 99.9") == (0.05, 0.5, 0.999)
        for text in ("150", "abc", "", "5, 50, abc", "0", "nan", ", ".join(map(str, range(1, 11)))):
            with pytest.raises(UnitsError, match="numbers"):
                typed_quantiles(text)


class TestURL:
    def test_stores_all_choices(self):
        question = TEMP.replace(
            windows=DAYS[:2],
            version="ab12",
            ranges=("-1:12.5",),
            quantiles=(0.1, 0.9),
            confidence=0.99,
            rows=64,
            post="smooth",
            against=(DAYS[2], "version=cd34"),
        )
        chosen = Choices(question, "0.1")
        assert from_query(chosen.query(), TEMP) == chosen
        assert (chosen.earlier, chosen.follows) == ("cd34", False)

    def test_omits_defaults(self):
        assert Choices(TEMP).query() == ""
        month = Choices(TEMP.replace(last="30d"), windows=DAYS[:2])  # its windows change every day
        assert month.query() == "last=30d"
        assert from_query("last=30d&last=never", TEMP) == Choices(TEMP.replace(last="30d"))
        follows = Choices(TEMP.replace(against=(BEFORE,)), since=DAYS[:1])
        assert follows.query() == "against=before"
        assert from_query("against=before", TEMP).follows

    def test_ignores_invalid_choices(self):
        wrong = "rows=many&confidence=7&post=evil&quantiles=2&over=%3Cscript%3E&windows=&x=1&delta=2&fleet=a"
        assert from_query(wrong, TEMP) == Choices(TEMP)
        assert from_query("a=1&" * 2000, TEMP) == Choices(TEMP)

    def test_choices_fit_experiment(self, store):
        url, grow = store
        for day in DAYS[1:]:
            grow("temp", day, 500)
        with StoreReader(url) as reader:
            selected = read_selected(reader, "home", "temp")
            wrong = TEMP.replace(windows=DAYS, version="zz", ranges=("oops", "1:2", "3:4"), post="smooth")
            right = TEMP.replace(windows=DAYS[1:], ranges=("1:2",), post="smooth")
            assert fitting(Choices(wrong), selected) == Choices(right, windows=DAYS[1:])
            empty = fitting(Choices(wrong.replace(windows=("2025-01-01..2025-01-07",))), selected)
            assert empty == Choices(right.replace(windows=()))

    def test_explains_missing_data(self, store):
        url, grow = store
        grow("temp", DAYS[0], 100)
        with StoreReader(url) as reader:
            selected = read_selected(reader, "home", "temp")

        def note(query: str) -> str:
            return sentences.left_out(left_out(query, fitting(from_query(query, TEMP), selected)))

        right = TEMP.replace(windows=DAYS[:1], ranges=("3:10",), quantiles=(0.1, 0.9), confidence=0.99)
        right = right.replace(rows=64, post="smooth", against=DAYS[:1])
        assert note(Choices(right, "0.1").query()) == ""
        assert note("last=7d") == ""
        assert "(windows 2025-01-01..2025-01-07)" in note("windows=2025-01-01..2025-01-07")
        assert note("") == ""
        assert note("confidence=0.990&quantiles=.5&over=share") == ""
        wrong = note("windows=2026-13-99&ranges=3%3A10")
        assert wrong == (
            "This link contains a choice that this view does not have (windows 2026-13-99); "
            "the page ignores it."
        )
        wrong = note("ranges=5%3A1&post=foo&confidence=7&over=0.3")
        assert "(ranges 5:1, post foo, confidence 7, over 0.3); the page ignores them." in wrong
        assert "x 1, x 2, x 3, x 4, x 5 and 2 more" in note("&".join(f"x={n}" for n in range(1, 8)))
        assert "more than 1000 choices" in note("a=1&" * 2000)

    def test_only_values_can_be_compared(self, tmp_path):
        query = f"against={DAYS[0]}&against=group%3D2.4.0"
        with Store(f"sqlite:///{tmp_path / 'store.sqlite'}") as opened:
            fill(opened, "home", TEXT, dict.fromkeys(DAYS, 100))
            selected = Facts(opened).selected(Selection("firmware", "home"))
            chosen = from_query(query, Question(experiment="firmware", fleet="home"))
            fitted = fitting(chosen, selected)
        assert chosen.question.against
        assert (fitted.question.against, fitted.compares) == ((), False)
        assert left_out(query, fitted) == (f"against {DAYS[0]}", "against group=2.4.0")

    @pytest.mark.parametrize(
        ("can", "names"),
        [
            ({"frequencies", "ranges"}, {"share": "the chosen labels"}),
            ({"mean"}, {"mean": "mean"}),
            (
                {"mean", "ranges", "quantiles"},
                {
                    "mean": "mean",
                    "share": "the chosen range",
                    "0.05": "5% quantile",
                    "0.5": "median",
                    "0.95": "95% quantile",
                },
            ),
        ],
        ids=["labels", "only a mean", "a number"],
    )
    def test_statistics_over_time_fit_experiment(self, can, names):
        assert over_names(can, QUANTILES) == names


class TestSentences:
    @pytest.mark.slow
    def test_use_readers_number_format(self, store):
        url, grow = store
        grow("temp", DAYS[0], 500)
        with StoreReader(url) as reader:
            experiment = read_selected(reader, "home", "temp").newest.experiment
        row = Row("18 to 22", 0.41234, 0.40123, 0.42345, None, 18.0, 22.5)
        name = sentences.span(row, experiment, "°C", GERMAN)
        assert name == "18 to 22,5 °C"
        assert findings.amount(row, None, GERMAN) == "41\xa0% of devices (40 to 42\xa0%)"
        first, last = replace(row, lower=-4.0), replace(row, upper=28.0)
        assert sentences.span(first, experiment, "°C", ENGLISH) == "below 22.5 °C"
        assert sentences.span(last, experiment, "°C", ENGLISH) == "18 °C and above"
        change = ChangeRow(
            "mean", -1234.5, -1300.4, -1168.6, before=2234.5, after=1000.0, p=1e-9, p_adjusted=1e-8
        )
        with StoreReader(url) as reader:
            answer = reader.fleet("home").experiment("temp").estimate().mean()
        text = sentences.change(change, "mean", answer, ENGLISH)
        assert text.startswith("Mean fell by 1,234 °C, between 1,169 and 1,300: from 2,234 to 1,000.")
        assert text.endswith("that much would be seen less than 1 time in 10,000. It changed.")
        unsure = replace(change, low=-1300.4, high=200.0, p=0.3, p_adjusted=0.3)
        text = sentences.change(unsure, "mean", answer, ENGLISH)
        assert "somewhere between a fall of 1,300 and a rise of 200 °C" in text
        assert text.endswith(
            "If nothing had changed, that much would be seen 30 times in 100. That may be chance."
        )
        away = replace(change, p=0.03, p_adjusted=0.15)
        text = sentences.change(away, "mean", replace(answer, rows=(away,) * 5), ENGLISH)
        assert text.endswith(
            "that much would be seen about 1 time in 33, considered alone; with all 5 rows compared here "
            "taken into account, 15 times in 100. That may be chance."
        )

    def test_table_has_as_many_digits_as_interval(self):
        row = Row("18 to 22", 0.41234, 0.35, 0.47)
        assert format_row(row, ENGLISH, 0.4) == ["41.2%", "35.0%", "47.0%", "40.0%"]
        mean = Row("mean", 1234.567, 1200.0, 1270.0)
        assert format_row(mean, GERMAN, share=False) == ["1.235", "1.200", "1.270"]

    def test_headline_names_windows(self):
        assert words.period(DAYS, DAYS, ENGLISH) == "Jan 1, 2026 to Jan 3, 2026, all 3 windows"
        assert words.period(DAYS[:2], DAYS, GERMAN) == "01.01.2026 to 02.01.2026, 2 of 3 windows"
        assert words.period(DAYS[2:], DAYS, ENGLISH) == "Jan 3, 2026"
        assert words.period(("2026-01-01T05",), ("2026-01-01T05",), ENGLISH) == "Jan 1, 2026, 05:00 UTC"
        assert words.period(("all",), ("all",), ENGLISH) == "all reports"

    def test_head_gives_duration_and_reports(self, store):
        url, grow = store
        grow("temp", DAYS[0], 1500)
        grow("temp", DAYS[1], 20)
        with StoreReader(url) as reader:
            selected = read_selected(reader, "home", "temp")

            def head(day: int) -> str:
                return sentences.head(selected, datetime.datetime(2026, 1, day, tzinfo=datetime.UTC), ENGLISH)

            assert head(2) == (
                "temp of fleet home, asked by owner@example.org. 3 days left. 20 reports today, "
                "1,520 reports in all."
            )
            assert "2 days left." in head(3)  # the same number as in the first view
            ends = datetime.date(2026, 1, 4)
            assert [days_left(ends, datetime.date(2026, 1, day)) for day in (3, 4, 5)] == [2, 1, 0]
            assert "Today is its last day." in head(4)
            assert "It ended on Jan 4, 2026." in head(5)
            with Store(url) as writer:
                writer.withdraw_experiment("home", "temp")
            selected = read_selected(reader, "home", "temp")
            assert "It was withdrawn, so no device takes part any more." in head(2)


class TestCache:
    @pytest.mark.slow
    def test_unchanged_window_is_not_recomputed(self, store):
        url, grow = store
        for day in DAYS:
            grow("temp", day, 3000)
        cache = ResultCache()
        with StoreReader(url) as reader:

            def windows() -> dict:
                return read_selected(reader, "home", "temp", cache).by_window()

            before = windows()
            grow("temp", DAYS[2], 50)
            after = windows()
            assert [after[day] is before[day] for day in DAYS] == [True, True, False]
            assert after[DAYS[2]].reports == before[DAYS[2]].reports + 50
            # The cached answers match the library's.
            selected = read_selected(reader, "home", "temp")
            trend = table_answers("trend", Choices(TEMP.replace(ranges=("3:10",)), over="share"), selected)[0]
            library = reader.fleet("home").experiment("temp").trend("3:10")[0]
            plain = [replace(row, histogram_epsilon=None) for row in library.rows]
            assert list(trend.rows) == plain
            assert trend.p_values == library.p_values
            estimate, answers = answer_question(
                selected.facts, Choices(TEMP.replace(rows=FINE)).estimate(selected).resolve(selected.facts)
            )
            assert estimate.which == reader.fleet("home").experiment("temp").estimate().which
            assert len(answers[0].rows) == 16  # few reports: 64 bins would be noise


class TestComparison:
    @pytest.mark.slow
    def test_default_is_all_other_windows(self, store):
        url, grow = store
        first, second = (number_payload(64, e, -4_000, 28_000, "temp") for e in (2, 1))
        grow("temp", DAYS[0], 4000)
        grow("temp", DAYS[1], 4000)
        with Store(url) as opened:
            opened.add_experiment("home", second)
            version = opened.experiments("home")[-1]
            counts = vectorised.histogram(version.experiment, np.full(64, 60), np.random.default_rng(1))
            with opened.ingest() as transaction:
                transaction.write(
                    {}, {(version.id, DAYS[2], 0, c): int(n) for c, n in enumerate(counts) if n}, {}
                )
        old, new = (Experiment.parse(payload).digest.hex() for payload in (first, second))
        with StoreReader(url) as reader:
            selected, experiment = (
                read_selected(reader, "home", "temp"),
                reader.fleet("home").experiment("temp"),
            )
            cases: tuple[tuple[dict[str, Any], dict[str, Any], dict[str, Any]], ...] = (
                ({"since": DAYS[:1]}, {"windows": DAYS[:1]}, {"windows": DAYS[1:]}),
                ({}, {"version": old}, {"version": new}),
                ({"since": DAYS[:1], "windows": DAYS[1:2]}, {"windows": DAYS[:1]}, {"windows": DAYS[1:2]}),
            )
            for chosen, before, after in cases:
                question = TEMP.replace(ranges=("3:10",))
                if not chosen:
                    question = question.replace(against=(f"version={old}",))
                choices = Choices(question, **chosen)
                if not chosen:  # each version over its windows in the period
                    assert table_answers("change", replace(choices, windows=DAYS), selected) == table_answers(
                        "change", choices, selected
                    )
                changed = table_answers("change", choices, selected)
                library = experiment.estimate(**after).change_since(
                    experiment.estimate(**before), "3:10", quantiles=choices.quantiles
                )
                assert changed == library

    def test_chosen_version_is_on_its_side(self, store):
        url, _ = store
        payloads = [number_payload(64, epsilon, -4_000, 28_000, "temp") for epsilon in (2, 1, 3)]
        with Store(url) as opened:
            for payload in payloads[1:]:
                opened.add_experiment("home", payload)
            selected = Facts(opened).selected(Selection("temp", "home"))
            first, second, third = (Experiment.parse(payload).digest.hex() for payload in payloads)
            for version, against, after in ((second, first, second), ("", first, third), ("", third, second)):
                question = TEMP.replace(version=version, against=(f"version={against}",))
                changed = Choices(question).change(selected)
                assert (changed.version, changed.against) == (after, (f"version={against}",))


class TestCommand:
    def test_hides_password_and_quotes_labels(self, store):
        url, grow = store
        today = datetime.datetime.now(datetime.UTC).date()
        days = tuple(f"{today - datetime.timedelta(ago)}" for ago in (2, 1, 0))
        for day in days:  # without reports before the last 30 days
            grow("mode", day, 1000)
        with StoreReader(url) as reader:
            selected = read_selected(reader, "home", "mode")
            choices = Choices(MODE.replace(ranges=("a", "b, c")))
        line = files.command_line("estimate", choices, selected, "postgresql+psycopg://u:s3cret@host/db")
        assert "s3cret" not in line
        assert line == "hushmote estimate mode --fleet home --range=a '--range=b, c' --together"
        assert files.command_line("estimate", choices, selected, url).endswith(f"--store {url}")
        newest = replace(choices.with_fields(last="30d"), windows=days[1:], since=days[:1])
        span = f"--window={days[1]}..{days[2]}"
        assert f" {span} " in files.command_line("estimate", newest, selected, url)
        compared = files.command_line("change", newest, selected, url)
        assert f" {span} " in compared
        assert f" --against={days[0]} " in compared
        apart = replace(choices, windows=(days[0], days[2]))
        assert f" --window={days[0]} --window={days[2]} " in files.command_line(
            "estimate", apart, selected, url
        )


class TestChart:
    def test_script_contains_no_text_from_store(self, store):
        url, _ = store
        hostile = "': alert(1) //"
        with Store(url) as opened:
            opened.add_experiment("home", choice_payload([hostile, "b"], 1).replace(b'"mode"', b'"evil"'))
            (version,) = (v for v in opened.experiments("home") if v.experiment.name == "evil")
            with opened.ingest() as transaction:
                transaction.write({}, {(version.id, DAYS[0], 0, code): 500 for code in range(3)}, {})
        with StoreReader(url) as reader:
            histogram = reader.fleet("home").experiment("evil").estimate().histogram()
        scripts = []

        def look(options: object) -> None:
            if isinstance(options, dict):
                scripts.extend(v for k, v in options.items() if str(k).startswith(":"))
                assert all(hostile not in str(k) for k in options)
                for value in options.values():
                    look(value)
            elif isinstance(options, list):
                for value in options:
                    look(value)

        look(charts.named_bars(histogram, (hostile,), "summary", "de-CH"))
        assert scripts
        assert not any("alert" in script for script in scripts)


def test_time_axis_has_at_most_one_label_per_day():
    day_ms = datetime.timedelta(days=1) / datetime.timedelta(milliseconds=1)
    points = [["2026-11-20T00:00:00Z", 1.0], ["2026-11-22T12:00:00Z", 2.0]]
    options = over_days("", [{"name": "temp", "data": points}], "en")
    first, *others = options["xAxis"]["axisTick"]["customValues"]
    assert others == [first + day_ms, first + 2 * day_ms]


class TestDefaults:
    def default_ranges(self, url: str, name: str, choices: Choices | None = None) -> tuple[str, ...]:
        with StoreReader(url) as reader:
            question = Question(experiment=name, fleet="home")
            return with_defaults(choices or Choices(question), read_selected(reader, "home", name)).ranges

    def ask(self, url: str, name: str, questions: str) -> None:
        payload = {
            "temp": number_payload(64, 2, -4_000, 28_000, "temp"),
            "mode": choice_payload(["a", "b, c"], 2),
        }
        with Store(url) as opened:
            opened.add_experiment("home", payload[name], description=Description("°C", asked=questions))

    def test_selects_nothing_for_a_number(self, store):
        url, grow = store
        grow("temp", DAYS[0], 500)
        assert self.default_ranges(url, "temp") == ()

    def test_selects_share_in_a_numbers_file(self, store):
        url, grow = store
        grow("temp", DAYS[0], 500)
        self.ask(url, "temp", "median\n20:\n:5")
        assert self.default_ranges(url, "temp") == ("20:",)
        assert self.default_ranges(url, "temp", Choices(TEMP.replace(ranges=("1:2",)))) == ("1:2",)

    def test_selects_most_common_label(self, store):
        url, _grow = store
        with Store(url) as opened:
            version = next(v for v in opened.experiments("home") if v.experiment.name == "mode")
            counts = {(version.id, DAYS[1], 0, 1): 900, (version.id, DAYS[2], 0, 0): 5000}
            with opened.ingest() as transaction:
                transaction.write({}, counts, {})
        assert self.default_ranges(url, "mode") == ("a",)
        assert self.default_ranges(url, "mode", Choices(MODE, windows=DAYS[1:2])) == ("b, c",)

    def test_selects_label_named_in_file(self, store):
        url, grow = store
        grow("mode", DAYS[0], 500)
        self.ask(url, "mode", "b, c")
        assert self.default_ranges(url, "mode") == ("b, c",)


class TestTypedTexts:
    def test_are_distinct_lines(self):
        assert typed_texts("1.4.2\r\n\n1.4.1\n1.4.2\n") == ("1.4.2", "1.4.1")

    def test_file_texts_are_not_a_choice(self):
        assert typed_texts("a\nb", ("a", "b")) == ()

    def test_rejects_too_many_and_too_long_texts(self):
        with pytest.raises(UsageError, match="at most 100 texts, not 101"):
            typed_texts("\n".join(map(str, range(101))))
        with pytest.raises(UsageError, match="at most 255 bytes"):
            typed_texts("ü" * 128)
