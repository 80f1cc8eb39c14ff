"""Write docs/page/*.png: every view of the page in Chromium, from `hushmote demo --page`.

    python tools/make_pictures.py [FOLDER]

Each view is captured 1,440 px wide in the light theme and 360 px wide in the dark theme, and must not scroll
sideways.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import _paths  # noqa: F401
from browser import Browser, browsing
from PIL import Image
from selenium.webdriver.remote.webelement import WebElement

ROOT = Path(__file__).parents[1]
# A view's file name, its path, and text that appears once it is complete.
VIEWS = (
    ("fleet", "/", "Median: "),
    ("experiment", "/experiment/simulated/room_temp", "°C"),
    ("labels", "/experiment/visitors/breakfast", " is most common"),
    ("budget", "/budget", "A device's lifetime budget"),
    ("plan", "/plan", "Use one report"),
    ("board", "/board/", "ε"),
)
SIZES = (("wide", 1440, 900, False), ("narrow", 360, 780, True))


def main() -> None:
    """Start the demo, capture each view, and stop the demo."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "page"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, browsing(Path(scratch)) as browser:
        out = Path(scratch) / "out"
        command = [sys.executable, "-m", "hushmote", "demo", "--page"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HUSHMOTE_")}
        process = subprocess.Popen(
            [*command, "--out", out], stdout=subprocess.PIPE, text=True, env=environment
        )
        try:
            assert process.stdout is not None
            url = next(line.split()[1].rstrip("/") for line in process.stdout if line.startswith("page "))
            _send(browser, url)
            for view in VIEWS:
                _take(browser, url, view, folder)
        finally:
            process.terminate()
            process.wait(30)


def _send(browser: Browser, url: str) -> None:
    """Have a thousand boards in the browser report their breakfast."""
    browser.open(url + "/board/")
    browser.says("breakfast")
    browser.find_by_name("Yes, take part").click()
    browser.find_by_name("eggs", "label").click()
    browser.find_by_name("Send one report from each").click()
    browser.says("The aggregator has counted 1,000 reports")


def _take(browser: Browser, url: str, view: tuple[str, str, str], folder: Path) -> None:
    name, where, words = view

    def waiting() -> list[WebElement]:
        return browser.driver.find_elements("css selector", ".skeleton, .waiting")

    for size, width, height, dark in SIZES:
        browser.resize(width, height, dark=dark)
        browser.open(url + where)
        browser.says(words)
        browser.until(lambda: not any(e.is_displayed() for e in waiting()), f"{name} is not complete")
        browser.wait_until_settled()
        assert browser.overflow() <= 0, f"{name} is {browser.overflow()} px wider than {width} px"
        assert not browser.errors(), browser.errors()
        path = folder / f"{name}-{size}.png"
        browser.picture(path)
        Image.open(path).convert("RGB").quantize(128).save(path, optimize=True)
        print(path)


if __name__ == "__main__":
    main()
