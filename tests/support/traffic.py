"""Publish a crowd of devices' reports to a real broker, read its retained messages, and fill a store."""

import asyncio
import contextlib

import nats
import paho.mqtt.client as mqtt
from boards import experiment, reports
from nats.js.errors import NotFoundError
from paho.mqtt.enums import CallbackAPIVersion
from running_aggregator import WAIT_S, until
from sqlalchemy import event

from hushmote.server.wire import report, topics
from hushmote.server.wire.subjects import STREAM


def publish(broker, messages, *, retain=False, port=None, set_up=None, properties=None):
    """Publish (topic, payload) messages at QoS 1, and wait until the broker has acknowledged each.

    port: another port of the broker. set_up: called with the client before it connects. properties: MQTT 5
    properties.
    """
    protocol = mqtt.MQTTv5 if properties else mqtt.MQTTv311
    publisher = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=protocol)
    publisher.max_inflight_messages_set(200)
    if set_up is not None:
        set_up(publisher)
    acknowledged = []
    publisher.on_publish = lambda *_: acknowledged.append(True)
    publisher.connect(broker.host, port or broker.port)
    publisher.loop_start()
    # Messages without a connection are sent on the next, since NATS servers close some during an election.
    sent = [publisher.publish(topic, payload, 1, retain, properties) for topic, payload in messages]
    until(lambda: len(acknowledged) == len(sent), lambda: f"{len(acknowledged)} of {len(sent)} acknowledged")
    publisher.disconnect()
    publisher.loop_stop()


def crowd(count, exp=None, prefix="d"):
    """Return a report from each of `count` devices, the first 20 being real boards, and the histogram."""
    exp = exp or experiment()
    messages = []
    for i in range(count):
        payload = reports(f"{prefix}{i}", exp, 1)[0] if i < 20 else report.encode(exp, 1, i % exp.code_count)
        messages.append((topics.report_topic("open", f"{prefix}{i}"), payload))
    return messages, histogram(messages, exp)


def histogram(messages, exp=None):
    """Return the count of each code in the messages."""
    counts = [0] * (exp or experiment()).code_count
    for _, payload in messages:
        counts[int.from_bytes(report.decode(payload).code, "big")] += 1
    return counts


def counted_reports(store):
    """Return a store's number of reports for experiment temp in fleet open."""
    return int(store.histogram("open", experiment().digest).sum())


def total(aggregator):
    return aggregator.counters.accepted + sum(aggregator.counters.rejected.values())


@contextlib.contextmanager
def listening(broker):
    """Collect messages on experiment topics, including retained ones, by topic, oldest first."""
    heard: dict[str, list[bytes]] = {}
    listener = mqtt.Client(CallbackAPIVersion.VERSION2)
    listener.on_message = lambda _c, _d, m: heard.setdefault(m.topic, []).append(bytes(m.payload))
    listener.connect(broker.host, broker.port)
    listener.subscribe("hushmote/v1/+/experiment/+", 1)
    listener.loop_start()
    try:
        yield heard
    finally:
        listener.disconnect()
        listener.loop_stop()


def full_disk(store):
    """Stop a store's file from growing until the caller raises the returned limit, "pages"."""
    with store.engine.connect() as connection:
        limit = {"pages": connection.exec_driver_sql("PRAGMA page_count").scalar()}
    event.listen(
        store.engine,
        "checkout",
        lambda c, _record, _proxy: c.execute(f"PRAGMA max_page_count={limit['pages']}").close(),
    )
    return limit


def forget(servers):
    """Delete earlier tests' reports and consumers from NATS servers."""

    async def forget():
        urls = [f"nats://{servers.host}:{node.nats}" for node in servers.nodes]
        async with await nats.connect(urls) as client:
            with contextlib.suppress(NotFoundError):
                jsm = client.jsm(timeout=WAIT_S)
                for consumer in await jsm.consumers_info(STREAM):
                    await jsm.delete_consumer(STREAM, consumer.name)
                await jsm.purge_stream(STREAM)

    asyncio.run(forget())
