"""A real Chromium for tests of pages, and `hushmote page` as a real process for it to open."""

import base64
import contextlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from babel import Locale
from running_aggregator import WAIT_S
from selenium import webdriver
from selenium.common import exceptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

TOKEN = "0123456789abcdef-a-token"
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
SWISS = Locale("de", "CH").number_symbols["latn"]["group"]  # thousands separator: ’ up to Babel 2.18, then '
assert SWISS in ("’", "'")
_NOT_YET = (
    AssertionError,
    exceptions.ElementNotInteractableException,
    exceptions.NoSuchElementException,
    exceptions.StaleElementReferenceException,
)
_EXCEPTION = re.compile("Uncaught|(?:Range|Reference|Syntax|Type)Error: ")
# A page that fails or stops changing has reached its final state, so waiting longer would not help.
_FAILED_PAGE_S = 20.0
_STILL_PAGE_S = 30.0
_LOOK_S = 2.0  # interval at which to compare the page with its last state
# The driver's errors for a command interrupted by a page change.
_LEFT = re.compile("aborted by navigation|loader has changed|does not belong to the document")


class Browser:
    """A headless Chromium; .driver is the Selenium driver."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM, "no Chromium: apt-get install chromium"
        assert DRIVER, "no driver for Chromium: apt-get install chromium-driver"
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for argument in (
            "--headless=new",
            "--no-sandbox",  # tests may run as root, with no other user available
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--hide-scrollbars",  # a scrollbar would cut off part of the picture
            "--no-first-run",
            f"--user-data-dir={folder / 'chromium'}",
            "--lang=en-US",
        ):
            options.add_argument(argument)
        downloads = {"download.default_directory": str(folder), "download.prompt_for_download": False}
        options.add_experimental_option("prefs", downloads)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.folder = folder
        self._width = 1440
        self._errors: list[str] = []
        self._warnings: list[str] = []
        self.driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        self.driver.set_script_timeout(WAIT_S)
        self.resize(1440, 900)

    def close(self) -> None:
        self.driver.quit()

    def renew(self, language: str = "en-US") -> None:
        """Leave the page and clear its storage and log; language: the reader's new language."""
        self.open("about:blank")
        agent = {"userAgent": self.script("return navigator.userAgent"), "acceptLanguage": language}
        self.driver.execute_cdp_cmd("Network.setUserAgentOverride", agent)
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.resize(1440)
        self.errors()

    def resize(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Set the view's size in CSS pixels, and whether the reader's system is in dark mode."""
        mobile = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", mobile)
        self._width = width
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def open(self, url: str) -> None:
        self.driver.get(url)

    def script(self, text: str, *arguments: Any) -> Any:
        """Return the result of JavaScript code, such as `return 1 + arguments[0]` with 1."""
        return self.driver.execute_script(text, *arguments)

    @property
    def text(self) -> str:
        """Return all visible text."""
        return self._text(By.TAG_NAME, "body")

    def text_of(self, place: str) -> str:
        """Return the text of the element with this id."""
        return self._text(By.ID, place)

    def find(self, css: str) -> WebElement:
        """Return the first element that matches a CSS selector, waiting for it."""
        return self.until(lambda: self.driver.find_element(By.CSS_SELECTOR, css), f"no {css}")

    def find_by_name(
        self, label: str, css: str = "button, a, [role=button], [role=tab], label"
    ) -> WebElement:
        """Return the first visible element with this text or aria-label, waiting for it."""

        def look() -> WebElement:
            for element in self.driver.find_elements(By.CSS_SELECTOR, css):
                words = (element.text, element.get_attribute("aria-label"))
                if element.is_displayed() and label in [w.strip() for w in words if w]:
                    return element
            raise exceptions.NoSuchElementException(label)

        return self.until(look, f"nothing is called {label!r}")

    def until(self, look: Callable[[], Any], what: str = "") -> Any:
        """Poll look() until its result is true, ignoring missing elements, and return that result.

        Give up after WAIT_S, _STILL_PAGE_S without any change of the page, or _FAILED_PAGE_S if the page has
        failed with an exception.
        """
        start = changed_at = compared_at = time.monotonic()
        state = None
        while True:
            try:
                if result := look():
                    return result
            except (AssertionError, exceptions.WebDriverException) as e:
                if not isinstance(e, _NOT_YET) and not _LEFT.search(str(e)):
                    raise
            now = time.monotonic()
            if now - compared_at > _LOOK_S:
                compared_at, before, state = now, state, self._state()
                if state != before:
                    changed_at = now
            waited_s, still_s = now - start, now - changed_at
            if (
                waited_s > WAIT_S
                or still_s > _STILL_PAGE_S
                or (waited_s > _FAILED_PAGE_S and self._has_failed())
            ):
                raise AssertionError(f"{what}\n{self.text[-3000:]}\n{self.errors()}")
            time.sleep(0.1)  # each look() costs some 20 ms of CPU in the driver and browser

    def says(self, words: str) -> None:
        """Wait until the words are visible."""
        self.until(lambda: words in self.text, f"the page does not say {words!r}")

    def errors(self) -> list[str]:
        """Return the page's errors since the last call: exceptions, refused requests."""
        self._read_log()
        errors, self._errors, self._warnings = self._errors, [], []
        return errors

    def complaints(self) -> list[str]:
        """Return the page's warnings and errors since the last call of this or of errors()."""
        self._read_log()
        return self._warnings + self.errors()

    def _text(self, by: str, value: str) -> str:
        """Return an element's text, read again if the page was being replaced."""
        end = time.monotonic() + WAIT_S
        while True:
            try:
                return self.driver.find_element(by, value).text
            except exceptions.NoSuchElementException:
                raise
            except exceptions.WebDriverException as e:
                gone = isinstance(e, exceptions.StaleElementReferenceException) or _LEFT.search(str(e))
                if not gone or time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def _state(self) -> Any:
        """Return a value that differs after most changes of the page, or None while it is being replaced."""
        try:
            return self.script(
                "const root = document.documentElement; return [location.href, document.readyState,"
                " root.outerHTML.length, root.innerText, document.getElementsByTagName('*').length]"
            )
        except exceptions.WebDriverException as e:
            if not _LEFT.search(str(e)):
                raise
            return None

    def _has_failed(self) -> bool:
        self._read_log()
        return any(map(_EXCEPTION.search, self._errors))

    def _read_log(self) -> None:
        log: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        self._errors += [entry["message"] for entry in log if entry["level"] == "SEVERE"]
        self._warnings += [entry["message"] for entry in log if entry["level"] == "WARNING"]

    def wait_until_settled(self) -> None:
        """Wait until the text has not changed for half a second, but for at most 5 s."""
        before, since = "", time.monotonic()
        end = since + 5
        while time.monotonic() - since < 0.5 and time.monotonic() < end:
            if (now := self.text) != before:
                before, since = now, time.monotonic()
            time.sleep(0.1)

    def overflow(self) -> int:
        """Return the pixels by which the page is wider than the view, or 0 if it fits."""
        # On a phone, innerWidth grows with content that is too wide.
        return max(0, self.script("return document.documentElement.scrollWidth") - self._width)

    def picture(self, path: Path) -> None:
        """Write the whole page to a PNG file."""
        full_page = {"captureBeyondViewport": True}
        data = self.driver.execute_cdp_cmd("Page.captureScreenshot", full_page)["data"]
        path.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """Provide a Chromium that is closed at the end."""
    browser = Browser(folder)
    try:
        yield browser
    finally:
        browser.close()


@contextlib.contextmanager
def paged(
    store: str,
    *arguments: object,
    environment: dict[str, str] | None = None,
    program: Sequence[object] = ("-m", "hushmote"),
) -> Iterator[str]:
    """Run `hushmote page` on a store and yield its URL; program: the arguments for Python."""
    command = [sys.executable, *map(str, program), "page", "--store", store, "--http", "127.0.0.1:0"]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HUSHMOTE_")}
    process = subprocess.Popen(
        [*command, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=clean | (environment or {}),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("the page is at "), line
        yield line.split()[-1].rstrip("/")
    finally:
        process.kill()
        process.wait(WAIT_S)
        assert process.stdout is not None
        process.stdout.close()


def token_file(folder: Path) -> Path:
    """Write a file with TOKEN for --token-file into a folder."""
    file = folder / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    return file


def ask(
    page: str, path: str = "/", method: str = "GET", body: str | bytes | None = None, **headers: str
) -> tuple[int, Message, bytes]:
    """Return status, headers and body of a page's answer; underscores in header names become hyphens."""
    hyphenated = {name.replace("_", "-"): value for name, value in headers.items()}
    address = urlsplit(page)
    with contextlib.closing(http.client.HTTPConnection(address.netloc, timeout=WAIT_S)) as connection:
        connection.request(method, address.path.rstrip("/") + path, body, hyphenated)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
