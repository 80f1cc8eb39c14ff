"""A session of an aggregator at a broker, opened, left and read by hand; it acknowledges nothing itself."""

import contextlib
import time

import traffic
from boards import experiment
from running_aggregator import WAIT_S

from hushmote.server.ingest.connection import BrokerConnection
from hushmote.server.ingest.link import Protocol
from hushmote.server.ingest.pacing import Pace
from hushmote.server.wire import report, topics

QUIET_S = 0.4


def publish(broker, count, start=0):
    """One report of each of count boards, QoS 1; returns once the broker has acknowledged them."""
    payload = report.encode(experiment(), 1, 0)
    boards = range(start, start + count)
    traffic.publish(broker, [(topics.report_topic("open", f"d{i}"), payload) for i in boards])


@contextlib.contextmanager
def subscribed(broker, *, most=2000, protocol: Protocol = "5", share=None, keep_session=True):
    """Provide a link as the aggregator makes it, subscribed, that acknowledges nothing by itself."""
    one = BrokerConnection(protocol, "trap", (None, None), most, Pace(), keep_session=keep_session)
    one.connect(broker.host, broker.port)
    turn(one, lambda: one.answer is not None)
    one.client.subscribe(topics.report_filter(group=share), 1)
    turn(one, lambda: one.subscribe_reason is not None)
    yield one
    if one.client.is_connected():
        # Until the broker has read everything: another of this name would cut off what it has not.
        one.subscribe_reason = None
        one.client.subscribe(topics.report_filter(group=share), 1)
        turn(one, lambda: one.subscribe_reason is not None)
        one.close()


def turn(one, condition):
    """Let a link work until the condition holds."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "no answer"
        one.turn(0.02, 100_000)


def drain(one, wanted):
    """Read, acknowledging nothing, until so many came and then nothing for a while; returns how many came."""
    turn(one, lambda: len(one.messages) >= wanted)
    last, since = wanted, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        one.turn(0.02, 100_000)
        if len(one.messages) != last:
            last, since = len(one.messages), time.monotonic()
    return last


def kept_while_away(broker, count, wanted, protocol: Protocol = "5", *, keep_session=True):
    """How many of count reports a session gets that was away when they were published; waits for wanted."""
    with subscribed(broker, protocol=protocol, keep_session=keep_session):
        pass
    publish(broker, count)
    kept, window = 0, 20 if protocol == "3.1.1" else wanted
    with subscribed(broker, protocol=protocol, keep_session=keep_session) as one:
        while came := drain(one, min(window, wanted - kept)):
            kept += came
            one.acknowledge()
    return kept
