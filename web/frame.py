"""What is around every view: the header with its navigation, the banner of what is wrong, the live region."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from nicegui import ui

from .page import Page

VIEWS = (("Fleet", "/"), ("Budget", "/budget"), ("Plan", "/plan"), ("A board in the browser", "/board/"))


@contextmanager
def frame(page: Page, title: str, here: str = "") -> Generator[None, None, None]:
    """The page around a view, which is put inside the `with`; here: the path of its navigation entry."""
    ui.page_title(f"{title} - Hushmote")
    ui.dark_mode(None)
    with ui.header().classes("frame-header"), ui.element("nav").props('aria-label="Views"'):
        for name, path in VIEWS:
            link = ui.link(name, path).classes("frame-link")
            if path == here:
                link.props('aria-current="page"')
    with ui.element("main").props('id="main"').classes("frame-main"):
        heading(title)
        yield


def heading(text: str, level: int = 1) -> ui.label:
    """A heading of this level, for the eye and for screen readers."""
    return ui.label(text).props(f'role="heading" aria-level="{level}"').classes(f"heading-{level}")
