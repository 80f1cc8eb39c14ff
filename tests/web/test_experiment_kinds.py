"""Experiments without a histogram in a real Chromium: a mean and its trend, texts and the command to ask."""

from collections.abc import Iterator

import pytest
from accessibility import barriers
from browser import Browser, paged
from kinds import WINDOWS, fill_kinds
from selenium.webdriver.common.by import By

from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.store import Store
from hushmote.server.words.answers import digits


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('kinds') / 'hushmote.sqlite'}"
    with Store(url) as opened:
        fill_kinds(opened)
    return url


@pytest.fixture(scope="module")
def page(store: str) -> Iterator[str]:
    with paged(store) as url:
        yield url


def test_a_mean_is_the_headline_and_its_trend_the_picture(store: str, page: str, browser: Browser):
    browser.open(f"{page}/experiment/home/delay")
    browser.until(lambda: ", between " in browser.text_of("mean"), "no mean")
    with StoreReader(store) as reader:
        row = reader.fleet("home").experiment("delay").estimate().mean().rows[0]
    places = digits(row.low, row.high)
    assert browser.text_of("mean").startswith(
        f"Mean: {row.value:.{places}f} min, between {row.low:.{places}f}"
    )
    browser.until(lambda: "chance alone" in browser.text_of("trend"), "no trend")
    assert not browser.driver.find_elements(By.ID, "share")
    assert "hushmote estimate delay --fleet home" in browser.text_of("command-estimate")
    assert "--trend" in browser.text_of("command-trend")
    first, last = min(WINDOWS), max(WINDOWS)
    browser.open(f"{page}/experiment/home/delay?windows={last}&since={first}")
    browser.until(lambda: browser.text_of("change").startswith("Mean "), "no change")
    assert not barriers(browser)
    assert not browser.errors()


def test_texts_are_asked_by_a_command_that_the_page_gives(page: str, browser: Browser):
    browser.open(f"{page}/experiment/home/firmware")
    browser.until(lambda: "--candidates" in browser.text_of("command-ask"), "no command")
    assert browser.text_of("answers") == "firmware answers only the shares of texts that you name."
    assert browser.text_of("command-ask").startswith("hushmote estimate firmware --fleet home --store ")
    browser.until(lambda: "ε of a report: 2" in browser.text_of("private"), "not how private it is")
    assert not barriers(browser)
    assert not browser.errors()


def test_what_nobody_listed_is_a_table(page: str, browser: Browser):
    browser.open(f"{page}/experiment/home/crash")
    browser.until(lambda: "1.0.0" in browser.text_of("tables"), "nothing found")
    assert browser.text_of("command-ask").startswith("hushmote estimate crash --fleet home --store ")
    assert not barriers(browser)
    assert not browser.errors()


def test_two_readings_together_are_tables(page: str, browser: Browser):
    browser.open(f"{page}/experiment/home/crash_by_version")
    browser.until(lambda: "version" in browser.text_of("tables"), "no tables")
    assert "crashed" in browser.text_of("tables")
    assert browser.text_of("command-ask").startswith("hushmote estimate crash_by_version --fleet home")
    assert not barriers(browser)
    assert not browser.errors()


def test_the_first_view_has_every_kind(page: str, browser: Browser):
    browser.open(page)
    for name in ("crash", "crash_by_version", "delay", "firmware", "room"):
        browser.says(name)
    assert not browser.errors()
