"""How the aggregator logs: lines to read, or one JSON object a line; never a device id, payload or client."""

from __future__ import annotations

import datetime
import json
import logging
import os
import traceback


class JsonLines(logging.Formatter):
    """One object a line: time (UTC, RFC 3339), level, event, and what `extra={"fields": ...}` gives."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        return json.dumps(line | getattr(record, "fields", {}))


def set_up(*, as_json: bool) -> None:
    """Log to standard error at level info, in one of the two forms."""
    handler = logging.StreamHandler()
    handler.setFormatter(
        JsonLines() if as_json else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(handlers=[handler], level=logging.INFO)


def where(error: BaseException) -> str:
    """Return an unforeseen exception's type and the places it came through, innermost last.

    Without its text, which may hold what a device sent.
    """
    frames = traceback.extract_tb(error.__traceback__)
    places = " > ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in frames[-6:])
    return f"{type(error).__name__} at {places}"
