"""The frame of every view: the header with its navigation, the banner for problems, the live region."""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager

from nicegui import context, ui

from . import public_statement
from .page import Page

VIEWS = (("Answers", "/"), ("Budget", "/budget"), ("Plan", "/plan"), ("A board in the browser", "/board/"))
STATEMENT_VIEW = ("What is asked", public_statement.PATH)  # if the owner publishes it
_WORD = re.compile(r"[a-z]+(['’-][a-z]+)*[,:;]?(\s|$)")
FAULT = "This view has failed, by a fault in Hushmote. The log of the page's process says what happened."
_COLOURS = (("auto", "as the system"), ("light", "light"), ("dark", "dark"))


@contextmanager
def frame(page: Page, title: str, here: str = "") -> Generator[ui.label, None, None]:
    """Build the page around a view, which is filled inside the `with`; `here` is the navigation entry's path.

    Yields its heading, for a view that learns its title later.
    """
    ui.page_title(f"{title} - Hushmote")
    with ui.header(fixed=False).classes("frame-header"):
        ui.link("Skip to the content", "#main").classes("frame-skip")
        ui.link("Hushmote", "/").classes("frame-name")
        tag("button", "Menu").props(
            'id="frame-menu" type="button" aria-expanded="false" aria-controls="frame-views"'
        )
        with ui.element("nav").props('id="frame-views" aria-label="Views"'):
            for name, path in (*VIEWS, *([STATEMENT_VIEW] if page.settings.statement else [])):
                link = ui.link(name, path).classes("frame-link")
                if path == here:
                    link.props('aria-current="page"')
        with (
            tag("label", "Colours").classes("frame-colours"),
            ui.element("select").props('id="frame-colours"'),
        ):
            for value, words in _COLOURS:
                tag("option", words).props(f'value="{value}"')
    # NiceGUI's own element around this is the main landmark.
    with ui.element("div").props('id="main" tabindex="-1"').classes("frame-main"):
        banner = ui.element("div").props('id="frame-banner" role="alert"')
        with ui.element("div").classes("frame-title"):
            first = heading(title)
            updated = tag("p", "").props('id="frame-updated"')
        ui.element("div").props('id="frame-status" role="status"').classes("unseen")
        content = ui.element("div").classes("frame-content")
    _follow(page, banner, updated)
    with content:
        yield first


def _follow(page: Page, banner: ui.element, updated: ui.label) -> None:
    """Keep the banner and the time of the last change up to date."""
    client, live = context.client, page.live
    banner_lines: list[str] = []
    faults: list[str] = []

    def show() -> None:
        problems = [words for words in (live.state.words, page.aggregator.problem, *faults) if words]
        if problems != banner_lines:
            banner_lines[:] = problems
            banner.clear()
            with banner:
                for words in problems:
                    tag("p", sentence(words))
        if live.state.ready:
            at = live.at.isoformat(timespec="seconds")
            if client.has_socket_connection:
                client.run_javascript(f"hushmote.updated({json.dumps(at)})")
            else:
                updated.props(f'data-at="{at}"')

    def failed(_error: Exception) -> None:
        faults[:] = [FAULT]
        show()

    client.on_exception(failed)
    live.each_change(show)


def skeleton(lines: int = 1) -> ui.element:
    """Return a placeholder for content that is being computed."""
    with ui.element("div").classes("skeleton").props('aria-hidden="true"') as waiting:
        for _ in range(lines):
            ui.element("span")
    return waiting


def heading(text: str, level: int = 1) -> ui.label:
    """Return a heading of this level."""
    return tag(f"h{level}", text).classes(f"heading-{level}")


def tag(name: str, text: str) -> ui.label:
    """Return an HTML element with a text, which is inserted as text only."""
    element = ui.label(text)
    element.tag = name
    return element


def sentence(words: str) -> str:
    """Return a sentence: with a full stop, and a capital unless it begins with a name or path."""
    if not words:
        return ""
    first = words[:1].upper() if _WORD.match(words) else words[:1]
    return f"{first}{words[1:]}" + ("" if words.endswith((".", "!", "?")) else ".")
