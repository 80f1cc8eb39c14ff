"""The browser's console while each view is open."""

import datetime
from collections.abc import Iterator

import pytest
from boards import ask_fleet
from browser import Browser, paged
from experiment_kinds import fill_kinds
from experiments import experiment_json
from filled_store import fill
from release_store import NEW, OLD, add_release

from hushmote.server.store import Store

KINDS = ("room", "delay", "firmware", "crash", "crash_by_version", "door", "light", "mode", "board_crash")
VIEWS = ("/", "/releases", "/budget", "/plan", "/board/", *(f"/experiment/home/{name}" for name in KINDS))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Provide a page with an experiment of each type, a release, and a fleet without reports."""
    url = f"sqlite:///{tmp_path_factory.mktemp('console') / 'store.sqlite'}"
    today = datetime.datetime.now(datetime.UTC).date()
    windows = {str(today - datetime.timedelta(ago)): 2000 for ago in range(1, 9)}
    door = experiment_json(name="door", type="bool", mechanism="rr")
    with Store(url) as store:
        fill_kinds(store)
        fill(store, "home", door, windows)
        fill(store, "home", experiment_json(name="light", type="bool", mechanism="rr"), {"2026-11-21": 10})
        fill(
            store,
            "home",
            experiment_json(name="mode", type="choice", mechanism="grr", labels=["a", "b"]),
            windows,
        )
        add_release(store, {OLD: [3000] * 5, NEW: [900] * 5}, {OLD: 0.1, NEW: 0.2})
        ask_fleet(store, "empty", door)
    with paged(url) as page:
        yield page


def wait_until_drawn(browser: Browser) -> None:
    """Wait until each visible chart is drawn, scrolling to the end, and the page's text does not change."""
    browser.wait_until_settled()
    browser.script("window.scrollTo(0, document.documentElement.scrollHeight)")
    browser.until(
        lambda: browser.script(
            "return [...document.querySelectorAll('.chart, .experiment-chart')]"
            ".every(chart => !chart.offsetWidth || chart.querySelector('path'))"
        ),
        "a chart is not drawn",
    )


@pytest.mark.parametrize("width", [360, 1280])
def test_views_give_no_console_warnings(page: str, browser: Browser, width: int):
    browser.resize(width)
    for view in VIEWS:
        browser.open(page + view)
        if not view.startswith("/board"):
            browser.until(lambda: not browser.driver.find_elements("css selector", ".skeleton.tall"), view)
        wait_until_drawn(browser)
        assert browser.complaints() == [], view
