"""The browser board as part of a web application; mount it at its folder, such as /board."""

import os

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from .files import STATIC, files

# index.html repeats this policy for servers that send no headers. The page's own policy forbids framing.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # revalidated each time; unchanged files are not sent again
}


class BoardFiles(StaticFiles):
    """The static files from files()."""

    def __init__(self) -> None:
        super().__init__(directory=STATIC)
        self._files = dict(files())
        self._files["."] = self._files["index.html"]

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        file = self._files.get(path)
        return (str(file), file.stat()) if file else ("", None)

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response
