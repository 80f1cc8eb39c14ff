"""Every view's frame: the header with its navigation, the banner for problems, and the live region."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager

from nicegui import context, ui

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
    static = f"{root(context.client.request.scope)}/static"
    ui.add_body_html("".join(f'<script src="{static}/{name}" defer></script>' for name in _SCRIPTS))
    with ui.header(fixed=False).classes("frame-header"):
        ui.link("Skip to the content", "#main").classes("frame-skip")
        ui.link("Hushmote", "/").classes("frame-name")
        tag("button", "Menu").props(
            'id="frame-menu" type="button" aria-expanded="false" aria-controls="frame-views"'
        )
        with ui.element("nav").props('id="frame-views" aria-label="Views"'):
            for name, path in (*VIEWS, *([STATEMENT_VIEW] if page.settings.statement else [])):
                link = ui.link(name, path).classes("frame-link")
                if path == current_path:
                    link.props('aria-current="page"')
        with (
            tag("label", "Colours").classes("frame-colours"),
            ui.element("select").props('id="frame-colours"'),
        ):
            for value, text in _COLOURS:
                tag("option", text).props(f'value="{value}"')
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
            at = live.at.isoformat(timespec="seconds")
            if client.has_socket_connection:
                client.run_javascript(f"hushmote.updated({json.dumps(at)})")
            else:
                updated.props(f'data-at="{at}"')

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


def tag(name: str, text: str) -> ui.label:
    """Return an HTML element that contains a text, which is never parsed as HTML."""
    element = ui.label(text)
    element.tag = name
    return element


def sentence(words: str) -> str:
    """Return a sentence, with a full stop, and capitalized unless it begins with a name or path."""
    if not words:
        return ""
    first = words[:1].upper() if _WORD.match(words) else words[:1]
    return f"{first}{words[1:]}" + ("" if words.endswith((".", "!", "?")) else ".")
