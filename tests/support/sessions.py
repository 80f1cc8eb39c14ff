"""An aggregator's broker session, operated step by step, that never acknowledges automatically."""

import contextlib
import time

import traffic
from boards import experiment
from running_aggregator import WAIT_S

from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.connection import BrokerConnection
from hushmote.server.ingest.link import Protocol
from hushmote.server.ingest.pacing import Pace
from hushmote.server.wire import report, topics

QUIET_S = 0.4


def publish(broker, count, start=0):
    """Publish one report from each of `count` boards at QoS 1, and wait for the broker's acknowledgements."""
    payload = report.encode(experiment(), 1, 0)
    boards = range(start, start + count)
    traffic.publish(broker, [(topics.report_topic("open", f"d{i}"), payload) for i in boards])


@contextlib.contextmanager
def subscribed(broker, *, max_in_flight=2000, protocol: Protocol = "5", share=None, keep_session=True):
    """Provide a subscribed link like the aggregator's that never acknowledges automatically."""
    link = BrokerConnection(
        protocol, "trap", BrokerAddress("host"), max_in_flight, Pace(), keep_session=keep_session
    )
    link.connect(broker.host, broker.port)
    turn(link, lambda: link.answer is not None)
    link.client.subscribe([(topics.report_filter(group=share), 1)])
    turn(link, lambda: link.subscribe_reason is not None)
    yield link
    if link.client.is_connected():
        # Wait until the broker has read everything: a new session with this name would discard the rest.
        link.subscribe_reason = None
        link.client.subscribe([(topics.report_filter(group=share), 1)])
        turn(link, lambda: link.subscribe_reason is not None)
        link.close()


def turn(link, condition, most=100_000):
    """Run a link's loop, which reads up to `most` messages, until the condition holds."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "no answer"
        link.turn(0.02, most)


def drain(link, wanted):
    """Read without acknowledging until `wanted` messages arrived and no more follow; return the count."""
    turn(link, lambda: len(link.messages) >= wanted)
    last, since = wanted, time.monotonic()
    while time.monotonic() - since < QUIET_S:
        link.turn(0.02, 100_000)
        if len(link.messages) != last:
            last, since = len(link.messages), time.monotonic()
    return last


def reports_kept_while_away(broker, count, wanted, protocol: Protocol = "5", *, keep_session=True):
    """Return how many of `count` reports a session receives that were published while it was offline."""
    with subscribed(broker, protocol=protocol, keep_session=keep_session):
        pass
    publish(broker, count)
    received_count, window = 0, 20 if protocol == "3.1.1" else wanted
    with subscribed(broker, protocol=protocol, keep_session=keep_session) as link:
        while count_read := drain(link, min(window, wanted - received_count)):
            received_count += count_read
            link.acknowledge()
    return received_count
