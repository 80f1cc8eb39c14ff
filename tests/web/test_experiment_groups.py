"""The experiment view's choice of an open group's value."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from browser import Browser, paged
from open_groups import DAYS, fill_groups

from hushmote.server.answers.fleet_estimate import FleetEstimate
from hushmote.server.answers.store_reader import StoreReader
from hushmote.server.store import Store
from hushmote.server.words.findings import amount

FEW = "Boards with firmware 2.5.0 sent fewer than 50 reports in this period; 50 are needed"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('groups') / 'hushmote.sqlite'}"
    with Store(url) as opened:
        fill_groups(opened, "home")
    return url


@pytest.fixture(scope="module")
def view(store: str) -> Iterator[str]:
    with paged(store) as url:
        yield f"{url}/experiment/home/crashed"


def _estimate(store: str, group: str) -> FleetEstimate:
    with StoreReader(store) as reader:
        return reader.fleet("home").experiment("crashed").estimate(DAYS, group=group)


def _share(estimate: FleetEstimate) -> str:
    return amount(estimate.share("yes").rows[0], None)


class TestGroup:
    def test_is_chosen_and_suppressed_values_are_refused(self, store: str, view: str, browser: Browser):
        browser.open(view)
        browser.until(lambda: _share(_estimate(store, "")) in browser.text_of("share"))
        table = browser.text_of("group").split()
        assert "6,300" in table
        assert "1,500" in table
        assert "fewer than 50 reports" in browser.text_of("group")
        browser.find("#group .q-select").click()
        browser.find_by_name("2.4.0", "[role=option]").click()
        browser.until(lambda: _share(_estimate(store, "2.4.0")) in browser.text_of("share"))
        browser.until(lambda: "boards with firmware 2.4.0" in browser.text_of("finding"))
        assert "boards with firmware 2.4.0" in browser.text_of("share")
        assert "group=2.4.0" in browser.driver.current_url
        browser.until(lambda: "--group=2.4.0" in browser.text_of("command-estimate"))
        browser.until(lambda: "--group=2.4.0" in browser.text_of("command-trend"))
        browser.find("#group .q-select").click()
        browser.find_by_name("2.5.0 (fewer than 50 reports)", "[role=option]").click()
        browser.until(lambda: browser.text_of("finding").startswith(FEW))
        assert not browser.find("#share").is_displayed()
        assert not browser.errors()

    def test_is_compared_with_another_value(self, store: str, view: str, browser: Browser):
        browser.open(f"{view}?group=2.4.0&against=group%3D2.3.1&ranges=yes")
        browser.until(lambda: "compared with" in browser.text_of("finding"))
        assert "boards with firmware 2.3.1" in browser.text_of("finding")
        (row,) = _estimate(store, "2.4.0").change_since(_estimate(store, "2.3.1"), "yes")[0].rows
        browser.until(lambda: f"rose by {row.value * 100:.1f} points" in browser.text_of("change"))
        command = browser.text_of("command-change")
        assert "--group=2.4.0" in command
        assert "--against=group=2.3.1" in command

    def test_link_to_a_suppressed_value_is_refused(self, view: str, browser: Browser):
        browser.open(f"{view}?group=2.5.0")
        browser.until(lambda: browser.text_of("finding").startswith(FEW))
        assert not browser.find("#share").is_displayed()

    def test_files_are_of_the_group(self, store: str, view: str):
        with urllib.request.urlopen(f"{view}/estimate.json?group=2.4.0", timeout=60) as file:
            assert json.load(file)["reports"] == 1_500
        for table in ("estimate", "trend", "change"):
            for kind in ("csv", "json", "png"):
                query = "group=2.5.0&against=group%3D2.3.1"
                with pytest.raises(urllib.error.HTTPError, match="404") as refused:
                    urllib.request.urlopen(f"{view}/{table}.{kind}?{query}", timeout=60)
                assert b"fewer than 50 reports" in refused.value.read()
