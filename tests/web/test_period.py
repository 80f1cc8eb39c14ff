"""The one period of a view: its windows, its name in an address, and the control in a real Chromium."""

import datetime
from collections.abc import Iterator

import pytest
from accessibility import barriers
from babel import Locale
from browser import Browser, paged
from designs import number_payload
from filled import fill
from selenium.webdriver.common.by import By

from hushmote.server.answers.finding import find
from hushmote.server.answers.query import Facts, Selection
from hushmote.server.store.store import Store
from hushmote.web.period import ALL, USUAL, parse, period_in, phrase_of, query_of, windows_before, windows_of
from hushmote.web.reader import Reader

ENGLISH = Reader(Locale("en", "US"))
AT = datetime.datetime(2026, 11, 28, 10, tzinfo=datetime.UTC)


def days_until(day: int, count: int) -> tuple[str, ...]:
    last = datetime.date(2026, 11, day)
    return tuple(f"{last - datetime.timedelta(ago)}" for ago in range(count - 1, -1, -1))


class TestWindowsOf:
    there = days_until(28, 40)  # of which the last is running

    def test_usual_is_the_newest_7_completed_days(self):
        assert windows_of(USUAL, self.there, AT) == days_until(27, 7)

    def test_usual_is_all_completed_days_of_a_young_fleet(self):
        assert windows_of(USUAL, self.there[-4:], AT) == days_until(27, 3)

    def test_usual_is_the_running_day_while_it_is_the_first(self):
        assert windows_of(USUAL, self.there[-1:], AT) == ("2026-11-28",)
        assert windows_of(USUAL, (), AT) == ()

    def test_usual_ends_with_the_newest_reports_of_a_silent_fleet(self):
        assert windows_of(USUAL, days_until(3, 20), AT) == days_until(3, 7)

    def test_hours_belong_to_completed_days(self):
        hours = tuple(f"2026-11-{day}T{hour:02}" for day in range(10, 29) for hour in (3, 9))
        assert windows_of(USUAL, hours, AT) == tuple(
            w for w in hours if "2026-11-21" <= w[:10] <= "2026-11-27"
        )

    def test_longer_ones_and_spans(self):
        assert windows_of("30d", self.there, AT) == days_until(27, 30)
        assert windows_of(ALL, self.there, AT) == days_until(27, 39)
        assert windows_of("2026-11-02..2026-11-04", self.there, AT) == days_until(4, 3)
        assert windows_of("2025-11-02..2025-11-04", self.there, AT) == ()

    def test_a_window_without_an_end_is_in_every_period(self):
        assert (
            windows_of(USUAL, ("all",), AT) == windows_of("2026-11-02..2026-11-04", ("all",), AT) == ("all",)
        )

    def test_the_time_before_is_as_long(self):
        assert windows_before(days_until(27, 7), self.there) == days_until(20, 7)
        assert windows_before(self.there, self.there) == windows_before(("all",), ("all",)) == ()


class TestNames:
    def test_an_address_keeps_the_period(self):
        for period in ("30d", ALL, "2026-11-02..2026-11-04"):
            assert period_in(query_of(period)) == period
        assert query_of(USUAL) == ""
        assert period_in("period=7d") == period_in("period=never&x=1") == period_in("") == USUAL

    @pytest.mark.parametrize(
        "text", ["8d", "2026-11-04..2026-11-02", "2026-02-30..2026-03-01", "..", "explicit"]
    )
    def test_rejects_other_texts(self, text):
        assert parse(text) is None

    def test_sentences_name_it(self):
        assert phrase_of("2026-11-02..2026-11-04", ENGLISH) == "from Nov 2, 2026 to Nov 4, 2026"
        assert phrase_of("2026-11-02..2026-11-02", ENGLISH) == "on Nov 2, 2026"
        assert phrase_of("30d", ENGLISH) == "in the last 30 days"


TODAY = datetime.datetime.now(datetime.UTC).date()
WINDOWS = [
    f"{TODAY - datetime.timedelta(ago)}" for ago in range(41, 1, -1)
]  # also once a midnight has passed


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store of a fleet that is steady and then much warmer in its last 7 days."""
    url = f"sqlite:///{tmp_path_factory.mktemp('period') / 'store.sqlite'}"
    shares = {
        w: [0.0] * (1 if n < 33 else 6) + [1.0] + [0.0] * (6 if n < 33 else 1) for n, w in enumerate(WINDOWS)
    }
    with Store(url) as opened:
        fill(
            opened, "home", number_payload(8, 2, 0, 8_000, "temp"), dict.fromkeys(WINDOWS, 900), shares, "°C"
        )
        fill(opened, "home", number_payload(8, 2, 0, 8_000, "old"), dict.fromkeys(WINDOWS[:2], 900))
    return url


@pytest.fixture(scope="module")
def page(store: str) -> Iterator[str]:
    with paged(store) as url:
        yield url


def headline_of(store: str, windows: list[str]) -> str:
    """Return the lines of the findings, as the page shows them."""
    with Store(store) as opened:
        return "\n".join(find(Facts(opened), Selection("temp", "home", tuple(windows)), ENGLISH).lines)


def compared_days(windows: list[str]) -> str:
    first, last = (datetime.date.fromisoformat(windows[end]) for end in (0, -1))
    return ENGLISH.days(first, last, {first.year, last.year} != {TODAY.year})


def pressed(browser: Browser) -> list[str]:
    buttons = browser.driver.find_elements(By.CSS_SELECTOR, "[aria-label=Period] [aria-pressed=true]")
    return [button.text for button in buttons]


class TestFleetView:
    def test_opens_with_the_newest_7_completed_days(self, store, page, browser):
        browser.open(page)
        browser.says(headline_of(store, WINDOWS[-7:]))
        assert pressed(browser) == ["7 days"]
        assert barriers(browser) == []

    def test_a_button_governs_all_tiles_and_the_address(self, store, page, browser):
        browser.open(page)
        browser.named("30 days").click()
        browser.says(headline_of(store, WINDOWS[-30:]))
        browser.until(lambda: browser.driver.current_url.endswith("?period=30d"))
        assert pressed(browser) == ["30 days"]
        browser.open(f"{page}/?period=all")
        browser.says(headline_of(store, WINDOWS))
        assert pressed(browser) == ["all"]
        browser.named("temp", "a").click()
        browser.until(lambda: browser.driver.current_url.endswith("/experiment/home/temp?period=all"))
        browser.until(lambda: pressed(browser) == ["all"])

    def test_other_days_are_typed(self, store, page, browser):
        browser.open(page)
        browser.named("custom").click()
        for name, day in (("First day", WINDOWS[2]), ("Last day", WINDOWS[8])):
            field = browser.find(f"input[aria-label='{name}']")
            field.send_keys(f"{datetime.date.fromisoformat(day):%m%d%Y}")
        browser.until(lambda: f"period={WINDOWS[2]}..{WINDOWS[8]}" in browser.driver.current_url)
        browser.says(headline_of(store, WINDOWS[2:9]))
        days = " to ".join(ENGLISH.day(datetime.date.fromisoformat(day)) for day in (WINDOWS[2], WINDOWS[8]))
        browser.says(f"No report came from {days}.")  # of the other experiment
        assert pressed(browser) == ["custom"]
        assert barriers(browser) == []
        browser.resize(360)
        browser.until(lambda: browser.overflow() <= 0, "it is too wide")


class TestExperimentView:
    def test_one_control_governs_every_part(self, store, page, browser):
        browser.open(f"{page}/experiment/home/temp?period=30d&ranges=5%3A")
        browser.until(lambda: browser.text_of("finding") == headline_of(store, WINDOWS[-30:]))
        for place in ("share", "command-estimate"):
            browser.until(lambda place=place: browser.text_of(place), place)
        browser.until(lambda: "30 of 40 windows" in browser.text_of("share"))
        browser.until(
            lambda: f"--window={WINDOWS[-30]}..{WINDOWS[-1]}" in browser.text_of("command-estimate")
        )
        browser.until(lambda: "ε for someone who sees this once: 0" in browser.text_of("private"))
        month = browser.text_of("private")
        browser.named("The time just before, as long").click()
        browser.until(lambda: "against=before" in browser.driver.current_url)
        browser.until(lambda: browser.text_of("change"))
        browser.until(lambda: ", compared with " in browser.text_of("finding"))
        browser.named("7 days").click()
        before, after = (compared_days(WINDOWS[-14:-7]), compared_days(WINDOWS[-7:]))
        browser.until(lambda: f", {after}, compared with " in browser.text_of("finding"))
        assert browser.text_of("finding").startswith("5 °C and above: ")
        assert f", {before}. Up " in browser.text_of("finding")
        browser.until(lambda: "7 of 40 windows" in browser.text_of("share"))
        span = f"--window={WINDOWS[-7]}..{WINDOWS[-1]}", f"--against={WINDOWS[-14]}..{WINDOWS[-8]}"
        browser.until(lambda: all(part in browser.text_of("command-change") for part in span))
        browser.until(lambda: "5 °C and above rose by " in browser.text_of("change"))
        browser.until(lambda: browser.text_of("private") != month)
        browser.until(lambda: "period=" not in browser.driver.current_url)
        assert barriers(browser) == []

    def test_days_without_reports_are_named(self, page, browser):
        browser.open(f"{page}/experiment/home/old?period={WINDOWS[5]}..{WINDOWS[6]}")
        browser.says(f"This link asks for something that is not here (period {WINDOWS[5]}..{WINDOWS[6]})")
        browser.until(lambda: pressed(browser) == ["7 days"])
