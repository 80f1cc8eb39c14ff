"""Serve a store's log over HTTP: the same files that `hushmote log export` writes, as the log is now."""

from __future__ import annotations

import asyncio

from starlette.responses import PlainTextResponse, Response

from ..log.tiles import CHECKPOINT
from ..store.log import StoredLog
from ..store.log_export import log_file
from ..store.store import Store, StoreError

PATH = "/log/"
_FULL_TILE_S = 31_536_000  # a full tile never changes


class LogFiles:
    """The files of a store's log; a store without a log has none.

    Args:
        url: The store's URL.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._stored: StoredLog | None = None

    async def answer(self, path: str) -> Response:
        """Return the answer to a request for a file, such as "checkpoint"."""
        try:
            data = await asyncio.to_thread(self._read, path)
        except StoreError:
            return PlainTextResponse("the log cannot be read now; try again later\n", 503)
        if data is None:
            return PlainTextResponse(
                f"the log has no such file; its newest state is {PATH}{CHECKPOINT}\n", 404
            )
        is_text, is_final = path == CHECKPOINT, path != CHECKPOINT and ".p/" not in path
        age = f"public, max-age={_FULL_TILE_S}, immutable" if is_final else "no-store"
        kind = "text/plain; charset=utf-8" if is_text else "application/octet-stream"
        headers = {
            "cache-control": age,
            "x-content-type-options": "nosniff",
            "access-control-allow-origin": "*",
        }
        return Response(data, media_type=kind, headers=headers)

    def _read(self, path: str) -> bytes | None:
        if self._stored is None:
            self._stored = StoredLog(Store(self._url, read_only=True))
        return log_file(self._stored, path)
