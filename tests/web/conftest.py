"""One Chromium for all tests of the page, which is reset before each test."""

from collections.abc import Iterator

import pytest
from browser import Browser, browsing


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """Return the browser, blank, in English, 1,440 px wide and light, without traces of the last test."""
    chromium.renew()
    return chromium
