"""Reports of a crowd of devices, published to a real broker."""

import paho.mqtt.client as mqtt
import pytest
from boards import experiment, reports
from paho.mqtt.enums import CallbackAPIVersion
from running import WAIT_S

from hushmote.server.wire import report, topics
from hushmote.simulator.broker import find_mosquitto

needs_mosquitto = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")


def publish(broker, messages, *, retain=False, port=None, set_up=None):
    """Publish (topic, payload) messages with QoS 1; returns once the broker has acknowledged each.

    port: another of the broker's. set_up: called with the client before it connects.
    """
    publisher = mqtt.Client(CallbackAPIVersion.VERSION2)
    publisher.max_inflight_messages_set(200)
    if set_up is not None:
        set_up(publisher)
    publisher.connect(broker.host, port or broker.port)
    publisher.loop_start()
    infos = [publisher.publish(topic, payload, qos=1, retain=retain) for topic, payload in messages]
    for info in infos:
        info.wait_for_publish(WAIT_S)
        assert info.is_published()
    publisher.disconnect()
    publisher.loop_stop()


def crowd(count, exp=None, prefix="d"):
    """One report of each of count devices, the first 20 of real boards: messages, and their histogram."""
    exp = exp or experiment()
    messages = []
    for i in range(count):
        payload = reports(f"{prefix}{i}", exp, 1)[0] if i < 20 else report.encode(exp, 1, i % exp.code_count)
        messages.append((topics.report_topic("open", f"{prefix}{i}"), payload))
    return messages, histogram(messages, exp)


def histogram(messages, exp=None):
    """How often each code is in messages."""
    counts = [0] * (exp or experiment()).code_count
    for _, payload in messages:
        counts[int.from_bytes(report.decode(payload).code, "big")] += 1
    return counts


def total(aggregator):
    return aggregator.counters.accepted + sum(aggregator.counters.rejected.values())
