"""The view budget."""

from __future__ import annotations

from nicegui import ui

from ..frame import frame
from ..page import Page


def register(page: Page) -> None:
    """Put the view on its route."""

    @ui.page("/budget")
    async def _() -> None:
        with frame(page, "Budget", "/budget"):
            ui.label("Nothing is here yet.")
