"""The 404 response for an experiment that does not exist, with links to existing experiments."""

import asyncio
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import Response
from nicegui import ui

from ...server.answers.store_reader import StoreReader
from ...server.plain_text import shorten, visible
from ...server.store.store import StoreError
from .. import errors
from ..frame import tag
from ..page import Page
from . import files

_TIMEOUT_S = 1.0
_MAX_NAME = 80  # characters
_MAX_LINKS = 200


async def response_if_missing(page: Page, request: Request, fleet: str, name: str) -> Response | None:
    """Return a response with status 404 if an experiment does not exist, or None.

    The result is also None if reading the store fails or takes longer than a second; the view then opens
    immediately and shows the error.
    """
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            names = await _visible_names(page)
            if name not in names.get(fleet, ()):
                await page.live.check()  # the experiment may have been added since the last check
                names = await _visible_names(page)
    except (StoreError, TimeoutError):
        return None
    if name in names.get(fleet, ()):
        return None
    fleet_name, experiment_name = (shorten(visible(text), _MAX_NAME) for text in (fleet, name))
    message = f"No experiment {experiment_name} in fleet {fleet_name}."
    if not files.is_shown(page, fleet):
        message = "The page does not show this fleet."
    return errors.not_found(page, request, message, lambda: _add_links(names))


async def _visible_names(page: Page) -> dict[str, tuple[str, ...]]:
    names = await page.live.ask("names of experiments", _names)
    return {fleet: experiments for fleet, experiments in names.items() if files.is_shown(page, fleet)}


def _names(reader: StoreReader) -> dict[str, tuple[str, ...]]:
    """Return the names by fleet, including those that cannot be read; their view shows the error."""
    names: dict[str, tuple[str, ...]] = {}
    for fleet in reader.fleets:
        versions, unreadable = reader.store.readable_experiments(fleet)
        names[fleet] = tuple(sorted({v.experiment.name for v in versions} | {e.name for e in unreadable}))
    return names


def _add_links(names: dict[str, tuple[str, ...]]) -> None:
    existing = [(fleet, name) for fleet, experiments in names.items() for name in experiments]
    if not existing:
        return
    tag("p", "These experiments exist:")
    with ui.element("ul").classes("links"):
        for fleet, name in existing[:_MAX_LINKS]:
            with ui.element("li"):
                ui.link(f"{name} of fleet {fleet}", f"/experiment/{quote(fleet)}/{quote(name)}")
