"""A log exported as tiles is read back, in one step or in many."""

import contextlib
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from hushmote.server.log import tiles
from hushmote.server.log.note import NoteRefused
from hushmote.server.log.tiles import (
    decode_bundle,
    encode_bundle,
    file_of,
    files,
    read_entries,
    reader,
    tile_path,
)
from hushmote.server.log.tree import Tree, leaf_hash

ENTRIES = [b"%d" % i * (i % 5) for i in range(70_000)]


def tree_of(size):
    return Tree(map(leaf_hash, ENTRIES[:size]))


def write(folder, tree, since=0):
    """Write what an export adds to one of an earlier size."""
    base = since // 256 * 256
    for path, data in files(tree, ENTRIES[base : tree.size], since):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


class TestTiles:
    def test_paths_of_the_specification(self):
        assert tile_path(0, 1234067) == "tile/0/x001/x234/067"
        assert tile_path("entries", 0, 5) == "tile/entries/000.p/5"

    def test_files_of_the_specification(self):
        paths = [path for path, _ in files(tree_of(70_000), ENTRIES)]
        assert sum("tile/0/" in path and ".p" not in path for path in paths) == 273
        assert {path for path in paths if ".p" in path and "entries" not in path} == {
            "tile/0/273.p/112",
            "tile/1/001.p/17",
            "tile/2/000.p/1",
        }
        assert sum("tile/1/" in path and ".p" not in path for path in paths) == 1
        assert {path for path, _ in files(tree_of(256), ENTRIES)} == {
            "tile/entries/000",
            "tile/0/000",
            "tile/1/000.p/1",
        }

    @pytest.mark.parametrize("steps", [[1000], [1, 255, 256, 257, 600], [300, 300, 512]])
    def test_what_is_written_is_read(self, tmp_path, steps):
        since = 0
        for size in steps:
            write(tmp_path, tree_of(size), since)
            assert list(read_entries(reader(str(tmp_path)), 0, size)) == ENTRIES[:size]
            assert list(read_entries(reader(str(tmp_path)), since, size)) == ENTRIES[since:size]
            since = size

    def test_an_export_in_steps_has_the_same_full_tiles(self, tmp_path):
        once, twice = tmp_path / "once", tmp_path / "twice"
        write(once, tree_of(70_000))
        write(twice, tree_of(66_000))
        write(twice, tree_of(70_000), 66_000)
        for path in once.rglob("*"):
            if path.is_file():
                assert path.read_bytes() == (twice / path.relative_to(once)).read_bytes()

    def test_refuses_damaged_files(self, tmp_path):
        write(tmp_path, tree_of(300))
        bundle = tmp_path / "tile/entries/001.p/44"
        bundle.write_bytes(bundle.read_bytes()[:-1])
        with pytest.raises(NoteRefused, match="within an entry"):
            list(read_entries(reader(str(tmp_path)), 0, 300))
        bundle.unlink()
        with pytest.raises(NoteRefused, match="cannot be read: No such file"):
            list(read_entries(reader(str(tmp_path)), 0, 300))
        bundle.write_bytes(encode_bundle(ENTRIES[:43]))
        with pytest.raises(NoteRefused, match="has 43 entries instead of 44"):
            list(read_entries(reader(str(tmp_path)), 0, 300))

    def test_a_bundle_that_ends_early(self):
        for data in (b"\0", b"\0\2a", b"\0\0\1"):
            with pytest.raises(NoteRefused):
                decode_bundle(data)

    def test_a_bundle_of_too_many_entries(self):
        assert len(decode_bundle(bytes(2 * 256))) == 256
        with pytest.raises(NoteRefused, match="more than 256 entries"):
            decode_bundle(bytes(2 * 256) + b"\xff")


class TestFileOf:
    def test_is_what_an_export_writes(self):
        for size in (1, 255, 256, 257, 600, 70_000):
            tree = tree_of(size)
            for path, data in files(tree, ENTRIES[:size]):
                assert file_of(path, tree, lambda start, end: ENTRIES[start:end]) == data

    def test_has_the_files_of_earlier_sizes(self):
        tree = tree_of(600)
        for path, data in files(tree_of(300), ENTRIES[:300]):
            assert file_of(path, tree, lambda start, end: ENTRIES[start:end]) == data

    def test_has_nothing_else(self):
        tree = tree_of(600)
        names = "tile/entries/003 tile/entries/002.p/89 tile/0/002 tile/0/000.p/0 tile/0/000.p/01"
        others = (
            "tile/0/000.p/256 tile/0/x000/000 tile/0/0 tile/8/000 checkpoint ../x tile/1/000.p/3 tile/00/000"
        )
        for path in (*names.split(), *others.split(), "", "tile/0/000\n"):
            assert file_of(path, tree, lambda start, end: ENTRIES[start:end]) is None, path


class TestHostileServer:
    @pytest.mark.parametrize("scheme", ["http", "https", "ftp", "file"])
    def test_cannot_redirect_to_another_server(self, scheme):
        with socket.create_server(("127.0.0.1", 0)) as inner:
            inner.setblocking(False)
            target = f"{scheme}://127.0.0.1:{inner.getsockname()[1]}/admin"
            with (
                serving(301, target) as url,
                pytest.raises(NoteRefused, match=f"redirects to {scheme}://|is not allowed"),
            ):
                reader(url)("checkpoint")
            with pytest.raises(BlockingIOError):
                inner.accept()

    def test_can_redirect_within_itself(self):
        with serving(301, "/log/checkpoint") as url:
            assert reader(url)("checkpoint") == b"moved"

    def test_dripping_head_is_cut_off(self, monkeypatch):
        monkeypatch.setattr(tiles, "TIMEOUT_S", 0.5)
        ended = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as server:

            def drip():
                client, _ = server.accept()
                with client:
                    client.sendall(b"HTTP/1.1 200 OK\r\n")
                    while not ended.wait(0.1):
                        try:
                            client.sendall(b"X")
                        except OSError:
                            return

            thread = threading.Thread(target=drip)
            thread.start()
            start = time.monotonic()
            try:
                with pytest.raises(NoteRefused, match=r"it took more than 0.5 s"):
                    reader(f"http://127.0.0.1:{server.getsockname()[1]}")("checkpoint")
                assert time.monotonic() - start < 5
            finally:
                ended.set()
                thread.join()


@contextlib.contextmanager
def serving(status, location):
    """Serve a redirect for the checkpoint, and a file at /log/checkpoint; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            is_moved = self.path == "/log/checkpoint"
            self.send_response(200 if is_moved else status)
            self.send_header("Location", location)
            self.end_headers()
            self.wfile.write(b"moved" * is_moved)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
