"""The door as a process: it serves until SIGTERM or Ctrl-C."""

import contextlib
import time

from ...server.service.bounded_http import BoundedServer
from ...server.service.process import Fault, announce_ready, catch_signals, notify
from .app import Door
from .publisher import PUBACK_S, ReportPublisher

MOST_CONNECTIONS = 512  # twice the reports under way, so that nothing that waits for a PUBACK must make room
_TICK_S = 0.1


def run(publisher: ReportPublisher, door: Door, host: str, port: int) -> None:
    """Serve a door until SIGTERM or SIGINT; requests under way are answered before it ends.

    Raises EndpointError, and the error of a publisher that the broker never accepted.
    """
    with contextlib.ExitStack() as stack:
        # Start it first, so that it fails before anything began; end it first, so that answers still come.
        server = BoundedServer(host, port, door, most_connections=MOST_CONNECTIONS, grace_s=PUBACK_S + 1)
        stop_signals = stack.enter_context(catch_signals())
        stack.enter_context(publisher)
        stack.enter_context(server)
        is_announced = False
        while not stop_signals:
            time.sleep(_TICK_S)
            if not publisher.running:
                raise Fault(
                    "the door's thread at the broker has ended by a fault in Hushmote: please report it"
                )
            if not is_announced and publisher.refusal is not None:
                raise publisher.refusal
            if not is_announced and publisher.ready.is_set():
                announce_ready()
                is_announced = True
        notify(STOPPING=1)
