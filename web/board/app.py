"""The browser board as part of the page, with its header; mount it at /board."""

import os

from starlette.responses import HTMLResponse, Response
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

# The page's header needs these files.
_HEAD = """<link rel="stylesheet" href="../static/frame.css">
<script src="../static/page.js" defer></script>
</head>"""


class BoardFiles(StaticFiles):
    """The static files from files(); the document has the page's header.

    Args:
        header: The contents of the header as HTML.
    """

    def __init__(self, header: str) -> None:
        super().__init__(directory=STATIC)
        self._files = dict(files())
        document = self._files["index.html"].read_text(encoding="utf-8")
        document = document.replace("</head>", _HEAD, 1)
        self._document = document.replace(
            "<body>", f'<body>\n<header class="frame-header">\n{header}</header>', 1
        )

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        file = self._files.get(path)
        return (str(file), file.stat()) if file else ("", None)

    async def get_response(self, path: str, scope: Scope) -> Response:
        if path in (".", "index.html") and scope["method"] in ("GET", "HEAD"):
            response = HTMLResponse(self._document)
        else:
            response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response
