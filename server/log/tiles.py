"""A log as static files that any web server can serve, or a folder hold (C2SP tlog-tiles).

    checkpoint                  the newest signed checkpoint
    tile/LEVEL/NUMBER           256 hashes of subtrees of 256**LEVEL entries
    tile/entries/NUMBER         256 entries, each after its length in 2 bytes
    tile/.../NUMBER.p/WIDTH     the same, while it has only 1 to 255

A number above 999 is a path of groups of three digits: x001/x234/067.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import request_reason
from .entry import MAX_BYTES
from .note import NoteRefused
from .tree import Tree

WIDTH = 256  # of a complete tile
CHECKPOINT = "checkpoint"
_MAX_FILE_BYTES = WIDTH * (2 + MAX_BYTES)
TIMEOUT_S = 30.0
_TILE = re.compile(r"tile/([0-7]|entries)/((?:x[0-9]{3}/){0,3}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?")


Fetch = Callable[[str], bytes]
"""Returns a file's bytes, given its path in the log; raises NoteRefused if it cannot be read."""


def tile_path(level: int | str, number: int, width: int = WIDTH) -> str:
    """Return the path of a tile; the level of bundles of entries is "entries"."""
    groups = [f"{number % 1000:03}"]
    while number := number // 1000:
        groups.insert(0, f"x{number % 1000:03}")
    path = f"tile/{level}/{'/'.join(groups)}"
    return path if width == WIDTH else f"{path}.p/{width}"


def files(tree: Tree, entries: Sequence[bytes], since: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of the files of a tree that an export of an earlier size does not have.

    Args:
        tree: The tree.
        entries: Its entries from number `since` rounded down to a multiple of 256.
        since: The size of the earlier tree.
    """
    base = since // WIDTH * WIDTH
    for start, width in _spans(tree.size, since):
        bundle = encode_bundle(entries[start - base : start - base + width])
        yield tile_path("entries", start // WIDTH, width), bundle
    level, size, old = 0, tree.size, since
    while size:
        for start, width in _spans(size, old):
            hashes = tree.complete(8 * level, start, start + width)
            yield tile_path(level, start // WIDTH, width), b"".join(hashes)
        level, size, old = level + 1, size // WIDTH, old // WIDTH


def file_of(path: str, tree: Tree, entries: Callable[[int, int], Sequence[bytes]]) -> bytes | None:
    """Return the content of one file of a tree, or of one at an earlier size.

    Args:
        path: The file's path.
        tree: The tree.
        entries: Returns the entries from one number up to another, exclusive.

    Returns:
        The content; None if there is no such file.
    """
    match = _TILE.fullmatch(path)
    if match is None:
        return None
    number = int(match[2].replace("x", "").replace("/", ""))
    width = int(match[3] or WIDTH)
    if path != tile_path(match[1], number, width):
        return None
    start, end = number * WIDTH, number * WIDTH + width
    if match[1] == "entries":
        return encode_bundle(entries(start, end)) if end <= tree.size else None
    hashes = tree.complete(8 * int(match[1]), start, end)
    return b"".join(hashes) if len(hashes) == width else None


def read_entries(fetch: Fetch, since: int, size: int) -> Iterator[bytes]:
    """Yield the entries from number `since` to the end of a tree of this size.

    Raises:
        NoteRefused: If a file is missing or malformed.
    """
    for start, width in _spans(size, since):
        path = tile_path("entries", start // WIDTH, width)
        try:
            bundle = decode_bundle(fetch(path))
        except NoteRefused:
            if width == WIDTH:
                raise
            bundle = _beginning(fetch, start // WIDTH, width)
            if not bundle:
                raise
        if len(bundle) != width:
            raise NoteRefused(f"{path} has {len(bundle)} entries instead of {width}")
        yield from bundle[max(0, since - start) :]


def _beginning(fetch: Fetch, number: int, width: int) -> list[bytes]:
    """Return the first entries of a complete bundle, which may have replaced its parts, or []."""
    with contextlib.suppress(NoteRefused):
        return decode_bundle(fetch(tile_path("entries", number)))[:width]
    return []


def encode_bundle(entries: Sequence[bytes]) -> bytes:
    """Return entries as the bytes of a bundle."""
    return b"".join(len(entry).to_bytes(2, "big") + entry for entry in entries)


def decode_bundle(data: bytes) -> list[bytes]:
    """Return the entries of a bundle.

    Raises:
        NoteRefused: If it ends within an entry, or has more than 256.
    """
    entries, at = [], 0
    while at < len(data):
        if len(entries) == WIDTH:  # millions of entries fit into a file of this size
            raise NoteRefused(f"a bundle has more than {WIDTH} entries")
        end = at + 2 + int.from_bytes(data[at : at + 2], "big")
        if end > len(data) or at + 2 > len(data):
            raise NoteRefused("a bundle of entries ends within an entry")
        entries.append(data[at + 2 : end])
        at = end
    return entries


def reader(source: str) -> Fetch:
    """Return the function that reads a log's files from a folder or below an http or https address."""
    if source.startswith(("http://", "https://")):
        return lambda path: _download(source.rstrip("/") + "/" + path)
    return lambda path: _read(Path(source) / path)


def _spans(size: int, since: int) -> Iterator[tuple[int, int]]:
    """Yield the start and width of each tile that a row of this size has and a shorter one does not."""
    for start in range(since // WIDTH * WIDTH if since < size else size, size, WIDTH):
        yield start, min(WIDTH, size - start)


def open_url(request: urllib.request.Request, timeout_s: float) -> Any:
    """Open an http or https address, without redirects to other hosts or schemes.

    A server that sends its head too slowly is cut off when the time is over: urllib's limit is for each read.

    Raises:
        OSError: If the server does not answer, refuses, or redirects elsewhere.
        http.client.HTTPException: If the answer is malformed.
        ValueError: If the address is malformed.
    """
    connections = list[http.client.HTTPConnection]()
    is_over = threading.Event()

    def cut_off() -> None:
        is_over.set()
        for connection in connections:
            with contextlib.suppress(OSError, AttributeError):  # it has no socket yet, or no longer
                connection.sock.shutdown(socket.SHUT_RDWR)

    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _KeptConnections(connections),
        _SameHost(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    timer = threading.Timer(timeout_s, cut_off)
    timer.daemon = True
    timer.start()
    try:
        response = opener.open(request, timeout=timeout_s)
    except (OSError, http.client.HTTPException):
        if is_over.is_set():
            raise TimeoutError(f"it took more than {timeout_s:g} s") from None
        raise
    finally:
        timer.cancel()
    if is_over.is_set():  # what arrived looks complete
        response.close()
        raise TimeoutError(f"it took more than {timeout_s:g} s")
    return response


class _KeptConnections(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Appends each connection that it creates to a list."""

    def __init__(self, connections: list[http.client.HTTPConnection]) -> None:
        super().__init__()
        self._connections = connections

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._open(http.client.HTTPConnection, req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self._open(http.client.HTTPSConnection, req)

    def _open(self, kind: Any, req: urllib.request.Request) -> http.client.HTTPResponse:
        def create(*arguments: Any, **options: Any) -> http.client.HTTPConnection:
            self._connections.append(kind(*arguments, **options))
            return self._connections[-1]

        return self.do_open(create, req)


class _SameHost(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        is_upgrade = (old.scheme, new.scheme, old.netloc) == ("http", "https", new.netloc) and not old.port
        if not is_upgrade and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            raise OSError(f"it redirects to {newurl[:200]}: give that address if it is right")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def read_body(response: Any, most: int, end: float) -> bytes:
    """Return an answer's first bytes, at most `most`.

    Raises:
        OSError: If they have not arrived at a monotonic time; urllib's limit is for each read.
        http.client.HTTPException: If the answer is malformed.
    """
    data = bytearray()
    while len(data) < most and (piece := response.read1(min(2**16, most - len(data)))):
        data += piece
        if time.monotonic() > end:
            raise TimeoutError(f"it took more than {TIMEOUT_S:g} s")
    return bytes(data)


def _download(url: str) -> bytes:
    end = time.monotonic() + TIMEOUT_S
    try:
        with open_url(urllib.request.Request(url), TIMEOUT_S) as response:
            data = read_body(response, _MAX_FILE_BYTES + 1, end)
            if response.length and len(data) <= _MAX_FILE_BYTES:
                raise NoteRefused(f"{url} cannot be read: it ended early")
    except (OSError, http.client.HTTPException, ValueError) as e:
        raise NoteRefused(f"{url} cannot be read: {request_reason(e)}") from None
    if len(data) > _MAX_FILE_BYTES:
        raise NoteRefused(f"{url} is longer than any file of a log")
    return data


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as e:
        raise NoteRefused(
            f"{path} cannot be read: {e.strerror}; give the folder of an export, or an address with https://"
        ) from None
    if len(data) > _MAX_FILE_BYTES:
        raise NoteRefused(f"{path} is longer than any file of a log")
    return data
