"""The experiment view after a label was added to the question."""

import datetime
from collections.abc import Iterator

import pytest
from browser import Browser, paged
from experiments import experiment_json, number_json
from filled_store import fill

from hushmote.server.store import Store


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    url = f"sqlite:///{tmp_path_factory.mktemp('changed') / 'hushmote.sqlite'}"
    design = {"name": "mode", "type": "choice", "mechanism": "grr", "epsilon": 3_000_000}
    today = datetime.datetime.now(datetime.UTC).date()
    days = [str(today - datetime.timedelta(n)) for n in (4, 3, 2, 1)]
    with Store(url) as store:
        for labels, windows in ((["heat", "cool"], days[:2]), (["heat", "cool", "dry"], days[2:])):
            fill(store, "home", experiment_json(labels=labels, **design), dict.fromkeys(windows, 1_000))
    with paged(url) as address:
        yield f"{address}/experiment/home/mode"


@pytest.fixture(scope="module")
def wider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    url = f"sqlite:///{tmp_path_factory.mktemp('wider') / 'hushmote.sqlite'}"
    today = datetime.datetime.now(datetime.UTC).date()
    days = [str(today - datetime.timedelta(n)) for n in (4, 3, 2, 1)]
    with Store(url) as store:
        for bins, windows in ((10, days[:2]), (20, days[2:])):
            payload = number_json(bins, name="temp", high=2_000 * bins, epsilon=3_000_000)
            fill(store, "home", payload, dict.fromkeys(windows, 1_000))
    with paged(url) as address:
        yield f"{address}/experiment/home/temp"


class TestAddedLabel:
    NOTE = "2,000 reports of another version without 'dry' left out"

    def test_newest_version_answers(self, view: str, browser: Browser):
        browser.open(view)
        browser.until(lambda: self.NOTE in browser.text_of("finding"), "no note")
        browser.until(lambda: "% of devices" in browser.text_of("share"), "no share")
        assert "2 of 4 windows" in browser.text_of("share")
        assert "An estimate needs" not in browser.find("body").text
        assert not browser.errors()

    def test_trend_shows_where_the_version_starts(self, view: str, browser: Browser):
        browser.open(f"{view}?over=share&ranges=dry&ranges=cool")
        browser.until(lambda: "Before " in browser.text_of("trend"), "no sentence on the change")
        series = (
            "return [...document.querySelectorAll('.experiment-chart')]"
            ".flatMap((chart) => getElement(+chart.id.slice(1)).chart.getOption().series)"
            ".map((series) => [series.id, [series.data, series.markLine?.data]])"
        )
        by_id = dict(browser.script(series))
        assert [value is None for value in by_id["line 0"][0]] == [True, True, False, False]
        (mark,) = by_id["versions"][1]
        assert (mark["xAxis"], mark["name"].partition(": ")[2]) == (2, "with 'dry'")
        assert not browser.errors()

    def test_all_versions_answer_together(self, view: str, browser: Browser):
        browser.open(f"{view}?version=all")
        browser.until(lambda: "most common" in browser.text_of("finding"), "no finding")
        assert self.NOTE not in browser.text_of("finding")
        browser.until(lambda: "--version=all" in browser.text_of("command-estimate"), "no command")
        assert not browser.errors()


class TestWidenedRange:
    def test_all_versions_show_a_median_over_time(self, wider: str, browser: Browser):
        """Bins between common edges have no middle, so a mean would be wrong."""
        browser.open(f"{wider}?version=all&last=all")
        browser.until(lambda: "Median: " in browser.text_of("finding"), "no finding")
        browser.until(lambda: "all 4 windows" in browser.text_of("trend"), "no trend")
        assert "Mean: " not in browser.text_of("finding")
        assert "median" in browser.text_of("over")
        assert not browser.errors()
