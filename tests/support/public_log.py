"""A log of questions as a folder of files, honest or not, and a witness of it."""

import base64
import contextlib
import functools
import http.client
import json
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from log_witness import LOG, ORIGIN
from running_aggregator import WAIT_S

from hushmote.fleet.witness.rule import Rule
from hushmote.fleet.witness.state import StateFile
from hushmote.fleet.witness.witness import Witness
from hushmote.server.log import tiles
from hushmote.server.log.entry import experiment_entry
from hushmote.server.log.note import ED25519, Checkpoint, SecretKey
from hushmote.server.log.tree import Tree, leaf_hash

KEY = SecretKey("home.example/witness", b"\3" * 32, b"\4" * 32)
NOW = 1_800_000_000
HOUR_S, DAY_S = 3600, 86_400


def question(name: str = "temp", **fields: Any) -> bytes:
    """Return a question's JSON."""
    return json.dumps({"v": 1, "name": name, "type": "bool", **fields}, separators=(",", ":")).encode()


def version(name: str = "temp", fleet: str = "home", **fields: Any) -> bytes:
    """Return the entry of a version as an open fleet announces it."""
    return bytes(experiment_entry(fleet, name, question(name, **fields)))


def withdrawal(name: str = "temp", fleet: str = "home") -> bytes:
    """Return the entry of a withdrawal, as a keyed fleet announces it."""
    return bytes(experiment_entry(fleet, name, b"\0" + bytes(68)))


class PublicLog:
    """A log whose files are in a folder."""

    def __init__(self, folder: Path, entries: list[bytes] | None = None) -> None:
        self.folder = folder
        self.entries = list[bytes]()
        self.tree = Tree()
        self.append(*entries or [])

    def append(self, *entries: bytes) -> None:
        """Append entries, and write the files and a checkpoint."""
        since = self.tree.size
        for entry in entries:
            self.entries.append(entry)
            self.tree.append(leaf_hash(entry))
        for path, data in tiles.files(self.tree, self.entries[since // 256 * 256 :], since):
            self.write(path, data)
        self.write("checkpoint", str(self.checkpoint()).encode())

    def write(self, path: str, data: bytes) -> None:
        """Write one file."""
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_bytes(data)

    def checkpoint(self, size: int | None = None, secret: SecretKey = LOG) -> Checkpoint:
        """Return the signed tree head."""
        return secret.sign_tree(self.tree.size if size is None else size, self.tree.root(size))

    def request(self, old: int, size: int | None = None) -> bytes:
        """Return the body of add-checkpoint."""
        checkpoint = self.checkpoint(size)
        return body(old, self.tree.consistency(old, checkpoint.size), checkpoint)


def body(old: int, proof: list[bytes], checkpoint: Checkpoint | str) -> bytes:
    """Return the body of add-checkpoint."""
    lines = "".join(base64.b64encode(node).decode() + "\n" for node in proof)
    return f"old {old}\n{lines}\n{checkpoint}".encode()


def rule(fleets: tuple[str, ...] | None = ("home",), **limits: int) -> Rule:
    """Return a rule for this log; fleets None allows all."""
    return Rule(LOG.public(ED25519), None if fleets is None else frozenset(fleets), **limits)


def post(port: int, data: bytes) -> tuple[int, str]:
    """Send a request to the witness at a port; return the answer's status and text."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)) as connection:
        connection.request("POST", "/add-checkpoint", data)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@contextlib.contextmanager
def serving(
    folder: Path, handler: type[SimpleHTTPRequestHandler] = SimpleHTTPRequestHandler
) -> Iterator[str]:
    """Serve a folder over HTTP; yield its address."""
    quiet = type("Quiet", (handler,), {"log_message": lambda *_: None})
    serve = functools.partial(quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


RULE_FILE = f"""origin = "{ORIGIN}"
log = "{LOG.public(ED25519)}"
fleets = ["home"]
"""


class Clock:
    """A clock that a test sets; also the monotonic one."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def begin(log: PublicLog, file: StateFile, clock: Callable[[], float], **options: Any) -> Witness:
    """Begin a witness of a log, and accept what the log has."""
    chosen = options.pop("rule", rule())
    Witness.begin(KEY, chosen, file)
    witness = restart(log, file, clock, rule=chosen)
    if log.tree.size:
        witness.accept(log.tree.size)
    return witness


def restart(log: PublicLog, file: StateFile, clock: Callable[[], float], **options: Any) -> Witness:
    """Return a new witness from a state."""
    chosen, fetch = options.get("rule", rule()), options.get("fetch", tiles.reader(str(log.folder)))
    return Witness(KEY, chosen, fetch, file, clock=clock, monotonic=clock)
