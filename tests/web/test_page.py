"""The frame's script in a real Chromium, on an empty page."""

from pathlib import Path

import pytest
from browser import Browser

SCRIPT = Path(__file__).parents[2] / "web" / "static" / "page.js"
POPUP = '<div id="popup" aria-hidden="true"><span></span><span>Trying to reconnect</span></div>'


@pytest.fixture
def frame(browser: Browser) -> Browser:
    """Provide a browser in which the script has started."""
    browser.script("document.body.innerHTML = arguments[0]", POPUP)
    browser.script(f"{SCRIPT.read_text()} document.dispatchEvent(new Event('DOMContentLoaded'))")
    return browser


def words(frame: Browser) -> list[str]:
    """Return the popup's words, after the script has seen its last change."""
    read = "done([...document.querySelectorAll('#popup span')].map((span) => span.textContent))"
    return frame.driver.execute_async_script(f"const done = arguments[0]; setTimeout(() => {{ {read} }})")


def test_popup_speaks_only_while_the_connection_is_lost(frame: Browser):
    assert words(frame) == ["", ""]
    for _ in range(2):
        frame.script("document.getElementById('popup').setAttribute('aria-hidden', 'false')")
        lost, waits = words(frame)
        assert lost == "The page's process does not answer."
        assert waits == "The browser keeps trying to reconnect."
        frame.script("document.getElementById('popup').setAttribute('aria-hidden', 'true')")
        assert words(frame) == ["", ""]
