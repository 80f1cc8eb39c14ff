"""A witness of a log that checks only consistency (C2SP tlog-witness), and answers as a test tells it to."""

import base64
import contextlib
import hashlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hushmote.server.ingest.log_witnesses import Witness
from hushmote.server.log.note import COSIGNATURE, ECDSA, ED25519, Checkpoint, SecretKey, valid_signatures
from hushmote.server.log.tree import ProofRefused, Tree, check_consistency

ORIGIN = "example.org/questions"
LOG = SecretKey(ORIGIN, bytes([1] * 32), bytes([2] * 32))


class TestWitness:
    """A witness's server; set `answer` to (status, text, headers) for an answer that it must give.

    Attributes:
        secret: Its key.
        size: The size of the tree that it signed last.
        checkpoint: The checkpoint that it signed last, which it shows.
        posts: The requests so far: old size and checkpoint.
    """

    __test__ = False

    def __init__(self, name="w1.example", number=10):
        self.secret = SecretKey(name, bytes([number] * 32), bytes([number + 1] * 32))
        self.size, self.root, self.posts = 0, Tree().root(), []
        self.checkpoint: Checkpoint | None = None
        self.answer: tuple[int, str, dict[str, str]] | None = None
        self._lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def line(self):
        """Return its line in a file of witnesses."""
        return f"{self.url} {self.secret.public(COSIGNATURE)} {self.secret.public(ECDSA)}\n"

    @property
    def witness(self):
        return Witness(self.url, (self.secret.public(COSIGNATURE), self.secret.public(ECDSA)))

    def respond(self, body):
        """Return the answer to a request: status, text and headers."""
        head, note = body.decode().split("\n\n", 1)
        old, *proof = head.splitlines()
        old, checkpoint = int(old.removeprefix("old ")), Checkpoint.parse(note)
        with self._lock:
            self.posts.append((old, checkpoint))
            if self.answer is not None:
                return self.answer
            if not valid_signatures(checkpoint, [LOG.public(ED25519)]):
                return 403, "this log has not signed it\n", {}
            if old != self.size or (old == checkpoint.size and self.root != checkpoint.root):
                return 409, f"{self.size}\n", {"Content-Type": "text/x.tlog.size"}
            hashes = [base64.b64decode(text) for text in proof]
            try:
                check_consistency(old, self.root, checkpoint.size, checkpoint.root, hashes)
            except ProofRefused as e:
                return 422, f"{e}\n", {}
            self.size, self.root, self.checkpoint = checkpoint.size, checkpoint.root, checkpoint
            lines = self.secret.cosign(checkpoint.text, int(time.time()))
            return 200, "".join(map(str, lines)), {}

    def __enter__(self):
        witness = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                good = self.path == f"/{hashlib.sha256(ORIGIN.encode()).hexdigest()}/checkpoint"
                if good and witness.checkpoint:
                    self.answer(200, str(witness.checkpoint), {})
                else:
                    self.answer(404, "nothing is signed yet\n", {})

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                good = self.path == "/add-checkpoint"
                self.answer(*witness.respond(body) if good else (404, "no such path\n", {}))

            def answer(self, status, text, headers):
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()
