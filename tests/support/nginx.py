"""A real nginx that serves a page under a path, as many servers do."""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from running_aggregator import WAIT_S

from hushmote.simulator.broker import free_port

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
PATH = "/telemetry/"

_CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location {path} {{
            proxy_pass {page}/;
            {settings}
        }}
        location / {{
            return 404;
        }}
        location = /frame {{
            default_type text/html;
            return 200 '<iframe src="http://127.0.0.1:{port}{path}" width="900" height="700"></iframe>';
        }}
    }}
}}
"""

SETTINGS = """
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection "upgrade";
"""


@contextlib.contextmanager
def proxied(
    page: str, folder: Path, path: str = PATH, settings: str = SETTINGS, port: int = 0
) -> Iterator[str]:
    """Run nginx in front of a page, and yield the page's URL there, such as http://127.0.0.1:1/telemetry/.

    All other paths have no content, except /frame, a document that shows the page in a frame.

    Args:
        page: The page's URL without a slash at the end.
        folder: A folder for nginx.
        path: The page's path there.
        settings: nginx's settings for it.
        port: The port; 0 for a free one.
    """
    assert NGINX is not None
    port = port or free_port()
    file = folder / "nginx.conf"
    file.write_text(_CONFIGURATION.format(folder=folder, port=port, path=path, page=page, settings=settings))
    process = subprocess.Popen([NGINX, "-c", str(file), "-e", str(folder / "error.log")])
    try:
        url = f"http://127.0.0.1:{port}{path}"
        _wait(url, process)
        yield url
    finally:
        process.terminate()
        process.wait(WAIT_S)


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until nginx accepts connections."""
    end = time.monotonic() + WAIT_S
    parts = urlsplit(url)
    while True:
        assert process.poll() is None, "nginx has stopped"
        with contextlib.suppress(OSError), socket.create_connection((parts.hostname, parts.port)):
            return
        assert time.monotonic() < end, "nginx does not answer"
        time.sleep(0.05)
