"""axe-core, as web/board/package-lock.json pins it, asked about the page that a browser shows."""

from browser import Browser
from npm_packages import packed


def barriers(browser: Browser) -> list[str]:
    """Return what axe-core finds in the page as it is now, a line each: rule, meaning, first element."""
    # Through the driver, whom no Content-Security-Policy stops.
    browser.driver.execute_script(packed("axe-core/axe.min.js").read_text() + "; window.axe = axe;")
    ask = "const done = arguments[0]; axe.run().then((r) => done(r.violations), (e) => done(String(e)));"
    found = browser.driver.execute_async_script(ask)
    assert isinstance(found, list), found
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html']}" for one in found]
