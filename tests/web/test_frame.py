"""The frame of the page in a real Chromium."""

from browser import browsing, needs_chromium, paged

from hushmote.server.store.store import Store


@needs_chromium
def test_an_empty_store_has_a_page_without_errors(tmp_path):
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    Store(url).close()
    with paged(url) as page, browsing(tmp_path) as browser:
        browser.open(page)
        browser.says("Fleet")
        browser.resize(360)
        assert browser.overflow() == 0
        assert not browser.errors()
