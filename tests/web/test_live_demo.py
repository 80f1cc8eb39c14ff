"""`hushmote demo --page`, whose clients keep reporting while a reader drags over the results."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser
from running_aggregator import WAIT_S, until
from selenium.webdriver.common.action_chains import ActionChains

from hushmote.simulator.broker import find_mosquitto

pytestmark = pytest.mark.broker


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Provide the demo's process in its own process group, and the page's URL."""
    if find_mosquitto() is None:
        pytest.skip("mosquitto is not installed")
    command = [sys.executable, "-m", "hushmote", "demo", "--page", "--out", tmp_path]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HUSHMOTE_")}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean, process_group=0
    )
    try:
        assert process.stdout is not None
        url = next((line.split()[1] for line in process.stdout if line.startswith("page ")), None)
        assert url is not None, process.communicate()[1]
        yield process, url.rstrip("/")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=WAIT_S)


def reports(browser: Browser) -> int:
    match = re.search(r"([\d,]+) reports in all", browser.text)
    assert match is not None
    return int(match[1].replace(",", ""))


def test_live_results_can_be_selected(demo: tuple[subprocess.Popen[str], str], browser: Browser):
    process, url = demo
    browser.open(f"{url}/experiment/airports/air_temp")
    first = browser.until(lambda: reports(browser), "no reports")
    browser.until(lambda: reports(browser) > first, "no further reports were counted")
    chart = browser.find(".experiment-chart")
    browser.script("arguments[0].scrollIntoView({block: 'center'})", chart)
    width = chart.size["width"]
    is_drawn = "return getElement(+arguments[0].id.slice(1))?.chart?.hushmote"
    browser.until(lambda: browser.script(is_drawn, chart), "the chart is not ready")
    actions = (
        ActionChains(browser.driver).move_to_element_with_offset(chart, -width // 3, -90).click_and_hold()
    )
    actions.move_by_offset(width // 8, 5).move_by_offset(width // 8, 5).release().perform()
    browser.until(lambda: re.search(r".* °F: .* of devices.*", browser.text), "no share")
    assert not browser.errors()
    process.send_signal(signal.SIGTERM)
    process.wait(WAIT_S)
    with pytest.raises(ProcessLookupError):  # no server in the process group outlives the demo
        until(lambda: os.killpg(process.pid, 0), "a process in the group is still running")
