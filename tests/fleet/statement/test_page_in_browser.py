"""A statement's page in Chromium: on a phone, in dark mode, for a screen reader, and on paper."""

from pathlib import Path

import pytest
from accessibility import barriers
from browser import Browser, browsing
from statements import ask, facts_of

from hushmote.fleet.statement import document, page
from hushmote.server.store.store import Store

A4_PX = (794, 1123)  # at 96 px an inch
MARGIN_PX = 53  # 14 mm, as page.css has it


@pytest.mark.browser
def test_label_is_a_single_accessible_page(tmp_path: Path):
    with Store(f"sqlite:///{tmp_path / 'statement.sqlite'}") as store:
        ask(store, windows={"2026-11-20": 1000})
        signed = document.sign(document.document(facts_of(store, tmp_path)), None)
    path = tmp_path / "label.html"
    path.write_text(page.html(signed))
    with browsing(tmp_path) as chromium:
        look_at(chromium, path.as_uri())


def look_at(chromium: Browser, url: str) -> None:
    chromium.renew()
    for dark in (False, True):
        chromium.resize(390, dark=dark)
        chromium.open(url)
        assert barriers(chromium) == []
        assert chromium.script("return document.documentElement.scrollWidth") == 390
    chromium.resize(A4_PX[0] - 2 * MARGIN_PX, A4_PX[1])
    chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    high = chromium.script("return document.querySelector('.label').getBoundingClientRect().height")
    assert 400 < high <= A4_PX[1] - 2 * MARGIN_PX
    assert chromium.script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    loaded = "return performance.getEntriesByType('resource').length"
    assert chromium.script(loaded) == 0
    chromium.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert chromium.errors() == []
