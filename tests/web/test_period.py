"""A view's period, with its windows, its name in a URL, and its control in a real Chromium."""

import datetime
from collections.abc import Iterator

import pytest
from accessibility import barriers
from babel import Locale
from browser import Browser, paged
from designs import number_payload
from filled_store import fill
from selenium.webdriver.common.by import By

from hushmote.server.answers.finding import find
from hushmote.server.answers.query import Facts
from hushmote.server.answers.question import Question, Selection
from hushmote.server.store.store import Store
from hushmote.web.period import (
    ALL,
    EXPLICIT,
    USUAL,
    in_period,
    parse,
    period_in,
    period_of,
    phrase_of,
    query_of,
    windows_of,
)
from hushmote.web.reader import Reader

ENGLISH = Reader(Locale("en", "US"))


class TestNames:
    def test_url_stores_period(self):
        for period in ("30d", ALL, "2026-11-02..2026-11-04"):
            assert period_in(query_of(period)) == period
        assert query_of(USUAL) == ""
        assert period_in("last=7d") == period_in("last=never&x=1") == period_in("") == USUAL

    @pytest.mark.parametrize(
        "text", ["8d", "2026-11-04..2026-11-02", "2026-02-30..2026-03-01", "..", "explicit"]
    )
    def test_rejects_invalid_texts(self, text):
        assert parse(text) is None

    def test_sentences_name_period(self):
        assert phrase_of("2026-11-02..2026-11-04", ENGLISH) == "from Nov 2, 2026 to Nov 4, 2026"
        assert phrase_of("2026-11-02..2026-11-02", ENGLISH) == "on Nov 2, 2026"
        assert phrase_of("30d", ENGLISH) == "in the last 30 days"


TODAY = datetime.datetime.now(datetime.UTC).date()
# Up to two days ago, to let a test run past midnight.
WINDOWS = [f"{TODAY - datetime.timedelta(ago)}" for ago in range(41, 1, -1)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Provide the store of a fleet whose readings are constant, and then much higher in the last 7 days."""
    url = f"sqlite:///{tmp_path_factory.mktemp('period') / 'store.sqlite'}"
    shares = {
        w: [0.0] * (1 if n < 33 else 6) + [1.0] + [0.0] * (6 if n < 33 else 1) for n, w in enumerate(WINDOWS)
    }
    with Store(url) as opened:
        fill(
            opened, "home", number_payload(8, 2, 0, 8_000, "temp"), dict.fromkeys(WINDOWS, 900), shares, "°C"
        )
        fill(opened, "home", number_payload(8, 2, 0, 8_000, "old"), dict.fromkeys(WINDOWS[:2], 900))
        fill(opened, "home", number_payload(8, 2, 0, 8_000, "ever"), {"all": 900})
    return url


class TestWindowsOf:
    @pytest.mark.parametrize(
        ("period", "windows"),
        [
            (USUAL, WINDOWS[-7:]),
            (ALL, WINDOWS),
            (f"{WINDOWS[2]}..{WINDOWS[8]}", WINDOWS[2:9]),
            ("2025-11-02..2025-11-04", []),
        ],
    )
    def test_include_only_windows_with_reports(self, period: str, windows: list[str], store: str):
        question = in_period(Question(experiment="temp", fleet="home"), period)
        assert period_of(question) == period
        with Store(store) as opened:
            assert windows_of(question, Facts(opened)) == tuple(windows)

    def test_may_be_chosen_individually(self, store: str):
        question = Question(experiment="temp", fleet="home", windows=(WINDOWS[3], "2020-01-01"))
        assert period_of(question) == EXPLICIT
        with Store(store) as opened:
            assert windows_of(question, Facts(opened)) == (WINDOWS[3],)

    def test_endless_window_is_in_every_period(self, store: str):
        question = Question(experiment="ever", fleet="home")
        with Store(store) as opened:
            for period in (USUAL, "30d", "2026-11-02..2026-11-04"):
                assert windows_of(in_period(question, period), Facts(opened)) == ("all",)


@pytest.fixture(scope="module")
def page(store: str) -> Iterator[str]:
    with paged(store) as url:
        yield url


def headline_of(store: str, windows: list[str]) -> str:
    """Return the findings' lines, as the page shows them."""
    with Store(store) as opened:
        return "\n".join(find(Facts(opened), Selection("temp", "home", tuple(windows)), ENGLISH).lines)


def compared_days(windows: list[str]) -> str:
    first, last = (datetime.date.fromisoformat(windows[end]) for end in (0, -1))
    return ENGLISH.days(first, last, {first.year, last.year} != {TODAY.year})


def pressed_buttons(browser: Browser) -> list[str]:
    buttons = browser.driver.find_elements(By.CSS_SELECTOR, "[aria-label=Period] [aria-pressed=true]")
    return [button.text for button in buttons]


class TestFleetView:
    def test_opens_with_newest_7_completed_days(self, store, page, browser):
        browser.open(page)
        browser.says(headline_of(store, WINDOWS[-7:]))
        assert pressed_buttons(browser) == ["7 days"]
        assert barriers(browser) == []

    def test_button_changes_all_tiles_and_url(self, store, page, browser):
        browser.open(page)
        browser.find_by_name("30 days").click()
        browser.says(headline_of(store, WINDOWS[-29:]))
        browser.until(lambda: browser.driver.current_url.endswith("?last=30d"))
        assert pressed_buttons(browser) == ["30 days"]
        browser.open(f"{page}/?last=all")
        browser.says(headline_of(store, WINDOWS))
        assert pressed_buttons(browser) == ["all"]
        browser.find_by_name("temp", "a").click()
        browser.until(lambda: browser.driver.current_url.endswith("/experiment/home/temp?last=all"))
        browser.until(lambda: pressed_buttons(browser) == ["all"])

    def test_custom_days_can_be_typed(self, store, page, browser):
        browser.open(page)
        browser.find_by_name("custom").click()
        for name, day in (("First day", WINDOWS[2]), ("Last day", WINDOWS[8])):
            field = browser.find(f"input[aria-label='{name}']")
            field.send_keys(f"{datetime.date.fromisoformat(day):%m%d%Y}")
        browser.until(lambda: f"windows={WINDOWS[2]}..{WINDOWS[8]}" in browser.driver.current_url)
        browser.says(headline_of(store, WINDOWS[2:9]))
        days = " to ".join(ENGLISH.day(datetime.date.fromisoformat(day)) for day in (WINDOWS[2], WINDOWS[8]))
        browser.says(f"No reports arrived from {days}.")  # in the other experiment
        assert pressed_buttons(browser) == ["custom"]
        assert barriers(browser) == []
        browser.resize(360)
        browser.until(lambda: browser.overflow() <= 0, "it is too wide")


class TestExperimentView:
    def test_control_changes_every_part(self, store, page, browser):
        browser.open(f"{page}/experiment/home/temp?last=30d&ranges=5%3A")
        browser.until(lambda: browser.text_of("finding") == headline_of(store, WINDOWS[-29:]))
        for name in ("share", "command-estimate"):
            browser.until(lambda name=name: browser.text_of(name), name)
        browser.until(lambda: "29 of 40 windows" in browser.text_of("share"))
        browser.until(
            lambda: f"--window={WINDOWS[-29]}..{WINDOWS[-1]}" in browser.text_of("command-estimate")
        )
        browser.until(lambda: "ε for someone who sees this once: 0" in browser.text_of("private"))
        month = browser.text_of("private")
        browser.find_by_name("The preceding period of equal length").click()
        browser.until(lambda: "against=before" in browser.driver.current_url)
        browser.until(lambda: browser.text_of("change"))
        browser.until(lambda: ", compared with " in browser.text_of("finding"))
        browser.find_by_name("7 days").click()
        before, after = (compared_days(WINDOWS[-14:-7]), compared_days(WINDOWS[-7:]))
        browser.until(lambda: f", {after}, compared with " in browser.text_of("finding"))
        assert browser.text_of("finding").startswith("5 °C and above: ")
        assert f", {before}. Up " in browser.text_of("finding")
        browser.until(lambda: "7 of 40 windows" in browser.text_of("share"))
        span = f"--window={WINDOWS[-7]}..{WINDOWS[-1]}", f"--against={WINDOWS[-14]}..{WINDOWS[-8]}"
        browser.until(lambda: all(part in browser.text_of("command-change") for part in span))
        browser.until(lambda: "5 °C and above rose by " in browser.text_of("change"))
        browser.until(lambda: browser.text_of("private") != month)
        browser.until(lambda: "windows=" not in browser.driver.current_url)
        assert barriers(browser) == []

    def test_days_without_reports_are_named(self, page, browser):
        browser.open(f"{page}/experiment/home/old?windows={WINDOWS[5]}..{WINDOWS[6]}")
        browser.says(
            f"This link contains a choice that this view does not have (windows {WINDOWS[5]}..{WINDOWS[6]})"
        )
        browser.until(lambda: pressed_buttons(browser) == ["7 days"])
