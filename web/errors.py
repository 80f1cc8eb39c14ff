"""What a reader sees in place of a view: a wrong address, a view that failed. Never a trace."""

from fastapi import Request
from fastapi.responses import PlainTextResponse, Response
from nicegui import Client, ui
from nicegui import app as nicegui_app
from nicegui.page import page as nicegui_page

from .frame import FAULT, frame
from .page import Page

_NOT_HERE = "There is nothing at this address."


def register(page: Page) -> None:
    """Answer for what is not there and for what fails."""

    def shown(request: Request, status: int, title: str, words: str) -> Response:
        with Client(nicegui_page(""), request=request) as client:
            with frame(page, title):
                ui.label(words).props('role="alert"')
                ui.link("To the answers", "/")
            return client.build_response(request, status)

    def not_found(request: Request, _error: Exception) -> Response:
        if "text/html" not in request.headers.get("accept", ""):  # a picture or a script, not a reader
            return PlainTextResponse(f"{_NOT_HERE}\n", 404)
        return shown(request, 404, "Not found", _NOT_HERE)

    def failed(request: Request, _error: Exception) -> Response:  # which is logged as it is raised on
        return shown(request, 500, "It did not work", FAULT)

    nicegui_app.exception_handlers[404] = not_found
    nicegui_app.exception_handlers[Exception] = failed
