"""The first view: a store's fleets and experiments."""

from __future__ import annotations

from nicegui import ui

from ..server.answers.store_reader import StoreReader
from .frame import frame
from .page import Page


def register(page: Page) -> None:
    """Put the view on its route."""

    @ui.page("/")
    async def _() -> None:
        with frame(page, "Fleet", "/"):
            lines = ui.column()

        async def refresh() -> None:
            names = await page.live.ask("fleet", _names)
            lines.clear()
            with lines:
                for fleet, name in names:
                    ui.link(f"{fleet}: {name}", f"/experiment/{fleet}/{name}")

        await page.live.follow(refresh)


def _names(store: StoreReader) -> list[tuple[str, str]]:
    return [(fleet, name) for fleet in store.fleets for name in store.fleet(fleet).experiments]
