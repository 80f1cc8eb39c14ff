"""A TCP proxy between a board and a broker."""

import contextlib
import socket
import threading


class Proxy:
    """A TCP proxy in front of a broker that can fall silent without closing connections.

    connects: the number of connections so far.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.connects = 0
        self.deaf = {"up": False, "down": False}  # up: to the broker
        self._sockets: list[socket.socket] = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                board = self._server.accept()[0]
                self.connects += 1
                broker = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [board, broker]
                for s in (board, broker):
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for way, source, sink in (("up", board, broker), ("down", broker, board)):
                    threading.Thread(target=self._pump, args=(way, source, sink), daemon=True).start()

    def _pump(self, way: str, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(4096):
                if not self.deaf[
                    way
                ]:  # data that arrives while it is deaf is lost, as in a half-open connection
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def silence(self, *ways: str) -> None:
        for way in self.deaf:
            self.deaf[way] = way in ways

    def close(self) -> None:
        for s in self._sockets:
            with contextlib.suppress(OSError):  # a thread in accept() or recv() does not see close() alone
                s.shutdown(socket.SHUT_RDWR)
            s.close()
