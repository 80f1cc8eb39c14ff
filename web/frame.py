"""Every view's frame: the header with its navigation, the banner for problems, and the live region.

The token form and the board in the browser, which NiceGUI does not draw, have the same header.
"""

import datetime
import json
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from html import escape

from nicegui import context, ui

from ..server.words.numbers import time_since
from . import public_statement
from .page import Page
from .relative import root

VIEWS = (
    ("Answers", "/"),
    ("Releases", "/releases"),
    ("Budget", "/budget"),
    ("Plan", "/plan"),
    ("A board in the browser", "/board/"),
)
STATEMENT_VIEW = ("What is asked", public_statement.PATH)  # if the owner publishes a statement
_WORD = re.compile(r"[a-z]+(['’-][a-z]+)*[,:;]?(\s|$)")
FAULT = "This view has failed because of a bug in Hushmote. See the log of the page's process for details."
_SCRIPTS = ("page.js", "charts.js")
_HEADER = """<a class="frame-skip" href="#main">Skip to the content</a>
<a class="frame-name" href="{folder}/">Hushmote</a>
{navigation}<label class="frame-colours">Colours <select id="frame-colours">{colours}</select></label>
"""
_NAVIGATION = """<button id="frame-menu" type="button" aria-expanded="false" aria-controls="frame-views">
Menu</button>
<nav id="frame-views" aria-label="Views">{links}</nav>
"""
_COLOURS = (("auto", "system"), ("light", "light"), ("dark", "dark"))


@contextmanager
def frame(page: Page, title: str, current_path: str = "") -> Generator[ui.label, None, None]:
    """Build the page around a view, whose content is added inside the `with` statement.

    Args:
        page: The page's context.
        title: The view's title.
        current_path: The path of the view's navigation entry, or "" if it has none.

    Yields:
        The heading, for a view that changes its title later.
    """
    ui.page_title(f"{title} - Hushmote")
    folder = root(context.client.request.scope)
    ui.add_body_html("".join(f'<script src="{folder}/static/{name}" defer></script>' for name in _SCRIPTS))
    views = views_of(has_statement=page.settings.statement is not None)
    with ui.header(fixed=False).classes("frame-header"):
        ui.html(header_parts(folder, views, current_path), sanitize=False).classes("frame-parts")
    # NiceGUI's element around this one is the main landmark.
    with ui.element("div").props('id="main" tabindex="-1"').classes("frame-main"):
        banner = ui.element("div").props('id="frame-banner" role="alert"')
        with ui.element("div").classes("frame-title"):
            title_heading = heading(title)
            updated = tag("p", "").props('id="frame-updated"')
        ui.element("div").props('id="frame-status" role="status"').classes("unseen")
        content = ui.element("div").classes("frame-content")
    _follow(page, banner, updated)
    with content:
        yield title_heading


def views_of(*, has_statement: bool) -> tuple[tuple[str, str], ...]:
    """Return the names and paths of the views in the navigation."""
    return (*VIEWS, STATEMENT_VIEW) if has_statement else VIEWS


def header_parts(folder: str, views: Sequence[tuple[str, str]], current_path: str = "") -> str:
    """Return the contents of the header as HTML.

    Args:
        folder: The address of the page's root, as relative.root() returns it.
        views: The names and paths of the views in the navigation; without any, there is no navigation.
        current_path: The path of the current view, or "".
    """
    links = "".join(
        f'<a class="frame-link" href="{folder}{path}"'
        + (' aria-current="page"' if path == current_path else "")
        + f">{escape(name)}</a>"
        for name, path in views
    )
    colours = "".join(f'<option value="{value}">{text}</option>' for value, text in _COLOURS)
    navigation = _NAVIGATION.format(links=links) if views else ""
    return _HEADER.format(folder=folder, navigation=navigation, colours=colours)


def _follow(page: Page, banner: ui.element, updated: ui.label) -> None:
    """Keep the banner and the last change's time up to date."""
    client, live = context.client, page.live
    banner_lines: list[str] = []
    failures: list[str] = []

    def show() -> None:
        problems = [text for text in (live.state.words, page.aggregator.problem, *failures) if text]
        if problems != banner_lines:
            banner_lines[:] = problems
            banner.clear()
            with banner:
                for text in problems:
                    tag("p", sentence(text))
        if live.state.is_ready:
            at, now = (
                t.isoformat(timespec="seconds") for t in (live.at, datetime.datetime.now(datetime.UTC))
            )
            if client.has_socket_connection:
                client.run_javascript(f"hushmote.updated({json.dumps(at)}, {json.dumps(now)})")
            else:
                updated.props(f'data-at="{at}" data-now="{now}"')

    def show_failure(_error: Exception) -> None:
        failures[:] = [FAULT]
        show()

    client.on_exception(show_failure)
    live.on_each_change(show)


def set_query(query: str) -> None:
    """Replace the query in the browser's address, without loading the page again; "" removes it."""
    address = json.dumps(f"?{query}" if query else "")
    ui.run_javascript(f'history.replaceState({{}}, "", {address} || location.pathname)')


def skeleton(lines: int = 1) -> ui.element:
    """Return a placeholder for content that is being computed."""
    with ui.element("div").classes("skeleton").props('aria-hidden="true"') as placeholder:
        for _ in range(lines):
            ui.element("span")
    return placeholder


def heading(text: str, level: int = 1) -> ui.label:
    """Return a heading at this level."""
    return tag(f"h{level}", text).classes(f"heading-{level}")


@contextmanager
def details(title: str) -> Generator[ui.element, None, None]:
    """Add a part that is closed until the reader opens it or follows a link into it."""
    with ui.element("details").classes("details") as element:
        tag("summary", title)
        yield element


def tag(name: str, text: str) -> ui.label:
    """Return an HTML element that contains a text, which is never parsed as HTML."""
    element = ui.label(text)
    element.tag = name
    return element


def set_age(label: ui.label, words: str, then: datetime.datetime | None) -> None:
    """Show how long ago something happened, which the browser updates, and the exact time as a tooltip.

    Args:
        label: The label.
        words: The text, with {} for the age, such as "Updated {}.".
        then: The time, UTC; None to show nothing.
    """
    label.set_visibility(then is not None)
    if then is None:
        return
    age = time_since(then.timestamp(), datetime.datetime.now(datetime.UTC).timestamp())
    label.text = words.format(age)
    label.props["data-age-of"], label.props["data-words"] = then.isoformat(), words
    label.props["title"] = f"{then:%Y-%m-%d %H:%M} UTC"
    label.update()


def sentence(words: str) -> str:
    """Return a sentence, with a full stop, and capitalized unless it begins with a name or path."""
    if not words:
        return ""
    first = words[:1].upper() if _WORD.match(words) else words[:1]
    return f"{first}{words[1:]}" + ("" if words.endswith((".", "!", "?")) else ".")
