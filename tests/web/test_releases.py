"""The Releases view in a real Chromium, over a store that the command judges and that then grows."""

import datetime

from accessibility import barriers
from browser import paged
from command_line import hushmote
from release_store import NEW, OLD, add_release

from hushmote.server.store.store import Store

DAYS = 10


def test_shows_releases_with_a_stored_plan(browser, tmp_path):
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    first = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(DAYS)
    with Store(url) as store, paged(url) as page:
        browser.open(f"{page}/releases")
        browser.says("No release has been judged yet.")
        add_release(store, {NEW: [20] * DAYS, OLD: [1500] * DAYS}, {NEW: 0.05, OLD: 0.05}, first=first)
        hushmote("release", NEW, "--against", OLD, "--store", url, "--reports=1000", cwd=tmp_path, expect=4)
        browser.says(f"Fleet home: {NEW} against {OLD}")
        browser.says("Not yet: ")
        browser.says("2.4.0 runs on about 1.3% of devices")
        add_release(store, {NEW: [200] * DAYS}, {NEW: 0.4}, first=first, seed=2)
        browser.says(f"Stop: board_crash is worse on {NEW} than on {OLD}, by ")
        browser.says("boards that have stopped reporting go unnoticed")
        assert browser.find("section[data-verdict]").get_attribute("data-verdict") == "stop"
        assert barriers(browser) == []
        browser.resize(360, dark=True)
        browser.until(lambda: browser.overflow() <= 0, "it is too wide")
        assert barriers(browser) == []
        assert not browser.errors()


def test_only_the_command_stores_a_plan(browser, tmp_path):
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    first = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(DAYS)
    with Store(url) as store, paged(url) as page:
        add_release(store, {NEW: [200] * DAYS, OLD: [1500] * DAYS}, {NEW: 0.3, OLD: 0.05}, first=first)
        browser.open(f"{page}/releases")
        browser.says("No release has been judged yet.")
        assert store.release_plan("home", "firmware", NEW) is None


def test_does_not_proceed_without_the_installed_devices(browser, tmp_path):
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    first = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(DAYS)
    with Store(url) as store, paged(url) as page:
        add_release(store, {NEW: [4000] * DAYS, OLD: [4000] * DAYS}, {NEW: 0.05, OLD: 0.05}, first=first)
        command = "release", NEW, "--against", OLD, "--store", url, "--installed"
        assert hushmote(*command, "100/200", cwd=tmp_path).startswith("Proceed: ")
        browser.open(f"{page}/releases")
        browser.says("Not yet: the number of installed devices is needed for a verdict: add --installed.")
        assert browser.find("section[data-verdict]").get_attribute("data-verdict") == "not yet"


def test_shows_a_damaged_plan(browser, tmp_path):
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    with Store(url) as store, paged(url) as page:
        add_release(store, {}, {})
        store.add_release_plan("home", "firmware", NEW, "{}")
        browser.open(f"{page}/releases")
        browser.says("Fleet home: the stored plan of the release is damaged")
