"""Run axe-core, at the version in web/board/package-lock.json, on the page a browser shows."""

from browser import Browser
from npm_packages import npm_file


def barriers(browser: Browser) -> list[str]:
    """Return axe-core's findings on the current page, one line each: rule, meaning, first element."""
    # Injected by the driver, which bypasses the Content-Security-Policy.
    browser.driver.execute_script(npm_file("axe-core/axe.min.js").read_text() + "; window.axe = axe;")
    ask = "const done = arguments[0]; axe.run().then((r) => done(r.violations), (e) => done(String(e)));"
    violations = browser.driver.execute_async_script(ask)
    assert isinstance(violations, list), violations
    return [
        f"{violation['id']}: {violation['help']}: {violation['nodes'][0]['html']}" for violation in violations
    ]
