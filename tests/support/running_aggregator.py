"""Run an aggregator in a thread, and wait for its effects."""

import contextlib
import dataclasses
import threading
import time

from hushmote.server.aggregator import Aggregator, Counting
from hushmote.server.ingest.broker_url import BrokerAddress, parse_nats_url
from hushmote.simulator.nats_servers import NatsServers

WAIT_S = 240.0
HANGS_S = 600.0  # a step that takes longer is considered hung


def until(condition, what):
    """Poll until the condition holds; `what` is the error message, or a function that returns it."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(0.02)


def address_of(broker):
    """Return an aggregator's address of a broker, which may also be NatsServers."""
    if isinstance(broker, NatsServers):
        return parse_nats_url(broker.url)
    return BrokerAddress(broker.host, broker.port)


@contextlib.contextmanager
def running(store, broker, **options):
    """Run a subscribed aggregator in a thread and stop it at the end; broker may also be NatsServers."""
    address = {name: options.pop(name) for name in ("username", "password", "prefix") if name in options}
    hooks = {
        name: options.pop(name)
        for name in ("tls", "on_ready", "on_commit", "retained_messages", "clear_options", "again_s")
        if name in options
    }
    usual = {"client_id": f"agg-{time.monotonic_ns()}", "batch_s": 0.2, "protocol": broker.protocol}
    aggregator = Aggregator(
        store, dataclasses.replace(address_of(broker), **address), Counting(**usual | options), **hooks
    )
    with in_thread(aggregator):
        yield aggregator


@contextlib.contextmanager
def in_thread(aggregator):
    """Run an aggregator in a thread until the end of the block, which begins once it is subscribed."""
    thread = threading.Thread(target=aggregator.run, daemon=True)
    thread.start()
    try:
        assert aggregator.ready.wait(WAIT_S)
        yield
    finally:
        aggregator.stop()
        thread.join(WAIT_S)
        assert not thread.is_alive()
