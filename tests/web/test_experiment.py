"""The experiment view in a real Chromium, with dragging, typing, live updates, comparisons and downloads."""

import datetime
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from accessibility import barriers
from babel import Locale
from browser import Browser, paged
from command_line import hushmote
from designs import bell, choice_payload, number_payload
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from hushmote.device.ldp_client import Experiment
from hushmote.server.answers.finding import find
from hushmote.server.answers.fleet_estimate import FleetEstimate
from hushmote.server.answers.query import Facts, Selection
from hushmote.server.answers.rows import Row
from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.store import Store
from hushmote.server.store.versions import Description
from hushmote.server.words.findings import amount
from hushmote.server.words.numbers import decimals
from hushmote.simulator import vectorised
from hushmote.web.in_locale import in_locale
from hushmote.web.reader import Reader

ENGLISH = Reader(Locale("en", "US"))
DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
HOSTILE = "<img src=x onerror=alert(1)>"
LABELS = ["idle", "heating", "<b>door</b>"]


AGO = (10, 3, 0)  # days; two are within the last 7 days, even if midnight passes during the test


class FilledStore:
    """A store with one fleet, to which a test can add reports."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'hushmote.sqlite'}"
        self._rng = np.random.default_rng(7)
        with Store(self.url) as store:
            store.add_fleet("home", keyed=False)
            for payload, unit in (
                (number_payload(64, 2, 0, 32_000, "temp"), "°C"),
                (choice_payload(LABELS, 2), ""),
                (number_payload(8, 1, 0, 8_000, "empty"), HOSTILE),
                (number_payload(8, 1, 0, 8_000, "leaving"), ""),
                (number_payload(64, 2, 0, 32_000, "recent"), "°C"),
            ):
                words = Description(unit, f"{HOSTILE} What for?", "owner@example.org")
                store.add_experiment("home", payload, description=words)
        for n, day in enumerate(DAYS):
            self.count("temp", day, 20_000, bell(64, 30 + 5 * n, 8))
            self.count("mode", day, 5_000, np.array([5, 3, 1, 1]) / 10)
        today = datetime.datetime.now(datetime.UTC).date()
        self.recent = [(today - datetime.timedelta(ago)).isoformat() for ago in AGO]
        for ago, day in zip(AGO, self.recent, strict=True):
            self.count("recent", day, 4_000, bell(64, 20 + ago, 8))
        self.count("leaving", DAYS[0], 2_000, np.ones(8) / 8)

    def experiment(self, name: str) -> tuple[int, Experiment]:
        with Store(self.url) as store:
            (version,) = (v for v in store.experiments("home") if v.experiment.name == name)
            return version.id, version.experiment

    def count(self, name: str, window: str, reports: int, shares: np.ndarray) -> None:
        version, experiment = self.experiment(name)
        histogram = vectorised.histogram(experiment, self._rng.multinomial(reports, shares), self._rng)
        counts = {(version, window, 0, int(c)): int(histogram[c]) for c in np.flatnonzero(histogram)}
        with Store(self.url) as store, store.ingest() as transaction:
            transaction.write({}, counts, {})

    def estimate(self, name: str = "temp", **how) -> FleetEstimate:
        with StoreReader(self.url) as reader:
            return reader.fleet("home").experiment(name).estimate(**how)


def share_text(row: Row) -> str:
    """Return a share and its interval, in the English format."""
    return amount(row, None)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> FilledStore:
    return FilledStore(tmp_path_factory.mktemp("experiment"))


@pytest.fixture(scope="module")
def page(filled: FilledStore) -> Iterator[str]:
    with paged(filled.url) as url:
        yield f"{url}/experiment/home"


DRAWN = "chart drawn"


def open_view(browser: Browser, url: str) -> None:
    """Open an experiment view, and wait until its chart is drawn and it has answers."""
    browser.open(url)
    browser.until(
        lambda: browser.script(f"return performance.getEntriesByName('{DRAWN}').length"), "not drawn yet"
    )
    browser.until(lambda: " such intervals contain the true value" in browser.text_of("exact"))


def command_arguments(browser: Browser, part: str, table: str = "estimate") -> list[str]:
    """Wait until the page's `hushmote` command contains `part`, and return the command's arguments."""
    browser.until(lambda: part in browser.text_of(f"command-{table}"))
    program, *command = shlex.split(browser.text_of(f"command-{table}"))
    assert program == "hushmote"
    return command


def type_text(field: WebElement, text: str) -> None:
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text, Keys.ENTER)


def drag(browser: Browser, low: float, high: float, nth: int = 0) -> None:
    """Drag across the nth picture from low to high on its horizontal axis."""
    chart = browser.driver.find_elements(By.CLASS_NAME, "experiment-chart")[nth]
    browser.script("arguments[0].scrollIntoView({block: 'center'})", chart)
    places = browser.script(
        "const e = arguments[0], c = getElement(+e.id.slice(1)).chart;"
        "return arguments[1].map(x => c.convertToPixel({xAxisIndex: 0}, x) - e.clientWidth / 2)",
        chart, [low, high],
    )  # fmt: skip
    start, end = (round(x) for x in places)
    # Start away from the middle of an existing area, because a drag from there would move the area.
    actions = ActionChains(browser.driver).move_to_element_with_offset(chart, start, -90).click_and_hold()
    for step in range(1, 5):
        actions.move_to_element_with_offset(chart, start + (end - start) * step // 4, -80)
    actions.release().perform()


class TestRange:
    def test_dragging_shows_library_estimate(self, filled: FilledStore, page: str, browser: Browser):
        open_view(browser, f"{page}/temp?ranges=1%3A2")
        drag(browser, 16, 22)
        estimate = filled.estimate()

        def chosen() -> tuple[float, float]:
            fields = (browser.find(f"input[aria-label='{end} °C']") for end in ("From", "To"))
            low, high = (float(str(field.get_property("value"))) for field in fields)
            return low, high

        # The page follows the pointer, and shows intermediate ranges during the drag.
        browser.until(lambda: np.allclose(chosen(), (16, 22), rtol=0, atol=0.5), "not 16 to 22 °C")
        low, high = chosen()
        (row,) = estimate.share(f"{low}:{high}").rows
        browser.until(lambda: share_text(row) in browser.text_of("share"), share_text(row))
        # The command line on the page gives the same numbers.
        command = command_arguments(browser, f"{low:g}:{high:g}")
        (output,) = json.loads(hushmote(*command, "--json", cwd=browser.folder))["answers"][1]["rows"]
        assert (output["value"], output["low"], output["high"]) == (row.value, row.low, row.high)
        for answer in (*estimate.mean().rows, *estimate.quantile(0.05, 0.5, 0.95).rows):
            assert in_locale(answer.name, ENGLISH) in browser.text_of("readings").lower()
        assert not browser.errors()

    def test_typed_range_remains_while_store_grows(self, filled: FilledStore, page: str, browser: Browser):
        open_view(browser, f"{page}/temp")
        for end, value in (("From", "10"), ("To", "20")):
            type_text(browser.find(f"input[aria-label='{end} °C']"), value)
        (before,) = filled.estimate().share("10:20").rows
        browser.until(
            lambda: browser.text_of("share").startswith(f"10 to 20 °C: {share_text(before)}, "),
            share_text(before),
        )
        browser.find("input[aria-label='To °C']").send_keys(Keys.ARROW_UP)  # one bin more
        browser.until(lambda: browser.text_of("share").startswith("10 to 20.5 °C"))
        filled.count("temp", DAYS[2], 15_000, bell(64, 60, 2))
        (after,) = filled.estimate().share("10:20.5").rows
        browser.until(
            lambda: browser.text_of("share").startswith(f"10 to 20.5 °C: {share_text(after)}, "),
            share_text(after),
        )
        browser.until(lambda: "ranges=10%3A20.5" in browser.driver.current_url)
        assert share_text(after) != share_text(before)
        # The page explains an invalid range, and still shows the last answer.
        field = browser.find("input[aria-label='From °C']")
        type_text(field, "24")
        browser.until(
            lambda: browser.text_of("range") == "From must be below To. The page still shows 10 to 20.5 °C."
        )
        assert browser.text_of("share").startswith("10 to 20.5 °C")
        type_text(field, "10.1")
        browser.until(lambda: browser.text_of("range").startswith("Drag over the bars"))
        browser.until(lambda: field.get_property("value") == "10")
        quantiles = browser.find("input[aria-label='Quantiles, %']")
        type_text(quantiles, "150")
        browser.says(
            "Type numbers above 0 and below 100, separated by commas. The page still shows 5, 50, 95."
        )
        # Choices elsewhere do not change the range.
        drag(browser, 1, 2, nth=1)
        browser.until(lambda: browser.driver.current_url.count("windows=") == 2)
        assert "ranges=10%3A20.5" in browser.driver.current_url


class TestWindows:
    def test_give_trend_and_comparison(self, filled: FilledStore, page: str, browser: Browser):
        open_view(browser, f"{page}/temp?ranges=10%3A20&post=foo&windows=2026-13-99")
        browser.says("This link contains choices that this view does not have (post foo, windows 2026-13-99)")
        assert "Jan 1, 2026 to Jan 3, 2026, all 3 windows" in browser.text_of("share")
        open_view(browser, f"{page}/temp?over=share&ranges=10%3A20&against={DAYS[0]}&windows={DAYS[1]}")
        assert not browser.text_of("left-out")
        browser.until(
            lambda: browser.text_of("trend").startswith("Jan 1, 2026 to Jan 3, 2026, all 3 windows.")
        )
        with StoreReader(filled.url) as reader:
            temp = reader.fleet("home").experiment("temp")
            shares, readings = temp.estimate(DAYS[1]).change_since(temp.estimate(DAYS[0]), "10:20")
        (row,) = shares.rows
        mean = readings.rows[0]
        places = decimals(row.low * 100, row.high * 100)
        browser.until(
            lambda: f"10 to 20 °C fell by {-row.value * 100:.{places}f} points" in browser.text_of("change")
        )
        assert f"Mean rose by {mean.value:.{decimals(mean.low, mean.high)}f} °C" in browser.text_of("change")
        clipped = """return [...document.querySelectorAll('.experiment-chart svg')].flatMap(svg => {
      const [l, r] = [svg.getBoundingClientRect().left, svg.getBoundingClientRect().right];
      return [...svg.querySelectorAll('text')].filter(t => {
        const box = t.getBoundingClientRect();
        return box.left < l - 0.5 || box.right > r + 0.5;
      }).map(t => t.textContent);
    })"""
        assert browser.script(clipped) == []
        # Dragging over windows chooses them.
        drag(browser, 1, 2, nth=1)
        browser.until(lambda: browser.driver.current_url.count("windows=") == 2)
        (both,) = filled.estimate(windows=DAYS[1:]).share("10:20").rows
        browser.until(lambda: share_text(both) in browser.text_of("share"), share_text(both))

    def test_period_button_matches_link(self, filled: FilledStore, page: str, browser: Browser):
        def check_newest() -> None:  # the current day is incomplete, so the finding excludes it
            browser.until(lambda: browser.find_by_name("7 days").get_attribute("aria-pressed") == "true")
            with StoreReader(filled.url) as reader:
                completed = Selection("recent", "home", (filled.recent[1],))
                finding = "\n".join(find(Facts(reader.store), completed, ENGLISH).lines)
            browser.until(lambda: browser.text_of("finding") == finding, finding)

        open_view(browser, f"{page}/recent?ranges=10%3A20")
        check_newest()
        assert f"--window={filled.recent[1]}" in command_arguments(browser, "--window")
        browser.find_by_name("30 days").click()
        browser.until(lambda: "last=30d" in browser.driver.current_url)
        span = f"--window={filled.recent[0]}..{filled.recent[1]}"
        assert span in command_arguments(browser, "..")
        open_view(browser, f"{page}/recent?last=30d#how-private")
        assert span in command_arguments(browser, "..")
        browser.until(lambda: browser.script("return scrollY") > 0, "the page did not scroll to the part")
        browser.find_by_name("The preceding period of equal length").click()  # a period without reports
        browser.until(lambda: browser.text_of("left-out").startswith("No reports arrived before this period"))
        open_view(browser, f"{page}/recent?windows={filled.recent[1]}&against={filled.recent[0]}")
        with StoreReader(filled.url) as reader:
            recent = reader.fleet("home").experiment("recent")
            week, before = recent.estimate(filled.recent[1]), recent.estimate(filled.recent[0])
            mean = week.change_since(before)[-1].rows[0]
        browser.until(
            lambda: (
                f"Mean fell by {-mean.value:.{decimals(mean.low, mean.high)}f} °C"
                in browser.text_of("change")
            )
        )
        command = command_arguments(browser, "--against", "change")
        assert {f"--window={filled.recent[1]}", f"--against={filled.recent[0]}"} <= set(command)
        browser.find_by_name("all").click()
        browser.until(lambda: "last=all" in browser.driver.current_url)
        assert not browser.errors()


class TestLabels:
    def test_are_combined_and_escaped(self, filled: FilledStore, page: str, browser: Browser):
        open_view(browser, f"{page}/mode?ranges=idle")
        browser.script("window.alerted = 0; window.alert = () => { window.alerted += 1 }")
        browser.find_by_name("<b>door</b>", "[role=checkbox]").click()
        row = filled.estimate("mode").together("idle", "<b>door</b>").rows[0]
        browser.until(
            lambda: browser.text_of("share").startswith(f"idle or <b>door</b>: {share_text(row)}, "),
            share_text(row),
        )
        assert HOSTILE in browser.find("h1").text
        svg = browser.find(".experiment-chart svg")
        ActionChains(browser.driver).move_to_element(svg).perform()
        assert browser.script("return window.alerted") == 0
        assert not browser.driver.find_elements(By.CSS_SELECTOR, "img[src=x], main b")
        browser.resize(360)
        browser.until(lambda: browser.overflow() <= 0, "it is too wide")


class TestAccessibility:
    def test_is_accessible_and_supports_touch(self, filled: FilledStore, page: str, browser: Browser):
        browser.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
        browser.resize(360, dark=True)
        open_view(browser, f"{page}/temp?ranges=1%3A2&against={DAYS[0]}&over=share")
        browser.until(lambda: "compared with" in browser.text)
        browser.find(".q-expansion-item .q-item").click()  # the table with the picture's numbers
        browser.until(lambda: len(browser.driver.find_elements(By.CSS_SELECTOR, "table tbody tr")) >= 8)
        assert barriers(browser) == []
        browser.until(lambda: browser.overflow() <= 0, "it is too wide")
        chart = browser.find(".experiment-chart")
        browser.script("arguments[0].scrollIntoView({block: 'center'})", chart)
        box = browser.script(
            "const r = arguments[0].getBoundingClientRect(); return [r.x, r.y, r.width]", chart
        )
        y = box[1] + 100
        for kind, part in (("touchStart", 0.5), ("touchMove", 0.6), ("touchMove", 0.8), ("touchEnd", None)):
            points = [] if part is None else [{"x": box[0] + part * box[2], "y": y}]
            browser.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        browser.until(lambda: not browser.text_of("share").startswith("1 to 2 "))
        low, high = map(float, browser.text_of("share").partition(" °C")[0].split(" to "))
        assert 10 < low < 18 < high < 29  # out of 0 to 32, with the axis taking some of the width
        browser.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


class TestAnswers:
    def test_show_estimation_errors(self, filled: FilledStore, page: str, browser: Browser):
        browser.open(f"{page}/empty")
        browser.says("No report has been counted so far. An estimate needs 2 reports.")
        filled.count("empty", DAYS[0], 500, np.ones(8) / 8)
        browser.until(lambda: "A single bar" in browser.text_of("exact"))
        open_view(browser, f"{page}/leaving?ranges=2%3A4")
        with Store(filled.url) as store:
            store.withdraw_experiment("home", "leaving")
        browser.says("It was withdrawn")
        assert " of devices (" in browser.text_of("share")  # earlier results are still shown
        assert not browser.errors()
        store_path = Path(filled.url.removeprefix("sqlite:///"))
        store_path.rename(store_path.with_suffix(".gone"))
        try:
            browser.until(lambda: "The page shows the state at " in browser.text_of("state"))
            lines = [
                x for x in browser.text.splitlines() if store_path.name in x and "hushmote estimate" not in x
            ]
            assert len(lines) == 1, lines  # only the frame shows the error
        finally:
            store_path.with_suffix(".gone").rename(store_path)
        browser.until(lambda: not browser.text_of("state"))

    def test_files_match_library(self, filled: FilledStore, page: str, browser: Browser, tmp_path: Path):
        open_view(browser, f"{page}/temp?windows={DAYS[0]}&ranges=5%3A9&post=nonnegative&rows=16")
        assert "after nonnegative" in browser.text_of("processed")
        command = command_arguments(browser, "nonnegative")
        files = {}
        for kind in ("csv", "json", "png"):
            link = browser.find(f"a[aria-label='These numbers, {kind}']").get_attribute("href")
            with urlopen(Request(str(link))) as answer:
                files[kind] = answer.read()
        for kind in ("csv", "json"):
            hushmote(*command, "--output", f"same.{kind}", cwd=tmp_path)
            assert files[kind] == (tmp_path / f"same.{kind}").read_bytes()
        assert files["png"].startswith(b"\x89PNG")
        query = f"windows={DAYS[0]}&post=nonnegative&rows=16"  # the picture is always the histogram
        with urlopen(f"{page}/temp/estimate.png?{query}") as answer:
            assert answer.read() == files["png"]
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        with urlopen(page.replace("/experiment/", "/api/") + "/temp.json") as answer:
            document = json.load(answer)
        mean = filled.estimate().mean().rows[0]
        assert document["statistics"][0]["value"] == pytest.approx(mean.value, rel=1e-5)
        assert document["at"].startswith(today[:4])
        assert document["epsilon"]["histogram"] is None  # the page is live


class TestMissingExperiment:
    def test_gives_404_with_links(self, page: str, browser: Browser):
        with pytest.raises(HTTPError, match="404") as refused:
            urlopen(Request(f"{page}/nothing", headers={"accept": "text/html"}))
        assert "No experiment nothing in fleet home." in refused.value.read().decode()
        browser.open(f"{page}/nothing?last=30d")
        browser.says("No experiment nothing in fleet home.")
        assert not [word for word in ("Traceback", "Error") if word in browser.text]
        assert barriers(browser) == []
        browser.find_by_name("temp of fleet home").click()
        browser.until(lambda: browser.driver.current_url.endswith("/experiment/home/temp"))
        browser.errors()

    @pytest.mark.parametrize("file", ["estimate.exe", "secrets.csv"])
    def test_unknown_file_gives_404(self, page: str, file: str):
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{page}/temp/{file}")

    def test_hostile_name_is_escaped(self, page: str, browser: Browser):
        browser.open(f"{page}/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
        browser.says("No experiment <img src=x onerror=alert(1)> in fleet home.")
        assert not browser.driver.find_elements(By.CSS_SELECTOR, "img[src=x]")
        browser.errors()

    def test_hidden_fleet_gives_404(self, filled: FilledStore, browser: Browser):
        with Store(filled.url) as store:
            store.add_fleet("work", keyed=False)
        with paged(filled.url, "--fleet", "work") as other:
            browser.open(f"{other}/experiment/home/temp")
            browser.says("The page does not show this fleet.")
            assert "temp of fleet" not in browser.text
            browser.errors()
            for path in ("/experiment/home/temp/estimate.csv", "/api/home/temp.json"):
                with pytest.raises(HTTPError, match="404"):
                    urlopen(f"{other}{path}")

    def test_new_experiment_is_found(self, filled: FilledStore, page: str):
        with Store(filled.url) as store:
            store.add_experiment("home", number_payload(8, 1, 0, 8_000, "fresh"))
        with urlopen(f"{page}/fresh") as answer:
            assert answer.status == 200


def selected_areas(browser: Browser) -> int:
    """Return the number of selected areas on the histogram."""
    chart = browser.find(".experiment-chart")
    areas = "return getElement(+arguments[0].id.slice(1)).chart.getOption().brush?.[0]?.areas?.length"
    marked = "return arguments[0].querySelectorAll('path[fill=\"rgb(213,94,0)\"]').length"
    return browser.script(areas, chart) or browser.script(marked, chart)


class TestSelection:
    def test_is_empty_until_dragging(self, page: str, browser: Browser):
        open_view(browser, f"{page}/temp")
        fields = [browser.find(f"input[aria-label='{end} °C']") for end in ("From", "To")]
        assert [field.get_property("value") for field in fields] == ["", ""]
        assert browser.text_of("share") == ""
        assert selected_areas(browser) == 0
        assert not [part for part in command_arguments(browser, "hushmote") if part.startswith("--range")]
        assert barriers(browser) == []
        drag(browser, 16, 22)
        browser.until(lambda: " of devices (" in browser.text_of("share"))
        browser.until(lambda: "ranges=" in browser.driver.current_url)
        assert selected_areas(browser) == 1
        assert fields[0].get_property("value")

    def test_click_outside_clears_it(self, page: str, browser: Browser):
        open_view(browser, f"{page}/temp?ranges=20%3A24")
        chart = browser.find(".experiment-chart")
        browser.until(lambda: selected_areas(browser) == 1)
        browser.script("arguments[0].scrollIntoView({block: 'center'})", chart)
        left = -chart.size["width"] // 4
        ActionChains(browser.driver).move_to_element_with_offset(chart, left, -60).click().perform()
        browser.until(lambda: browser.text_of("share") == "")
        browser.until(lambda: "ranges=" not in browser.driver.current_url)
        assert selected_areas(browser) == 0

    def test_single_number_selects_nothing(self, page: str, browser: Browser):
        open_view(browser, f"{page}/temp")
        type_text(browser.find("input[aria-label='From °C']"), "10")
        type_text(browser.find("input[aria-label='To °C']"), "20")
        browser.until(lambda: browser.text_of("share").startswith("10 to 20 °C: "))
        assert browser.text_of("range").startswith("Drag over the bars")

    def test_most_common_label_is_ticked(self, filled: FilledStore, page: str, browser: Browser):
        open_view(browser, f"{page}/mode")
        row = filled.estimate("mode").share("idle").rows[0]
        browser.until(lambda: browser.text_of("share").startswith(f"idle: {share_text(row)}, "))
        assert browser.find_by_name("idle", "[role=checkbox]").get_attribute("aria-checked") == "true"
        filled.count("mode", DAYS[2], 20_000, np.array([0, 1, 0, 0]))
        browser.until(lambda: browser.text_of("share").startswith("heating: "))
        assert browser.find_by_name("idle", "[role=checkbox]").get_attribute("aria-checked") == "false"
        browser.find_by_name(
            "heating", "[role=checkbox]"
        ).click()  # the default is ticked again if no label is
        browser.until(
            lambda: browser.find_by_name("heating", "[role=checkbox]").get_attribute("aria-checked") == "true"
        )

    def test_experiments_question_is_selected(self, filled: FilledStore, page: str, browser: Browser):
        with Store(filled.url) as store:
            words = Description("°C", asked="20:")
            store.add_experiment("home", number_payload(64, 2, 0, 32_000, "own"), description=words)
        filled.count("own", DAYS[0], 4_000, bell(64, 30, 8))
        open_view(browser, f"{page}/own")
        browser.until(lambda: browser.text_of("share").startswith("20 °C and above: "))
        assert selected_areas(browser) == 1
        assert "ranges=" not in browser.driver.current_url


class TestLayout:
    @pytest.mark.parametrize("width", [1440, 900, 360])
    def test_axis_labels_do_not_overlap(self, filled: FilledStore, page: str, browser: Browser, width: int):
        browser.resize(width)
        with Store(filled.url) as store:
            store.add_experiment("home", number_payload(64, 2, 0, 32_000, f"long{width}"))
        for ago in range(45):
            day = datetime.date(2026, 3, 20) - datetime.timedelta(ago)
            filled.count(f"long{width}", day.isoformat(), 3_000, bell(64, 30, 8))
        open_view(browser, f"{page}/long{width}")
        browser.until(lambda: browser.text_of("trend"))
        browser.wait_until_settled()
        overlapping = """return [...document.querySelectorAll('.experiment-chart svg')].flatMap(svg => {
          const texts = [...svg.querySelectorAll('text')]
            .map(t => [t.textContent, t.getBoundingClientRect()]);
          return texts.flatMap(([a, p], i) => texts.slice(i + 1).filter(([b, q]) =>
            p.left < q.right && q.left < p.right && p.top < q.bottom && q.top < p.bottom
          ).map(([b]) => `${a} ${b}`));
        })"""
        assert browser.script(overlapping) == []
        assert browser.overflow() <= 0
        texts = "return [...document.querySelectorAll('.experiment-chart text')].map(t => t.textContent)"
        assert "Feb 4" in browser.script(texts)  # in the reader's date format
        field = browser.find("input[aria-label='Windows (all if none)']")
        assert "7 of 45" in browser.script("return arguments[0].closest('.q-field').textContent", field)


class TestCsvDialect:
    def test_choice_is_remembered_and_applies_to_links(self, page: str, browser: Browser):
        open_view(browser, f"{page}/temp")
        link = str(browser.find("a[download][href*='estimate.csv']").get_attribute("href"))
        assert urlopen(link).read().decode().splitlines()[0].startswith("kind,")
        Select(browser.find("#csv-dialect")).select_by_value("excel-eu")
        cookies = browser.driver.get_cookies()
        (cookie,) = (c for c in cookies if c["name"] == "csv-dialect")
        request = Request(link, headers={"Cookie": f"csv-dialect={cookie['value']}"})
        first, second, *_ = urlopen(request).read().decode("utf-8-sig").splitlines()
        assert first.startswith("kind;")
        assert re.search(r";0,\d+", second)
        open_view(browser, f"{page}/mode")
        assert browser.find("#csv-dialect").get_property("value") == "excel-eu"
        browser.driver.delete_cookie("csv-dialect")
        assert barriers(browser) == []
        assert browser.errors() == []

    def test_address_may_name_the_dialect(self, page: str):
        with urlopen(f"{page}/temp/estimate.csv?csv-dialect=excel-eu") as answer:
            assert answer.read().decode("utf-8-sig").startswith("kind;")
