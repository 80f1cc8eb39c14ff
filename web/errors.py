"""Pages for a wrong address and for a view that failed; they never contain a traceback."""

from collections.abc import Callable

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response
from nicegui import Client, ui
from nicegui import app as nicegui_app
from nicegui.page import page as nicegui_page

from .frame import FAULT, frame
from .page import Page

_NOT_HERE = "There is nothing at this address."


def register(page: Page) -> None:
    """Register the answers for missing pages and for failures."""

    def show_missing_page(request: Request, _error: Exception) -> Response:
        return not_found(page, request, _NOT_HERE)

    def failed(request: Request, _error: Exception) -> Response:  # the error is raised on and logged
        return _response(page, request, 500, "It did not work", FAULT)

    nicegui_app.exception_handlers[404] = show_missing_page
    nicegui_app.exception_handlers[Exception] = failed


def not_found(
    page: Page, request: Request, message: str, add_links: Callable[[], None] | None = None
) -> Response:
    """Return a response with status 404.

    Args:
        page: The page's settings and its live store.
        request: The request that asks for something that does not exist.
        message: One sentence that says what is missing.
        add_links: Adds elements below the message, such as links to what does exist; None for none.
    """
    if "text/html" not in request.headers.get("accept", ""):  # for a picture or a script, not a reader
        return PlainTextResponse(f"{message}\n", 404)
    return _response(page, request, 404, "Not found", message, add_links)


def _response(
    page: Page,
    request: Request,
    status: int,
    title: str,
    message: str,
    add_links: Callable[[], None] | None = None,
) -> Response:
    with Client(nicegui_page(""), request=request) as client:
        with frame(page, title):
            ui.label(message).props('role="alert"')
            if add_links is not None:
                add_links()
            ui.link("To the answers", "/")
        return client.build_response(request, status)
