"""Reports of a crowd of devices, published to a real broker."""

import paho.mqtt.client as mqtt
import pytest
from boards import experiment, reports
from paho.mqtt.enums import CallbackAPIVersion
from running import WAIT_S

from hushmote.server.wire import report, topics
from hushmote.simulator.broker import find_mosquitto

needs_mosquitto = pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed")


def publish(broker, messages, *, retain=False):
    """Publish (topic, payload) messages with QoS 1; returns once the broker has acknowledged each."""
    publisher = mqtt.Client(CallbackAPIVersion.VERSION2)
    publisher.max_inflight_messages_set(200)
    publisher.connect(broker.host, broker.port)
    publisher.loop_start()
    infos = [publisher.publish(topic, payload, qos=1, retain=retain) for topic, payload in messages]
    for info in infos:
        info.wait_for_publish(WAIT_S)
        assert info.is_published()
    publisher.disconnect()
    publisher.loop_stop()


def crowd(count, exp=None, prefix="d"):
    """One report of each of count devices: messages, and the histogram they make."""
    exp = exp or experiment()
    messages = []
    counts = [0] * exp.code_count
    for i in range(count):
        payload = reports(f"{prefix}{i}", exp, 1)[0] if i < 20 else report.encode(exp, 1, i % exp.code_count)
        counts[int.from_bytes(report.decode(payload).code, "big")] += 1
        messages.append((topics.report_topic("open", f"{prefix}{i}"), payload))
    return messages, counts


def total(aggregator):
    return aggregator.counters.accepted + sum(aggregator.counters.rejected.values())
