"""The browser board in a real Chromium: on a static server, and what tests do with it."""

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

from hushmote.web.board.fetch import CannotFetch, fetch
from hushmote.web.board.files import copy


def fetched() -> None:
    """MicroPython for browsers is here after this, or the test is skipped and says why."""
    try:
        fetch()
    except CannotFetch as e:
        pytest.skip(f"MicroPython for browsers is not here: {e}")


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the board's files under /a/board/ with Python's own static server; yield their URL."""
    fetched()
    copy(folder / "a" / "board")
    with static(folder) as url:
        yield f"{url}a/board/"


@contextlib.contextmanager
def static(folder: Path) -> Iterator[str]:
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


class BoardPage:
    """The page, and the board behind it."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser, self.url = browser, url

    def open(self, *, fresh: bool = False, query: str = "") -> None:
        """Load the page, which for the board is power on; fresh: in a browser that never was here."""
        if fresh:
            self.browser.open("about:blank")  # a board that is just being made would go on writing
            self.forgets("local_storage,indexeddb")
        self.browser.open(self.url + query)

    def forgets(self, kinds: str) -> None:
        """Delete these kinds of the browser's storage."""
        origin = "{0.scheme}://{0.netloc}".format(urlsplit(self.url))
        command = "Storage.clearDataForOrigin"
        self.browser.driver.execute_cdp_cmd(command, {"origin": origin, "storageTypes": kinds})

    def asked(self) -> None:
        """Wait until the page shows its question, whatever was answered."""
        self.browser.until(lambda: self.browser.find("#measure").is_displayed(), "the board is ready")

    def ready(self) -> None:
        """Wait until the page shows its question, and opt in."""
        self.asked()
        if self.browser.find("#yes").is_displayed():
            self.click("yes")
        self.says("consent-title", "You take part")

    def text(self, name: str) -> str:
        return self.browser.find(f"#{name}").text

    def click(self, name: str) -> None:
        self.browser.script("arguments[0].scrollIntoView({block: 'center'})", self.browser.find(f"#{name}"))
        self.browser.until(lambda: self.browser.find(f"#{name}").click() or True)

    def says(self, name: str, words: str) -> str:
        """Wait until these words are in an element, and return its text."""
        return self.browser.until(lambda: words in self.text(name) and self.text(name), f"{name}: {words}")

    def choose(self, name: str, value: str) -> None:
        change = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('change'))"
        self.browser.script(change, self.browser.find(f"#{name}"), value)

    def fill(self, name: str, value: object) -> None:
        """Put a text into a field as typing does."""
        typed = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        self.browser.script(typed, self.browser.find(f"#{name}"), str(value))

    def pick(self, index: int) -> None:
        """Choose a label, or no (0) or yes (1), once it is there."""
        radios = f"return document.querySelectorAll('input[type=radio]')[{index}]"
        self.browser.until(lambda: self.browser.script(radios))
        self.browser.script(radios).click()

    def module(self, file: str, text: str, *arguments: Any) -> Any:
        """Return the result of JavaScript that has a module of the page as m, and arguments as a."""
        done = "(v) => arguments[arguments.length - 1]({v})"
        failed = "(e) => arguments[arguments.length - 1]({e: String(e)})"
        run = f"const a = arguments; import('./{file}').then((m) => {{ {text} }}).then({done}, {failed})"
        answer = self.browser.driver.execute_async_script(run, *arguments)
        assert "e" not in answer, answer["e"]
        return answer.get("v")

    def call(self, *request: Any) -> Any:
        """Call a function of bridge.py."""
        return self.module("main.js", "return m.board.call(...a[0])", list(request))

    def report(self) -> bytes:
        """Press the button; the report's bytes as the page shows them, empty where there is none."""
        before = self.call("state")["sum"]
        self.click("report")
        self.says("said", "report")
        if self.call("state")["sum"] == before:
            return b""
        return bytes.fromhex(self.browser.find("#step-report").get_attribute("data-hex") or "")
