"""What the page's server writes to its log."""

import logging

import pytest

from hushmote.web.server import _is_relevant


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [(None, True), (ValueError("no"), True), (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), False)],
    ids=["no error", "error", "invalid UTF-8"],
)
def test_only_invalid_utf8_is_not_logged(error: Exception | None, is_logged: bool):
    exc_info = None if error is None else (type(error), error, None)
    record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "it failed", (), exc_info)
    assert _is_relevant(record) is is_logged
