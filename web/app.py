"""The page's process, which runs the NiceGUI application behind limits and access checks."""

import asyncio
import contextlib
import datetime
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse, RedirectResponse, Response
from nicegui import app as nicegui_app
from nicegui import ui
from starlette.middleware.gzip import GZipMiddleware

from ..fleet.results.result import result_of
from ..server.answers.store_reader import StoreReader
from ..server.errors import HushmoteError, UsageError
from ..server.hints import use_interface
from ..server.plain_text import bracketed
from ..server.service.bounded_http import listen
from ..server.service.log_files import PATH as LOG_PATH
from ..server.service.log_files import LogFiles
from ..server.store.store import StoreError
from ..server.wire.topics import SIMULATED_PREFIX
from . import errors, fleet, releases, server, socket_io
from .access import PageAccess
from .board.app import BoardFiles
from .board.files import BoardConfig
from .budget import view as budget
from .budget.ledgers import Ledgers
from .experiment import view as experiment
from .experiment.queries import SharedQueries
from .frame import header_parts, views_of
from .health import MonitoredAggregator
from .limits import DrawingLimit, Limits
from .live import LiveStore
from .page import Page
from .plan import view as plan
from .public_statement import PublicStatement
from .relative import RelativeAddresses
from .settings import PageSettings

STATIC = Path(__file__).with_name("static")
log = logging.getLogger(__name__)


def serve(settings: PageSettings, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve the page until SIGTERM or Ctrl-C; call on_ready with its URL once it listens.

    Raises:
        EndpointError: If the page cannot listen at its address.
        StoreError: If the store's URL is invalid.
    """
    with use_interface("page"), listen(settings.host, settings.port) as listener:
        asyncio.run(_serve(settings, listener, on_ready))


async def _serve(
    settings: PageSettings, listener: socket.socket, on_ready: Callable[[str], None] | None
) -> None:
    live = LiveStore(settings.store)
    await live.check()  # the first reader must not see a store that has not been checked
    has_fleet = settings.fleet or settings.statement
    if (
        has_fleet
        and live.state.is_ready
        and (error := settings.missing_fleet_message(await live.ask("fleet names", _fleets)))
    ):
        live.close()
        raise UsageError(error)
    aggregator = MonitoredAggregator(settings.aggregator, live.wake)
    page = Page(settings, live, aggregator, SharedQueries(live), Ledgers(live, settings.policy))
    port = listener.getsockname()[1]

    def ready() -> None:
        if on_ready is not None:
            on_ready(f"http://{bracketed(settings.host)}:{port}/")

    background = live.run(), page.aggregator.run(), fleet.precompute(page)
    tasks = [asyncio.create_task(work) for work in background]
    try:
        log_files = LogFiles(settings.store)
        public = None if settings.statement is None else PublicStatement(settings.statement, live, log_files)
        in_frames = bool(settings.frame_ancestors)
        access = PageAccess(
            DrawingLimit(application(page, log_files)),
            settings.tokens,
            port,
            public,
            settings.audit_log,
            in_frames,
            settings.trusted_proxy,
        )
        await server.run(guarded(access, settings.frame_ancestors), listener, ready)
    finally:
        for task in tasks:
            task.cancel()
        live.close()


def _fleets(reader: StoreReader) -> tuple[str, ...]:
    return reader.fleets


def guarded(access: PageAccess, frame_ancestors: Sequence[str] = ()) -> Any:
    """Return the ASGI application behind the page's limits and access checks."""
    outer = RelativeAddresses(Limits(access, frame_ancestors))
    # On the loopback address, which needs no token, compressing is slower than sending.
    return GZipMiddleware(outer, minimum_size=1000, compresslevel=4) if access.asks_for_token else outer


def application(page: Page, log_files: LogFiles) -> Any:
    """Return a page's ASGI application; only one per process, because NiceGUI's routes are global."""
    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=_lifespan)
    for view in (fleet, experiment, releases, budget, plan):
        view.register(page)
    errors.register(page)
    socket_io.restrict()
    nicegui_app.add_static_files("/static", STATIC)
    for name in ("frame.css", "page.css"):
        ui.add_css(STATIC / name, shared=True)
    if page.settings.door is not None:
        outer.mount("/v1", page.settings.door)
    # Quasar's progress bar has no name that screen readers can announce; the page has its own status text.
    nicegui_app.config.quasar_config["loadingBar"]["skipHijack"] = True
    outer.add_api_route(f"{LOG_PATH}{{path:path}}", log_files.answer, response_model=None)
    _mount_board(outer, page)
    _mount_results(outer, page)
    ui.run_with(
        outer,
        title="Hushmote",
        language="en-US",
        tailwind=False,
        binding_refresh_interval=None,
        gzip_middleware_factory=None,
        reconnect_timeout=10.0,
        show_welcome_message=False,
        dark=None,
    )
    return outer


@contextlib.asynccontextmanager
async def _lifespan(_app: FastAPI) -> AsyncGenerator[None, None]:
    yield


def _mount_board(outer: FastAPI, page: Page) -> None:
    """Mount the browser board, which can report only to an open fleet because it has no keys."""

    @outer.get("/board")
    def _() -> Response:
        return RedirectResponse("/board/")

    @outer.get("/board/config.json")
    async def _() -> Response:
        fleet = None if page.settings.door is None else await _open_fleet(page)
        addresses = ("../v1", "../api") if fleet else (None, None)
        config = BoardConfig(fleet or "", *addresses, broker=page.settings.door is not None)
        return JSONResponse(asdict(config), headers={"cache-control": "no-store"})

    try:
        views = views_of(has_statement=page.settings.statement is not None)
        outer.mount("/board", BoardFiles(header_parts("..", views, "/board/")))
    except HushmoteError as e:
        log.warning("%s", e)


async def _open_fleet(page: Page) -> str | None:
    try:
        store_overview = await page.live.overview()
    except StoreError:
        return None
    names = [
        f.name
        for f in store_overview.fleets
        if not f.keyed and any(e.state == "current" for e in f.experiments)
    ]
    names.sort(key=lambda name: name.startswith(SIMULATED_PREFIX))  # simulated fleets last
    return next((name for name in names if page.settings.fleet in (None, name)), None)


def _mount_results(outer: FastAPI, page: Page) -> None:
    @outer.get("/api/{fleet}/{name}.json")
    async def _(fleet: str, name: str) -> Response:
        if page.settings.fleet not in (None, fleet):
            return _error_response(404, f"this page shows only fleet {page.settings.fleet}")
        try:
            body = await page.live.ask(("result", fleet, name), lambda reader: _result(reader, fleet, name))
        except UsageError as e:
            return _error_response(404, str(e))
        except HushmoteError as e:
            return _error_response(503, str(e))
        return Response(body, media_type="application/json", headers={"cache-control": "no-store"})


def _result(reader: StoreReader, fleet: str, name: str) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    return result_of(reader.store, fleet, name, now, live=True).to_json() + b"\n"


def _error_response(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status, headers={"cache-control": "no-store"})
