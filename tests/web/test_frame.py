"""The page's frame in a real Chromium, with navigation, colours, store states and missing views."""

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from accessibility import barriers
from boards import ask_fleet, experiment, payload_of
from browser import paged, token_file
from browser_board import require_micropython
from filled_store import fill

from hushmote.server.store import Description
from hushmote.server.store.store import Store
from hushmote.server.words.numbers import time_since
from hushmote.web.frame import VIEWS, sentence

DATA = Path(__file__).parents[1] / "data"
SLOW_PAGE = Path(__file__).parents[1] / "support" / "slow_page.py"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'store.sqlite'}"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Provide the page over a store with one experiment."""
    url = f"sqlite:///{tmp_path_factory.mktemp('page') / 'store.sqlite'}"
    with Store(url) as store:
        ask_fleet(store, "home", experiment(), description=Description("°C", "How warm?", ""))
    with paged(url) as page:
        yield page


def is_dark(browser) -> bool:
    return browser.script("return document.body.classList.contains('body--dark')")


FRAMED = (*(path for _, path in VIEWS if path != "/board/"), "/nowhere")


class TestMessages:
    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            ("", ""),
            ("no store, nowhere", "No store, nowhere."),
            ("it's there!", "It's there!"),
            ("old.sqlite is another program's database", "old.sqlite is another program's database."),
            ("data/old is none", "data/old is none."),
            ("room_temp is withdrawn", "room_temp is withdrawn."),
            ("ε must be from 0.001 to 16", "ε must be from 0.001 to 16."),
        ],
    )
    def test_capitalizes_sentences_but_not_names(self, words, expected):
        assert sentence(words) == expected


class TestLayout:
    def test_views_have_frame_at_all_widths_and_colors(self, browser, page):
        for path in FRAMED:
            browser.resize(1440)
            browser.open(page + path)
            browser.find("#frame-views")
            browser.wait_until_settled()
            for width, dark in ((1440, False), (360, True)):
                browser.resize(width, dark=dark)
                browser.until(lambda dark=dark: is_dark(browser) == dark, path)
                browser.until(lambda: browser.overflow() <= 0, path)
                assert len(browser.driver.find_elements("css selector", "main")) == 1
                assert len(browser.driver.find_elements("css selector", "h1")) == 1
                assert [e for e in browser.errors() if "404" not in e] == []
            assert "Traceback" not in browser.text
        browser.says("There is nothing at this address.")

    @pytest.mark.parametrize(
        ("accepted", "kind"), [("image/png", "text/plain"), ("text/html", "text/html"), ("", "text/plain")]
    )
    def test_missing_page_is_of_the_accepted_kind(self, page, accepted, kind):
        with pytest.raises(HTTPError, match="404") as refused:
            urlopen(Request(f"{page}/nowhere", headers={"accept": accepted}))
        body = refused.value.read()
        assert refused.value.headers.get_content_type() == kind
        assert (body == b"There is nothing at this address.\n") is (kind == "text/plain")
        assert b"There is nothing at this address." in body

    def test_navigation_works_by_keyboard(self, browser, page):
        browser.open(page)
        browser.find("#frame-updated")
        browser.says("updated ")
        browser.script("document.activeElement.blur()")
        keys = browser.driver.switch_to.active_element
        keys.send_keys("\ue004")  # tab
        assert browser.driver.switch_to.active_element.text == "Skip to the content"
        browser.driver.switch_to.active_element.send_keys("\ue007")  # enter
        assert browser.driver.switch_to.active_element.get_attribute("id") == "main"
        browser.resize(360)
        browser.find("#frame-menu").send_keys("\ue007")
        browser.find_by_name("Plan").send_keys("\ue007")
        browser.until(lambda: browser.driver.current_url.endswith("/plan"))
        menu = browser.find("#frame-menu")
        browser.wait_until_settled()
        menu.send_keys("\ue007")
        assert menu.get_attribute("aria-expanded") == "true"
        browser.find("#frame-views a").send_keys("\ue00c")  # escape
        assert menu.get_attribute("aria-expanded") == "false"

    def test_browser_remembers_colours(self, browser, page):
        browser.open(page)
        browser.find("#frame-colours option[value=dark]").click()
        browser.until(lambda: is_dark(browser))
        browser.open(page + "/plan")
        browser.until(lambda: is_dark(browser))
        assert browser.find("#frame-colours").get_attribute("value") == "dark"
        browser.find("#frame-colours option[value=auto]").click()
        browser.until(lambda: not is_dark(browser))


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """Provide a page that needs a token."""
    folder = tmp_path_factory.mktemp("locked")
    url = f"sqlite:///{folder / 'store.sqlite'}"
    Store(url).close()
    with paged(url, "--token-file", token_file(folder)) as page:
        yield page


_PAPER = {False: "rgb(255, 255, 255)", True: "rgb(18, 22, 27)"}
_STYLE = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.fontFamily, s.fontSize]"


class TestOtherDocuments:
    """The documents that NiceGUI does not draw."""

    @pytest.mark.parametrize("name", ["token form", "board"])
    def test_has_frame_of_views(self, browser, page, locked, name):
        if name == "board":
            require_micropython()
        browser.open(f"{page}/plan")
        browser.find("#frame-views")
        anchors = "[...document.querySelectorAll('.frame-name, .frame-link')]"
        links = f"return {anchors}.map((a) => new URL(a.href).pathname)"
        expected, (_, *font) = browser.script(links), browser.script(_STYLE)
        url, words = {
            "token form": (f"{locked}/plan", "This page needs a token."),
            "board": (f"{page}/board/", "runs in this browser"),
        }[name]
        for width, dark in ((1280, False), (360, True)):
            browser.resize(width, dark=dark)
            browser.open(url)
            browser.says(words)
            assert browser.script(links) == expected
            browser.until(lambda dark=dark: browser.script(_STYLE) == [_PAPER[dark], *font])
            assert browser.overflow() == 0
            assert barriers(browser) == []
        menu = browser.find("#frame-menu")
        menu.click()
        assert browser.find_by_name("Budget").is_displayed()
        assert [e for e in browser.errors() if "401" not in e] == []

    def test_token_form_has_chosen_colours(self, browser, locked):
        browser.open(locked)
        browser.find("#frame-colours option[value=dark]").click()
        browser.until(lambda: browser.script(_STYLE)[0] == _PAPER[True])
        browser.open(f"{locked}/budget")
        assert browser.script(_STYLE)[0] == _PAPER[True]
        assert browser.find("#frame-colours").get_attribute("value") == "dark"


class TestAges:
    def test_browser_agrees_with_server(self, browser, page):
        browser.open(page)
        browser.says("updated ")
        seconds = [0, 9, 10, 59, 60, 3_599, 3_600, 90_000, 172_799, 172_800]
        seconds += [86_400 * days for days in (59, 60, 364, 365, 729, 730, 4_000)]
        seconds += [-n for n in seconds]
        script = "return arguments[0].map((s) => hushmote.timeSince(1e9, 1e9 + s))"
        assert browser.script(script, seconds) == [time_since(1e9, 1e9 + s) for s in seconds]

    def test_age_grows_and_tooltip_is_exact(self, browser, page):
        browser.open(page)
        age = r"updated (just now|\d+ (s|min) ago)"
        browser.until(lambda: re.fullmatch(age, browser.text_of("frame-updated")))
        browser.wait_until_settled()  # an update sets the browser's clock right
        browser.script("const now = Date.now; Date.now = () => now() + 7_201_000")
        browser.until(lambda: browser.text_of("frame-updated") == "updated 2 h ago")
        exact = browser.find("#frame-updated").get_attribute("title")
        assert re.fullmatch(r"\d+/\d+/\d{4}, \d+:\d\d:\d\d [AP]M", exact.replace("\u202f", " ")), exact


class TestStore:
    def test_may_appear_disappear_and_be_outdated(self, browser, tmp_path, url):
        path = tmp_path / "store.sqlite"

        def remove_store():
            for file in tmp_path.glob("store.sqlite*"):
                file.unlink()

        with paged(url) as page:
            browser.open(page)
            browser.says(f"There is no store at {path}: publish an experiment first, or correct the path.")
            browser.says("Three steps to a first answer")
            with Store(url) as store:
                browser.until(lambda: "There is no store" not in browser.text)
                browser.says("Three steps to a first answer")
                assert "such as Mosquitto" in browser.text
                assert "hushmote board" in browser.text
                store.add_fleet("home", keyed=False)
            browser.says("Fleet home")
            browser.until(lambda: "There is no store" not in browser.text)
            remove_store()
            browser.says("There is no store at")
            with closing(sqlite3.connect(path)) as connection:
                connection.executescript((DATA / "store_v5.sql").read_text())
            browser.says("`hushmote store upgrade sqlite:///")
            Store(url, upgrade=True).close()
            browser.until(lambda: "store upgrade" not in browser.text)
            remove_store()  # including the journal, from which a reader could still read the whole store
            path.write_bytes(b"damaged" * 1000)
            browser.says("it is not a SQLite database")

    @pytest.mark.parametrize("view", ["budget", "releases"])
    def test_missing_leaves_no_placeholder(self, browser, url, view):
        with paged(url) as page:
            browser.open(f"{page}/{view}")
            browser.says("There is no store at")

            def placeholders():
                return browser.driver.find_elements("css selector", ".skeleton")

            browser.until(lambda: not any(e.is_displayed() for e in placeholders()), "it waits forever")
            Store(url).close()
            browser.says("No release has been judged yet." if view == "releases" else "has no fleet yet")

    def test_may_appear_without_the_fleet(self, browser, url):
        with paged(url, "--fleet", "nope") as page:
            browser.open(page)
            browser.says("There is no store at")
            with Store(url) as store:
                store.add_fleet("home", keyed=False)
            browser.says("No fleet nope in this store; its fleets: home.")
            browser.open(page + "/budget")
            browser.says("No fleet nope in this store; its fleets: home.")


# Each view's path, and words that it shows only when its answers are ready.
SLOW = (
    ("/", "reports a day"),
    ("/experiment/home/temp", " such intervals contain the true value"),
    ("/releases", "No release has been judged yet."),
    ("/budget", "used-up devices"),
    ("/plan", "Use one report"),
)


class TestProcess:
    def test_views_open_before_answers_are_ready(self, browser, tmp_path, url):
        with Store(url) as store:
            fill(store, "home", payload_of(experiment()), {"2026-11-20": 200_000, "2026-11-21": 200_000})
        gate = tmp_path / "gate"
        with paged(url, program=(SLOW_PAGE, gate)) as page:
            browser.open(f"{page}/fails")
            browser.says("This view has failed because of a bug in Hushmote.")
            assert "secret" not in browser.driver.page_source
            assert "Traceback" not in browser.driver.page_source
            browser.errors()
            for path, words in SLOW:
                browser.open(page + path)
                assert browser.find(".skeleton span").size["width"] > 200  # the placeholder is visible
                assert browser.find("h1").text
                assert browser.find("#frame-views").is_displayed()
                assert words not in browser.text
                assert barriers(browser) == []
                gate.touch()
                browser.says(words)
                browser.until(
                    lambda: not browser.driver.find_elements("css selector", ".skeleton:not(.hidden)"), path
                )
                assert browser.errors() == []
                gate.unlink()

    def test_shows_lost_connection(self, browser, url):
        Store(url).close()
        with paged(url) as page:
            browser.open(page)
            # "updated" is already in the HTML, and a browser without a connection would only reload the page.
            browser.until(lambda: browser.script("return window.did_handshake"), "the page is not connected")
        browser.says("The page's process does not answer. The page shows the state at ")

    @pytest.mark.slow
    def test_prints_urls_without_password_and_writes_no_files(self, tmp_path, url):
        """By default, NiceGUI writes files to the working folder and prints a banner."""
        Store(url).close()
        folder = tmp_path / "here"
        folder.mkdir()
        command = [sys.executable, "-m", "hushmote", "page", "--store", url, "--http", "127.0.0.1:0"]
        environment = os.environ | {"HUSHMOTE_BROKER": "mqtt://me:secret@127.0.0.1:9"}
        process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert process.stdout is not None
        assert process.stdout.readline().startswith("the page is at http://127.0.0.1:")
        line = process.stdout.readline()
        assert line == "its in-browser board reports to mqtt://127.0.0.1:9 (HUSHMOTE_BROKER)\n"
        process.terminate()
        out, _ = process.communicate(timeout=600)
        assert out == ""
        assert process.returncode == 0
        assert list(folder.iterdir()) == []
