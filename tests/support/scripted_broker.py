"""A broker that answers as a test says, in a thread; rigs/odd_broker.py has the habits of real ones."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from hushmote.server.wire import topics

CLOSE = b"close"
Answers = Callable[[int, bytes], bytes | None]


class ScriptedBroker:
    """A broker with just enough MQTT to misbehave.

    answers() returns bytes, CLOSE to close the connection, or None to keep pinging.
    """

    def __init__(self, answers: Answers) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._answers = answers
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                board = self._server.accept()[0]  # ends, with this thread, when the listener closes
                with contextlib.suppress(OSError):
                    self._talk(board)

    def _talk(self, board: socket.socket) -> None:
        stream = board.makefile("rb")
        while head := stream.read(2):
            size = head[1]
            if size > 0x7F:
                size += (stream.read(1)[0] - 1) * 0x80
            body = stream.read(size)
            answer = self._answers(head[0] & 0xF0, body)
            if answer is CLOSE:
                board.shutdown(socket.SHUT_RDWR)  # the stream holds the socket open
                return
            if answer is None:
                while True:
                    board.sendall(b"\xd0\x00")
                    time.sleep(0.1)
            board.sendall(answer)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # a thread in accept() does not see close() alone
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


CONNECT, PUBLISH, SUBSCRIBE = 0x10, 0x30, 0x80
PUBACK = b"\x40\x02"


def polite(kind: int, body: bytes) -> bytes:
    """Accept everything immediately."""
    if kind == CONNECT:
        return b"\x20\x02\x00\x00"
    if kind == SUBSCRIBE:
        return b"\x90\x03" + body[:2] + b"\x01"
    if kind == PUBLISH:
        at = 2 + int.from_bytes(body[:2], "big")
        return PUBACK + body[at : at + 2]
    return b"\xd0\x00" if kind == 0xC0 else b""


def forbidding(what: str, otherwise: Answers = polite) -> Answers:
    """Return the answers of a broker that does not permit something, such as "closes at the will"."""

    def answers(kind: int, body: bytes) -> bytes | None:
        has_will = kind == CONNECT and body[7] & 0x04
        is_status = kind == PUBLISH and b"/status/" in body
        if what == "closes at the will" and has_will:
            return CLOSE
        if what == "refuses the will" and has_will:
            return b"\x20\x02\x00\x05"
        if what == "closes at the status" and is_status:
            return CLOSE
        if what == "drops the status" and is_status:
            return b""
        if what == "closes at reports" and kind == PUBLISH and b"/report/" in body:
            return CLOSE
        return otherwise(kind, body)

    return answers


def message(fleet: str, name: str, payload: bytes) -> bytes:
    """Return the packet in which a broker delivers an experiment."""
    topic = topics.experiment_topic(fleet, name).encode()
    size = 2 + len(topic) + len(payload)
    return bytes((0x31, 0x80 | size & 127, size >> 7)) + len(topic).to_bytes(2, "big") + topic + payload
