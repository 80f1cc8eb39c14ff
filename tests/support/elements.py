"""A page and its views' elements as the server keeps them, without a browser."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from nicegui import Client, core, ui
from nicegui.page import page as nicegui_page
from starlette.requests import Request

from hushmote.web.budget.ledgers import Ledgers
from hushmote.web.experiment.queries import SharedQueries
from hushmote.web.health import MonitoredAggregator
from hushmote.web.live import LiveStore
from hushmote.web.page import Page
from hushmote.web.settings import PageSettings

E = TypeVar("E", bound=ui.element)


def build(store: str, steps: Callable[[Page, ui.element], Awaitable[None]]) -> None:
    """Run the steps with a page over a store, and an element to which views add theirs."""

    async def checked() -> None:
        live = LiveStore(store)
        core.loop = asyncio.get_running_loop()
        request = Request({"type": "http", "path": "/", "query_string": b"", "headers": []})
        client = Client(nicegui_page(""), request=request)
        try:
            await live.check()
            aggregator = MonitoredAggregator(None, live.wake)
            page = Page(PageSettings(store), live, aggregator, SharedQueries(live), Ledgers(live, None))
            async with asyncio.timeout(60):  # in this task, which has the element
                with client, ui.element() as root:
                    await steps(page, root)
        finally:
            client.delete()
            core.loop = None
            live.close()

    asyncio.run(checked())


def find(root: ui.element, kind: type[E]) -> list[E]:
    """Return the visible elements of a kind in another one, from the top."""
    return [
        e for e in root.descendants() if isinstance(e, kind) and all(a.visible for a in (e, *e.ancestors()))
    ]


def texts(root: ui.element) -> list[str]:
    """Return the texts of the visible labels in an element, from the top."""
    return [label.text for label in find(root, ui.label)]
