"""One Chromium for all tests of the page, as new for each of them."""

from collections.abc import Iterator

import pytest
from browser import Browser, browsing


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """Provide an empty browser, in English, 1,440 px wide and light, without state of the test before."""
    chromium.renew()
    return chromium
