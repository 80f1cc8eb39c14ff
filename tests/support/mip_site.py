"""A local web server from which `mpremote mip install` takes packages."""

import contextlib
import functools
import hashlib
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from running_aggregator import HANGS_S

from hushmote.fleet.provisioning import umqtt


@contextlib.contextmanager
def serve_packages(folder: Path) -> Iterator[str]:
    """Serve a folder, and a package index with umqtt.simple at /index; yield the server's address."""
    content = umqtt.bundled()
    short = hashlib.sha256(content).hexdigest()[:8]
    for path, data in (
        (f"file/{short[:2]}/{short}", content),
        (
            f"package/6/umqtt.simple/{umqtt.VERSION}.json",
            json.dumps({"v": 1, "hashes": [["umqtt/simple.py", short]]}).encode(),
        ),
    ):
        target = folder / "index" / path
        target.parent.mkdir(parents=True)
        target.write_bytes(data)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def install(port: str, address: str) -> None:
    """Install /package of the server on a board with mpremote."""
    command = [sys.executable, "-m", "mpremote", "connect", port, "mip", "install"]
    command += ["--index", address + "/index", address + "/package/package.json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_S, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
