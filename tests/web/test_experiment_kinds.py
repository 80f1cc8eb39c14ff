"""Experiments without a histogram in a real Chromium, such as a mean with its trend, texts and pairs."""

import datetime
import re
from collections.abc import Iterator

import numpy as np
import pytest
from accessibility import barriers
from browser import Browser, paged
from custom_mechanisms import EXAMPLES
from experiment_kinds import TEXT, WINDOWS, WORDS, fill_kinds
from experiments import number_json
from filled_store import fill
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from hushmote.server.answers.rows import Row
from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.experiments import definition
from hushmote.server.store import Store
from hushmote.server.wire import experiments as wire
from hushmote.server.words.findings import amount
from hushmote.server.words.numbers import decimals, format_estimate
from hushmote.simulator import days, texts
from hushmote.simulator.days import Course
from hushmote.simulator.population import weighted


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('kinds') / 'hushmote.sqlite'}"
    with Store(url) as opened:
        fill_kinds(opened)
        payload = TEXT.replace(b'"firmware"', b'"listed"')
        fill(opened, "home", payload, WINDOWS, asked="\n".join(WORDS))
        number = number_json(16, name="door", low=0, high=16_000, missing=1, epsilon=2_000_000)
        shares = [0.0] * 16 + [0.136]
        shares[3:7] = [0.216] * 4
        fill(opened, "home", number, WINDOWS, shares, "min")
    return url


EMOJI = """
name = "emoji"
purpose = "Which emoji are typed most?"
owner = "ops@example.org"
expires = 9999-12-31
type = "choice"
labels = ["joy", "heart", "sob"]
mechanism = "hcms:HadamardSketch"
hashes = 8
width = 64
epsilon = 4
window = "day"
[budget]
rule = "sum"
cap = 8
"""
TYPED = (
    'name = "typed"\ntype = "letters"\nalphabet = "abcdefgh"\nlength = 6\nmechanism = "sfp:FragmentPuzzle"\n'
)


@pytest.fixture(scope="module")
def approximate_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide a page with a sketch's shares and a puzzle's words, using mechanisms from examples/channels."""
    url = f"sqlite:///{tmp_path_factory.mktemp('sketches') / 'hushmote.sqlite'}"
    start, end = EMOJI.index("purpose"), EMOJI.index("type =")
    typed = TYPED + EMOJI[start:end] + EMOJI[EMOJI.index("hashes") :].replace("width = 64", "width = 4096")
    words = texts.weighted(["cab", "headache"], [3, 1])
    today = datetime.datetime.now(datetime.UTC).date()
    with pytest.MonkeyPatch.context() as patch, Store(url) as store:
        patch.setattr(wire, "FOLDERS", [str(EXAMPLES)])
        for text, people in ((EMOJI, weighted([5, 3, 1, 1])), (typed, words)):
            course = Course("simulated", definition.parse(text), 20_000, people, 2, 1, 0.0, today)
            days.fill(store, course, np.random.default_rng(1))
    with paged(url, environment={"PYTHONPATH": str(EXAMPLES)}) as address:
        yield f"{address}/experiment/simulated"


class TestApproximateAnswers:
    NOTE = "Approximate: the intervals include an error"

    def test_of_values_are_marked(self, approximate_page: str, browser: Browser):
        browser.open(f"{approximate_page}/emoji")
        browser.until(lambda: browser.text_of("share").startswith("joy: "), "no share")
        browser.says(self.NOTE)
        assert "More reports narrow the intervals only as far" in browser.text_of("exact")
        browser.until(lambda: ", approximate, " in browser.text_of("finding"), "no finding")
        assert not barriers(browser)
        assert not browser.errors()

    def test_of_words_are_marked(self, approximate_page: str, browser: Browser):
        browser.open(f"{approximate_page}/typed")
        browser.until(lambda: "headac…" in browser.text_of("tables"), "no words")
        assert "Texts found, approximate" in browser.text_of("tables")
        assert self.NOTE in browser.text_of("tables")
        browser.until(lambda: "Most common is cab" in browser.text_of("finding"), "no finding")
        assert not barriers(browser)
        assert not browser.errors()

    def test_are_marked_on_a_tile(self, approximate_page: str, browser: Browser):
        browser.open(approximate_page.partition("/experiment")[0])
        browser.says("approximate")


@pytest.fixture(scope="module")
def page(store: str) -> Iterator[str]:
    with paged(store) as url:
        yield url


class TestMean:
    def test_is_headline_with_chart_of_trend(self, store: str, page: str, browser: Browser):
        browser.open(f"{page}/experiment/home/delay")
        browser.until(lambda: " min (" in browser.text_of("mean"), "no mean")
        with StoreReader(store) as reader:
            row = reader.fleet("home").experiment("delay").estimate().mean().rows[0]
        assert browser.text_of("mean").startswith(f"Mean: {amount(row, 'min')}, ")
        browser.until(lambda: browser.text_of("trend").startswith("Nov 19, 2026 to Nov 21, 2026"), "no trend")
        assert not browser.driver.find_elements(By.ID, "share")
        assert "hushmote estimate delay --fleet home" in browser.text_of("command-estimate")
        assert "--trend" in browser.text_of("command-trend")
        first, last = min(WINDOWS), max(WINDOWS)
        browser.open(f"{page}/experiment/home/delay?windows={last}&against={first}")
        browser.until(lambda: browser.text_of("change").startswith("Mean "), "no change")
        assert not barriers(browser)
        assert not browser.errors()


def bars(browser: Browser) -> list[str]:
    """Return the names next to a picture's bars, and its axis's labels."""
    texts = "return [...document.querySelectorAll('.experiment-chart text')].map(t => t.textContent)"
    return browser.until(lambda: browser.script(texts), "no picture")


def parts(browser: Browser) -> list[str]:
    links = browser.driver.find_elements(By.CSS_SELECTOR, "nav[aria-label=Parts] a")
    return [link.text for link in links if link.is_displayed()]


class TestMissing:
    def test_is_share_of_all_devices(self, store: str, page: str, browser: Browser):
        browser.open(f"{page}/experiment/home/door")
        browser.until(lambda: browser.text_of("missing"), "no share")
        with StoreReader(store) as reader:
            estimate = reader.fleet("home").experiment("door").estimate()
        assert estimate.missing is not None
        assert abs(estimate.missing.value - 0.136) < 0.05
        share = amount(estimate.missing, None)
        assert browser.text_of("missing") == (
            f"No reading: {share}. All other numbers are about devices with a reading."
        )
        axis = "return getElement(+document.querySelector('.experiment-chart').id.slice(1)).chart.getOption()"
        bars = browser.until(lambda: browser.script(f"return ({axis[7:]}).series[0].data.length"))
        assert bars == 16  # without a bar for missing readings
        assert not barriers(browser)
        assert not browser.errors()


class TestHeadline:
    @pytest.mark.parametrize("name", ["room", "delay"])
    def test_matches_tables(self, store: str, page: str, browser: Browser, name: str):
        browser.open(f"{page}/experiment/home/{name}")
        with StoreReader(store) as reader:
            first = reader.fleet("home").experiment(name).finding.findings[0]
        row = Row(first.title, first.value or 0.0, first.low or 0.0, first.high or 0.0)
        value, interval = format_estimate(row.value, row.low, row.high, "min")
        browser.until(lambda: f": {value} ({interval})" in browser.text_of("finding"), "no headline")
        place = "readings" if name == "room" else "mean"
        browser.until(lambda: value.split()[0] in browser.text_of(place), "another number")
        if name == "room":
            tiles = browser.driver.find_elements(By.CSS_SELECTOR, "#readings li")
            assert [tile.text.splitlines() for tile in tiles if tile.text.startswith("Median")] == [
                ["Median", value, interval]
            ]


class TestParts:
    def test_link_only_to_existing_sections(self, page: str, browser: Browser):
        both = ["How private", "Export"]
        for name, expected in (
            ("room", ["Over time", "Compare", *both]),
            ("delay", ["Over time", "Compare", *both]),
            ("firmware", both[:1]),  # nothing to export before a text is named
            ("listed", both),
            ("crash", both),
            ("crash_by_version", both),
        ):
            browser.open(f"{page}/experiment/home/{name}")
            browser.until(lambda expected=expected: parts(browser) == expected, name)
            for link in browser.driver.find_elements(By.CSS_SELECTOR, "nav[aria-label=Parts] a"):
                target = str(link.get_attribute("href")).partition("#")[2]
                exists = any(e.is_displayed() for e in browser.driver.find_elements(By.ID, target))
                assert exists == link.is_displayed(), (name, target)


class TestLayout:
    def test_numbers_stay_on_one_line(self, page: str, browser: Browser):
        browser.resize(360)
        browser.open(f"{page}/experiment/home/crash_by_version")
        browser.until(lambda: "version" in browser.text_of("tables"), "no tables")
        lines = (
            "return [...document.querySelectorAll('#tables td:not(:first-child), #tables th')].filter(e => {"
            "  const range = document.createRange(); range.selectNodeContents(e);"
            "  return range.getBoundingClientRect().height > 1.6 * parseFloat(getComputedStyle(e).fontSize);"
            "}).map(e => e.textContent)"
        )
        assert browser.script(lines) == []
        assert browser.overflow() <= 0

    def test_text_field_shows_label(self, page: str, browser: Browser):
        for width in (1440, 360):
            browser.resize(width)
            browser.open(f"{page}/experiment/home/firmware")
            label = browser.find(".experiment-texts .q-field__label")
            cut = "return arguments[0].scrollWidth - arguments[0].clientWidth"
            assert browser.script(cut, label) <= 0
            assert browser.overflow() <= 0


class TestTexts:
    def test_are_typed_one_per_line(self, store: str, page: str, browser: Browser):
        browser.open(f"{page}/experiment/home/firmware")
        browser.until(lambda: browser.text_of("command-ask").endswith("--candidates=FILE"), "no command")
        assert browser.text_of("answers") == "firmware answers only the shares of texts that you name."
        assert browser.text_of("command-ask").startswith("hushmote estimate firmware --fleet home ")
        browser.until(lambda: "ε of a report: 2" in browser.text_of("private"), "no ε")
        browser.until(lambda: re.search("Computed (just now|.* ago), and again", browser.text_of("private")))
        field = browser.find("textarea[aria-label='Texts to look for, one on each line']")
        field.send_keys("1.0.0\n9.9.9\n", Keys.TAB)
        browser.until(lambda: "9.9.9" in browser.text_of("tables"), "no answer")
        with StoreReader(store) as reader:
            estimate = reader.fleet("home").experiment("firmware").estimate()
        row = estimate.candidates(["1.0.0", "9.9.9"]).rows[0]
        value = f"{row.value * 100:.{decimals(row.low * 100, row.high * 100)}f}%"
        assert value in browser.text_of("tables")
        assert {"1.0.0", "9.9.9"} <= set(bars(browser))
        browser.until(lambda: "ranges=1.0.0&ranges=9.9.9" in browser.driver.current_url)
        assert "--range=1.0.0 --range=9.9.9" in browser.text_of("command-ask")
        assert not barriers(browser)
        browser.open(browser.driver.current_url)
        browser.until(lambda: value in browser.text_of("tables"), "the link shows something else")
        field = browser.find("textarea[aria-label='Texts to look for, one on each line']")
        assert field.get_property("value") == "1.0.0\n9.9.9"
        field.send_keys("x" * 300, Keys.TAB)
        browser.says("A text can have at most 255 bytes")
        assert value in browser.text_of("tables")
        assert not browser.errors()

    def test_finding_names_the_field(self, page: str, browser: Browser):
        browser.open(f"{page}/experiment/home/firmware")
        browser.says('candidates in the experiment\'s file or with the field "Texts to look for" in the')

    def test_file_texts_are_shown_immediately(self, page: str, browser: Browser):
        browser.open(f"{page}/experiment/home/listed")
        browser.until(lambda: "2.0.0-rc1" in browser.text_of("tables"), "no answer")
        field = browser.find("textarea[aria-label='Texts to look for, one on each line']")
        assert str(field.get_property("value")).splitlines() == list(WORDS)
        assert "--range" not in browser.text_of("command-ask")
        assert "--candidates" not in browser.text_of("command-ask")
        assert not barriers(browser)
        assert not browser.errors()

    def test_discovered_texts_are_in_table(self, page: str, browser: Browser):
        browser.open(f"{page}/experiment/home/crash")
        browser.until(lambda: "1.0.0" in browser.text_of("tables"), "nothing found")
        assert browser.text_of("command-ask").startswith("hushmote estimate crash --fleet home --store ")
        assert not barriers(browser)
        assert not browser.errors()


class TestPair:
    def test_is_shown_in_tables(self, page: str, browser: Browser):
        browser.open(f"{page}/experiment/home/crash_by_version")
        browser.until(lambda: "version" in browser.text_of("tables"), "no tables")
        assert "crashed" in browser.text_of("tables")
        assert {"version=1.0", "version=1.1", "version=1.2"} <= set(bars(browser))
        assert browser.text_of("command-ask").startswith("hushmote estimate crash_by_version --fleet home")
        assert not barriers(browser)
        assert not browser.errors()


class TestFirstView:
    def test_lists_every_kind(self, page: str, browser: Browser):
        browser.open(page)
        for name in ("crash", "crash_by_version", "delay", "firmware", "room"):
            browser.says(name)
        assert not browser.errors()
