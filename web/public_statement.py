"""The owner's public statement about the questions, which anyone can read without a token."""

import datetime
import json
from typing import Any

from starlette.responses import HTMLResponse, Response

from ..fleet.statement import fleet_facts, page
from ..server.answers.store_reader import StoreReader
from ..server.log.tiles import CHECKPOINT
from ..server.service.log_files import PATH as PATH_OF_LOG
from ..server.service.log_files import LogFiles
from ..server.store.store import StoreError
from ..server.words.label import Phrase
from .live import LiveStore

PATH = "/what-is-asked"
_DOWNLOAD = "statement"  # the download's query


def is_asked_for(scope: Any) -> bool:
    """Return whether an ASGI request reads the statement; this compares the raw path, not the decoded one."""
    is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
    return is_read and scope.get("raw_path") == PATH.encode()


def is_log(scope: Any) -> bool:
    """Return whether an ASGI request reads a file of the log."""
    return (
        scope["type"] == "http"
        and scope["method"] in ("GET", "HEAD")
        and scope["path"].startswith(PATH_OF_LOG)
    )


class PublicStatement:
    """A public statement, as document.read_public() returns it, and its differences from the store.

    Attributes:
        log: The files of the store's log, which anyone may read as well.
    """

    def __init__(self, document: dict[str, Any], live: LiveStore, log: LogFiles) -> None:
        self.log = log
        self._document = document
        self._live = live

    async def answer(self, query: str) -> Response:
        """Return the page, or the statement as a file to download, depending on the URL's query."""
        if query == _DOWNLOAD:
            name = f"hushmote-{self._document['statement']['fleet']}-statement.json"
            headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
            return Response(
                json.dumps(self._document, indent=2) + "\n", media_type="application/json", headers=headers
            )
        has_log = (await self.log.answer(CHECKPOINT)).status_code == 200
        log = f"{PATH_OF_LOG.removeprefix('/')}{CHECKPOINT}" if has_log else ""
        text = page.html(self._document, await self._changes(), f"?{_DOWNLOAD}", log)
        return HTMLResponse(text, headers={"cache-control": "no-store"})

    async def _changes(self) -> str:
        """Return a sentence about questions that have changed since the statement, or ""."""
        words = page.words_of(self._document["statement"])
        before, day = self._document["statement"]["asked"], datetime.datetime.now(datetime.UTC).date()

        def digests(reader: StoreReader) -> dict[str, str]:
            versions = reader.store.experiments(self._document["statement"]["fleet"])
            return {v.experiment.name: fleet_facts.digest_of(v) for v in versions if v.published_on(day)}

        try:
            now = await self._live.ask(("asked", day), digests)
        except StoreError:
            return words.texts["unknown"]
        changed = sorted(name for name in before | now if before.get(name) != now.get(name))
        return words.write(Phrase.of("changed", names=tuple(changed))) if changed else ""
