"""Logs and witnesses by other people: litewitness, Tessera, torchwood and Go's note and tlog packages.

    python rigs/log_programs.py

installs them with Go into .rig/log, in the versions below, for tests/fleet/witness/test_other_programs.py.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parents[1] / ".rig" / "log"
SOURCES = Path(__file__).parent / "log_programs"
_TORCHWOOD = "filippo.io/torchwood/cmd/{}@v0.6.1"


def missing() -> str:
    """Return why they cannot run here, or ""."""
    names = ("litewitness", "witnessctl", "log_programs")
    if not all((FOLDER / name).exists() for name in names):
        return "litewitness and Tessera are not installed: make log-programs"
    return "" if shutil.which("ssh-agent") else "ssh-agent, for litewitness, is not installed"


def install() -> None:
    """Install them; raise OSError or CalledProcessError if that fails."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"GOBIN": str(FOLDER.resolve())}
    for name in ("litewitness", "witnessctl"):
        subprocess.run(["go", "install", _TORCHWOOD.format(name)], env=environment, check=True)
    subprocess.run(["go", "build", "-o", str(FOLDER.resolve()), "."], cwd=SOURCES, check=True)


@contextlib.contextmanager
def litewitness(port: int, origin: str, log_key: str) -> Iterator[str]:
    """Run a litewitness of one log at this port of 127.0.0.1; yield its public key, as text."""
    with contextlib.ExitStack() as stack:
        # Not in the test's folder: the path of a socket has at most 107 characters.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="witness-")))
        for words in (("add-log", "-origin", origin), ("add-key", "-origin", origin, "-key", log_key)):
            subprocess.run(
                [FOLDER / "witnessctl", words[0], "-db", folder / "db", *words[1:]],
                check=True,
                capture_output=True,
            )
        key, agent = folder / "key", folder / "agent"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        listing = subprocess.run(["ssh-keygen", "-l", "-f", key], check=True, capture_output=True, text=True)
        _started(stack, ["ssh-agent", "-D", "-a", agent], r"SSH_AUTH_SOCK", subprocess.PIPE)
        environment = os.environ | {"SSH_AUTH_SOCK": str(agent)}
        subprocess.run(["ssh-add", "-q", key], env=environment, check=True)
        options = {
            "-name": "example.com/lite",
            "-db": folder / "db",
            "-ssh-agent": agent,
            "-key": listing.stdout.split()[1],
            "-listen": f"127.0.0.1:{port}",
        }
        command = [FOLDER / "litewitness", *(word for pair in options.items() for word in pair)]
        public = _started(stack, command, r"vkey=(\S+)", None)
        while not _is_open(port):
            time.sleep(0.02)
        yield public


def _is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def _started(stack: contextlib.ExitStack, command: list[object], pattern: str, output: int | None) -> str:
    """Start a program that ends with the stack; return the first group of a pattern once it prints it."""
    process = subprocess.Popen(
        list(map(str, command)), stdout=output, stderr=None if output else subprocess.PIPE, text=True
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    text = ""
    for line in process.stdout or process.stderr or ():
        text += line
        if match := re.search(pattern, text):
            return match[match.re.groups]
    raise OSError(f"{command[0]} ended: {text}")


if __name__ == "__main__":
    if not shutil.which("go"):
        sys.exit("Go is not installed; run `apt-get install golang`")
    install()
