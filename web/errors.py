"""Pages for an unknown address and for a view that failed; they never contain a traceback."""

from collections.abc import Callable

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response
from nicegui import Client, ui
from nicegui import app as nicegui_app
from nicegui.page import page as nicegui_page

from .frame import FAULT, frame
from .page import Page

_NOT_FOUND = "There is nothing at this address."


def register(page: Page) -> None:
    """Register the responses for missing pages and for failures."""

    def show_missing_page(request: Request, _error: Exception) -> Response:
        return not_found(page, request, _NOT_FOUND)

    def show_failure(request: Request, _error: Exception) -> Response:  # NiceGUI logs the error
        return _response(page, request, 500, "Something went wrong", FAULT)

    nicegui_app.exception_handlers[404] = show_missing_page
    nicegui_app.exception_handlers[Exception] = show_failure


def not_found(
    page: Page, request: Request, message: str, add_links: Callable[[], object] = object
) -> Response:
    """Return a response with status 404.

    Args:
        page: The page's settings and its live store.
        request: The request for something that does not exist.
        message: A sentence that names the missing thing.
        add_links: Adds elements below the message, such as links to existing pages.
    """
    if "text/html" not in request.headers.get("accept", ""):  # a request for a picture or a script
        return PlainTextResponse(f"{message}\n", 404)
    return _response(page, request, 404, "Not found", message, add_links)


def _response(
    page: Page,
    request: Request,
    status: int,
    title: str,
    message: str,
    add_links: Callable[[], object] = object,
) -> Response:
    with Client(nicegui_page(""), request=request) as client:
        with frame(page, title):
            ui.label(message).props('role="alert"')
            add_links()
            ui.link("To the answers", "/")
        return client.build_response(request, status)
