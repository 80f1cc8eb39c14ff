"""A question's fields as a command line, a URL and keyword arguments, and its windows."""

import datetime
from collections.abc import Iterator
from urllib.parse import parse_qs

import pytest
from experiments import experiment_json
from filled_store import fill

from hushmote.server.answers.ask import ask
from hushmote.server.answers.query import Facts
from hushmote.server.answers.question import Question
from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.errors import UsageError
from hushmote.server.store import Store

DAYS = tuple(f"2026-11-{day:02}" for day in range(1, 21))
AT = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
TEMP = Question(experiment="temp", fleet="home")
FULL_QUESTION = TEMP.replace(
    windows=("2026-11-01..2026-11-03", "2026-11-07"),
    ranges=("-1:12", "20:"),
    quantiles=(0.05, 0.5),
    rows=8,
    cdf=True,
    confidence=0.99,
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    """Provide a store whose last day is still running, with a second fleet that reported on three days."""
    url = f"sqlite:///{tmp_path_factory.mktemp('question') / 'hushmote.sqlite'}"
    temp = experiment_json(
        name="temp", type="number", low=0, high=32_000, bins=32, mechanism="grr", epsilon=3_000_000
    )
    codes = experiment_json(name="code", type="choice", labels=["a", "b"], mechanism="grr")
    with Store(url) as store:
        fill(store, "home", temp, dict.fromkeys(DAYS, 100), unit="°C", asked="18:\nmedian")
        fill(store, "lab", temp, dict.fromkeys(DAYS[2:5], 100))
        fill(store, "home", codes, dict.fromkeys(DAYS[:2], 100), asked="a")
    with StoreReader(url) as opened:
        yield opened


@pytest.fixture
def facts(reader: StoreReader) -> Facts:
    return Facts(reader.store, AT)


class TestForms:
    def test_only_fields_unlike_the_default_are_named(self):
        assert TEMP.options() == {}
        assert TEMP.query() == ""
        assert TEMP.arguments() == ["temp", "--fleet", "home"]

    def test_arguments_match_the_command(self):
        assert FULL_QUESTION.arguments()[3:] == [
            "--window=2026-11-01..2026-11-03",
            "--window=2026-11-07",
            "--range=-1:12",
            "--range=20:",
            "--quantile=0.05",
            "--quantile=0.5",
            "--cdf",
            "--rows=8",
            "--confidence=0.99",
        ]

    def test_address_has_the_same_fields(self):
        fields = parse_qs(FULL_QUESTION.query())
        assert fields["ranges"] == ["-1:12", "20:"]
        assert fields.keys() == FULL_QUESTION.options().keys()

    def test_python_takes_them_as_keyword_arguments(self, reader: StoreReader):
        temp = reader.fleet("home").experiment("temp")
        assert temp.question(**FULL_QUESTION.options()) == FULL_QUESTION
        reply = temp.ask(**FULL_QUESTION.options())
        assert reply.to_json() == ask(Facts(reader.store), FULL_QUESTION).to_json()

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"by": "year"}, "by must be 'day', 'week' or 'month', not 'year'"),
            ({"window": "2026-11"}, "window is not a field"),
            ({"top": -1}, "top must be 0 or more, not -1"),
        ],
    )
    def test_wrong_field_is_one_line(self, fields: dict, text: str, reader: StoreReader):
        with pytest.raises(UsageError) as refused:
            reader.fleet("home").experiment("temp").ask(**fields)
        assert str(refused.value) == text


class TestResolve:
    @pytest.mark.parametrize(
        ("fields", "windows"),
        [
            ({}, DAYS[12:19]),
            ({"last": "2d"}, DAYS[17:19]),
            ({"last": "all"}, DAYS[:19]),
            ({"windows": ("2026-11",)}, DAYS),
            ({"windows": ("2026-11-02..2026-11-03", "2026-11-02")}, DAYS[1:3]),
            ({"trend": True}, DAYS[:19]),
            ({"by": "week"}, DAYS[:19]),
            ({"trend": True, "last": "3d"}, DAYS[16:19]),
        ],
        ids=["usual", "last", "all", "month", "overlap", "trend", "by week", "trend of three days"],
    )
    def test_period_selects_windows(self, fields: dict, windows: tuple[str, ...], facts: Facts):
        assert TEMP.replace(**fields).resolve(facts).selection.windows == windows

    @pytest.mark.parametrize(
        ("fields", "fleet", "windows"),
        [
            ({"against": ("2026-11-01",)}, "home", DAYS[:1]),
            ({"against": ("fleet=lab",)}, "lab", DAYS[2:5]),
            ({"against": ("fleet=lab",), "windows": ("2026-11-04",)}, "lab", DAYS[3:4]),
            ({"against": ("fleet=lab", "2026-11-03")}, "lab", DAYS[2:3]),
            ({"against": ("before",)}, "home", DAYS[5:12]),
            ({"against": ("before",), "last": "2d"}, "home", DAYS[15:17]),
            ({"against": ("before",), "windows": ("2026-11-06..2026-11-08",)}, "home", DAYS[2:5]),
        ],
        ids=[
            *("a window", "a fleet", "a fleet in a window", "a window of a fleet"),
            *("the time before", "two days before", "three days before"),
        ],
    )
    def test_windows_to_compare_with(self, fields: dict, fleet: str, windows: tuple, facts: Facts):
        against = TEMP.replace(**fields).resolve(facts).against
        assert against is not None
        assert (against.fleet, against.windows) == (fleet, windows)

    def test_comparison_uses_the_files_questions(self, facts: Facts):
        question = TEMP.replace(against=("before",)).resolve(facts).question
        assert (question.ranges, question.quantiles) == (("18:",), (0.5,))
        assert TEMP.resolve(facts).question == TEMP

    @pytest.mark.parametrize(
        "fields", [{"ranges": ("20:",)}, {"quantiles": (0.9,)}, {"cdf": True}, {"rows": 8}], ids=min
    )
    def test_option_replaces_the_files_questions(self, fields: dict, facts: Facts):
        compared = TEMP.replace(against=("before",), **fields)
        assert compared.resolve(facts).question == compared

    def test_trend_of_ranges_may_have_rows(self, facts: Facts):
        question = TEMP.replace(trend=True, rows=8, ranges=("20:",))
        assert question.resolve(facts).question == question

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"last": "2d", "windows": ("2026-11",)}, "window and last both name a period"),
            ({"against": ("before",), "windows": ("2026-11-01",)}, "the preceding period has no reports"),
            ({"against": ("before", "2026-11-01")}, "already names the preceding period"),
            ({"against": ("2026-11-13..2026-11-19",)}, "both sides are the same"),
            ({"together": True}, "together combines ranges"),
            ({"trend": True, "against": ("fleet=lab",)}, "cannot be combined"),
            ({"against": ("fleet=lab",), "rows": 8, "ranges": ("20:",)}, "rows applies only to histograms"),
        ],
    )
    def test_rejects_questions_without_an_answer(self, fields: dict, text: str, facts: Facts):
        with pytest.raises(UsageError, match=text):
            TEMP.replace(**fields).resolve(facts)
