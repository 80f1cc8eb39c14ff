"""What charts show of an answer, and their number formats in a real Chromium."""

from pathlib import Path

import pytest
from babel import Locale
from browser import Browser

from hushmote.server.answers.answer import Answer
from hushmote.server.answers.rows import ChangeRow, TrendRow, VersionMark
from hushmote.web.experiment import charts, sentences
from hushmote.web.reader import Reader

STATIC = Path(__file__).parents[2] / "web" / "static"


@pytest.mark.parametrize(("names", "is_shown"), [(["mean"], False), (["mean", "median"], True)])
def test_only_several_lines_have_a_legend(names: list[str], is_shown: bool):
    rows = tuple(TrendRow(name, 20.0, 19.0, 21.0, window="2026-01-01", reports=9) for name in names)
    answer = Answer("trend", "temp", "reading", "°C", 9, 0.95, rows)
    legend = charts.over_time(answer, "summary", "en-US")["legend"]
    assert (legend["show"], legend["data"]) == (is_shown, names)


def test_new_version_is_marked_where_it_starts():
    days = [f"2026-01-0{day}" for day in (1, 2, 3)]
    labels = [("dry", days[1:]), ("cool", days)]
    rows = tuple(
        TrendRow(name, 0.2, 0.1, 0.3, window=day, reports=9, version=f"a{day[-1]}")
        for name, windows in labels
        for day in windows
    )
    mark = VersionMark(days[1], "a2", "with 'dry'")
    answer = Answer("trend", "mode", "share", "", 9, 0.95, rows, marks=(mark,))
    options = charts.over_time(answer, "summary", "en-US")
    by_id = {each["id"]: each for each in options["series"]}
    assert options["xAxis"]["data"] == days
    assert by_id["line 0"]["data"] == [None, 20.0, 20.0]
    assert [end[0] for end in by_id["ends 0"]["data"]] == [1, 2]
    assert by_id["versions"]["markLine"]["data"] == [{"xAxis": 1, "name": "a2: with 'dry'"}]


@pytest.mark.parametrize(("p", "changed"), [(0.0499, True), (1 - 0.95, False)])
def test_change_is_red_if_its_sentence_says_so(p: float, changed: bool):
    row = ChangeRow("mean", 1.0, 0.1, 1.9, before=20.0, after=21.0, p=p, p_adjusted=p)
    answer = Answer("change", "temp", "reading", "°C", 9, 0.95, (row,))
    series, _ = charts.changes(answer, ["mean"], "summary", "en-US")["series"]
    assert [point["itemStyle"]["color"] == charts.RED for point in series["data"]] == [changed]
    sentence = sentences.change(row, "mean", answer, Reader(Locale("en", "US")))
    assert sentence.endswith("It changed." if changed else "That may be chance.")


@pytest.mark.parametrize(
    ("formatter", "number", "text"),
    [
        ("numbers('en-US', '')", 0.012345, "0.0123"),
        ("numbers('en-US', '')", 999_000, "999,000"),
        ("numbers('en-US', '')", 1_000_000, "1M"),
        ("numbers('en-US', '')", -2_345_678, "-2.35M"),
        ("numbers('de', '%')", 12.5, "12,5\xa0%"),
        ("digits('en-US', '%')", 1234.5, "1,234.5%"),
    ],
)
def test_large_numbers_on_axes_are_short(browser: Browser, formatter: str, number: float, text: str):
    script = f"window.hushmote = {{}}; {(STATIC / 'charts.js').read_text()} return hushmote.{formatter}"
    assert browser.script(f"{script}(arguments[0])", number) == text
