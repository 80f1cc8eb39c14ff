"""The browser board in a real Chromium: on a static server, and helpers to operate it."""

import contextlib
import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browser import Browser
from selenium.webdriver.remote.webelement import WebElement

from hushmote.web.board.fetch import CannotFetch, fetch
from hushmote.web.board.files import copy


def require_micropython() -> None:
    """Fetch MicroPython for browsers, or skip the test with the reason."""
    try:
        fetch()
    except CannotFetch as e:
        pytest.skip(f"MicroPython for browsers is not here: {e}")


@contextlib.contextmanager
def serve_board(folder: Path) -> Iterator[str]:
    """Serve the board's files under /a/board/ with Python's own static server; yield their URL."""
    require_micropython()
    copy(folder / "a" / "board")
    with serve_folder(folder) as url:
        yield f"{url}a/board/"


@contextlib.contextmanager
def serve_folder(folder: Path) -> Iterator[str]:
    """Serve a folder with Python's own static server; yield its URL."""
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


_CREATED_LATER = {"reading", "slider", "sha256"}  # ids that are not in index.html


class BoardPage:
    """The board's page in a browser."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser, self.url = browser, url

    def open(self, *, fresh: bool = False, query: str = "") -> None:
        """Load the page, which powers on the board; fresh: as a first-time visitor."""
        if fresh:
            self.browser.open("about:blank")  # stops a board that is starting up from writing any more
            self.clear_storage("local_storage,indexeddb")
        self.browser.open(self.url + query)

    def clear_storage(self, kinds: str) -> None:
        """Delete these kinds of browser storage."""
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(self.url))
        command = "Storage.clearDataForOrigin"
        self.browser.driver.execute_cdp_cmd(command, {"origin": origin, "storageTypes": kinds})

    def find(self, name: str) -> WebElement:
        """Return the element with this id.

        Raises:
            LookupError: If the page has loaded without it, so that waiting would not help.
        """
        look = "return [document.readyState, document.getElementById(arguments[0])]"
        state, element = self.browser.script(look, name)
        if element is None and state == "complete" and name not in _CREATED_LATER:
            raise LookupError(f"the page has no element #{name}")
        return element or self.browser.find(f"#{name}")

    def wait_for_question(self) -> None:
        """Wait until the page shows its question, answered or not."""
        self.browser.until(lambda: self.find("measure").is_displayed(), "the board is ready")

    def ready(self) -> None:
        """Wait until the page shows its question, and opt in."""
        self.wait_for_question()
        if self.find("yes").is_displayed():
            self.click("yes")
        self.says("consent-title", "You take part")

    def text(self, name: str) -> str:
        return self.find(name).text

    def click(self, name: str) -> None:
        self.browser.script("arguments[0].scrollIntoView({block: 'center'})", self.find(name))
        self.browser.until(lambda: self.find(name).click() or True)

    def says(self, name: str, words: str) -> str:
        """Wait until an element contains these words, and return its text."""
        return self.browser.until(lambda: words in self.text(name) and self.text(name), f"{name}: {words}")

    def choose(self, name: str, value: str) -> None:
        change = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))"
        self.browser.script(change, self.find(name), value)

    def fill(self, name: str, value: object) -> None:
        """Enter text in a field as if typed."""
        typed = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        self.browser.script(typed, self.find(name), str(value))

    def pick(self, index: int) -> None:
        """Choose a label by index, or no (0) or yes (1), waiting for it."""
        radios = f"return document.querySelectorAll('input[type=radio]')[{index}]"
        self.browser.until(lambda: self.browser.script(radios))
        self.browser.script(radios).click()

    def module(self, file: str, text: str, *arguments: Any) -> Any:
        """Return the result of JavaScript that sees a page module as m and the arguments as a."""
        callback = "(v) => arguments[arguments.length - 1]({v})"
        failed = "(e) => arguments[arguments.length - 1]({e: String(e)})"
        run = f"const a = arguments; import('./{file}').then((m) => {{ {text} }}).then({callback}, {failed})"
        answer = self.browser.driver.execute_async_script(run, *arguments)
        assert "e" not in answer, answer["e"]
        return answer.get("v")

    def call(self, *request: Any) -> Any:
        """Call a function in bridge.py."""
        return self.module("main.js", "return m.board.call(...a[0])", list(request))

    def report(self) -> bytes:
        """Press the button and return the report's bytes from the page, or b"" if there is none."""
        before = self.call("state")["sum"]
        self.click("report")
        self.says("message", "report")
        if self.call("state")["sum"] == before:
            return b""
        return bytes.fromhex(self.find("step-report").get_attribute("data-hex") or "")
