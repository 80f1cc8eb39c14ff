"""Runs the door until SIGTERM or Ctrl-C."""

import contextlib
import time

from ...server.service.bounded_http import BoundedServer
from ...server.service.process import Fault, announce_ready, catch_signals, notify
from .app import Door
from .publisher import PUBACK_S, ReportPublisher

MAX_CONNECTIONS = 512  # twice the reports in flight, so that no connection awaiting a PUBACK is closed
_TICK_S = 0.1


def run(publisher: ReportPublisher, door: Door, host: str, port: int) -> None:
    """Serve a door until SIGTERM or SIGINT; answer the requests in progress before returning.

    Raises:
        EndpointError: If the address cannot be used.
        HushmoteError: If the broker has not accepted the publisher even once.
    """
    with contextlib.ExitStack() as stack:
        # Bind the address first, so that an error stops us before anything else starts. The server also stops
        # before the publisher, so that pending requests still get their answers.
        server = BoundedServer(host, port, door, most_connections=MAX_CONNECTIONS, grace_s=PUBACK_S + 1)
        stop_signals = stack.enter_context(catch_signals())
        stack.enter_context(publisher)
        stack.enter_context(server)
        is_announced = False
        while not stop_signals:
            time.sleep(_TICK_S)
            if not publisher.running:
                raise Fault("the door's broker thread ended because of a bug in Hushmote: please report it")
            if not is_announced and publisher.refusal is not None:
                raise publisher.refusal
            if not is_announced and publisher.is_complete:
                announce_ready()
                is_announced = True
        notify(STOPPING=1)
