"""The view experiment."""

from __future__ import annotations

from nicegui import ui

from ..frame import frame
from ..page import Page


def register(page: Page) -> None:
    """Put the view on its route."""

    @ui.page("/experiment/{fleet}/{name}")
    async def _(fleet: str, name: str) -> None:
        with frame(page, f"{name} of {fleet}"):
            ui.label("Nothing is here yet.")
