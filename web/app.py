"""The page as a process: NiceGUI's application, wrapped in what limits and guards it, on a bounded server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui

from . import fleet
from .budget import view as budget
from .experiment import view as experiment
from .live import LiveStore
from .page import Page
from .plan import view as plan
from .settings import PageSettings

READY = "the page is at {url}"
STATIC = Path(__file__).with_name("static")


def serve(settings: PageSettings, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve the page until SIGTERM or Ctrl-C; on_ready is called with its URL once it listens."""
    asyncio.run(_serve(settings, on_ready))


async def _serve(settings: PageSettings, on_ready: Callable[[str], None] | None) -> None:
    live = LiveStore(settings.store)
    listener = socket.create_server((settings.host, settings.port))
    config = uvicorn.Config(
        application(Page(settings, live)), log_config=None, log_level="warning", access_log=False,
        proxy_headers=False, server_header=False, timeout_graceful_shutdown=2,
    )  # fmt: skip
    if on_ready is not None:
        on_ready(f"http://{settings.host}:{listener.getsockname()[1]}/")
    looking = asyncio.create_task(live.run())
    try:
        await uvicorn.Server(config).serve(sockets=[listener])
    finally:
        looking.cancel()
        live.close()


def application(page: Page) -> Any:
    """The ASGI application of a page; one in a process, since NiceGUI's routes are the process's."""
    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=_lifespan)
    for view in (fleet, experiment, budget, plan):
        view.register(page)
    nicegui_app.add_static_files("/static", STATIC)
    ui.add_css(STATIC / "page.css", shared=True)
    ui.run_with(
        outer,
        title="Hushmote",
        tailwind=False,
        binding_refresh_interval=None,
        show_welcome_message=False,
        dark=None,
    )
    return outer


@contextlib.asynccontextmanager
async def _lifespan(_app: FastAPI) -> AsyncGenerator[None, None]:
    yield
