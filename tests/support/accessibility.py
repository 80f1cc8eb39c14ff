"""axe-core, as web/board/package-lock.json pins it, asked about the page that a browser shows."""

import fcntl
from pathlib import Path

import pytest
from browser import Browser

from hushmote.web.board.fetch import CannotFetch, packages

NPM = Path(__file__).parents[2] / "build" / "npm"


def _axe() -> str:
    script = NPM / "node_modules" / "axe-core" / "axe.min.js"
    NPM.mkdir(parents=True, exist_ok=True)
    with open(NPM / "lock", "w") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not script.exists():
            try:
                packages(NPM, tests=True)
            except CannotFetch as e:
                pytest.skip(f"axe-core is not here: {e}")
    return script.read_text()


def barriers(browser: Browser) -> list[str]:
    """What axe-core finds in the page as it is now, a line each: rule, what it means, the first element."""
    # Through the driver, whom no Content-Security-Policy stops.
    browser.driver.execute_script(_axe() + "; window.axe = axe;")
    ask = "const done = arguments[0]; axe.run().then((r) => done(r.violations), (e) => done(String(e)));"
    found = browser.driver.execute_async_script(ask)
    assert isinstance(found, list), found
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html']}" for one in found]
