"""Cases in which NATS servers lose an acknowledged report or acknowledge none, and the remedies."""

import asyncio
import contextlib
import shutil
import time

import nats
import nats.errors
import paho.mqtt.client as mqtt
import pytest
from chaos_nats import keep_for_a_time
from nats_sites import SiteServers
from paho.mqtt.enums import CallbackAPIVersion
from running_aggregator import running, until
from traffic import crowd, publish

from hushmote.server.wire.subjects import STREAM
from hushmote.simulator.nats_servers import NatsServers

pytestmark = pytest.mark.long

CLIENT = "trap"


@pytest.fixture
def single_server():
    with NatsServers(1) as servers:
        yield servers


def count(store, servers, last):
    """Run an aggregator until it has counted a new report and all earlier ones."""
    with running(store, servers, client_id=CLIENT) as aggregator:
        publish(servers, crowd(1, prefix=last)[0])
        until(
            lambda: f"{last}0" in {d for d, _, _ in store.accepted_numbers("open")},
            lambda: aggregator.counters,
        )
    # Check after it has stopped, because the store has a report slightly before the counters do.
    return aggregator.counters.accepted


def delete_consumer(servers):
    async def delete():
        async with await nats.connect(f"nats://{servers.host}:{servers.nodes[0].nats}") as client:
            assert await client.jsm().delete_consumer(STREAM, CLIENT)

    asyncio.run(delete())


async def lead(servers, node):
    """Return once this server leads the message stream and therefore delivers messages."""
    name = servers.nodes[node].name
    async with await nats.connect(f"nats://{servers.host}:{servers.nodes[0].nats}") as client:
        for _ in range(40):
            with contextlib.suppress(nats.errors.Error):
                cluster = (await client.jsm().stream_info(STREAM)).cluster
                if cluster is not None and cluster.leader == name:
                    return
                await client.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}", b"", timeout=5)
            await asyncio.sleep(0.5)
    raise AssertionError(f"{name} does not become the leader")


def acknowledged(servers, node, seconds):
    """Return whether this server acknowledges a report within this time."""
    publisher = mqtt.Client(CallbackAPIVersion.VERSION2)
    acknowledgements = []
    publisher.on_publish = lambda *_: acknowledgements.append(True)
    publisher.connect(servers.host_of(node), servers.nodes[node].mqtt)
    publisher.loop_start()
    ((topic, payload),) = crowd(1, prefix="alone")[0]
    publisher.publish(topic, payload, qos=1)  # kept, and sent once it is connected
    end = time.monotonic() + seconds
    while not acknowledgements and time.monotonic() < end:
        time.sleep(0.02)
    publisher.disconnect()
    publisher.loop_stop()
    return bool(acknowledgements)


class TestMessagesLost:
    def test_before_the_first_consumer_exists(self, store, single_server):
        publish(single_server, crowd(20, prefix="early")[0])
        assert count(store, single_server, "last") == 1

    def test_when_the_consumer_is_deleted(self, store, single_server):
        assert count(store, single_server, "first") == 1
        publish(single_server, crowd(20, prefix="kept")[0])
        assert count(store, single_server, "second") == 21
        publish(single_server, crowd(20, prefix="gone")[0])
        delete_consumer(single_server)
        assert count(store, single_server, "third") == 1

    @pytest.mark.parametrize(
        ("sync", "message_count"), [("2m", 0), ("always", 200)], ids=["syncs rarely", "syncs always"]
    )
    def test_in_a_power_cut_of_all_servers(self, store, needs_sites, sync, message_count):
        with SiteServers(sync=sync, mib=64) as servers:
            assert count(store, servers, "first") == 1
            publish(servers, crowd(200, prefix="told")[0])
            servers.cut_power(0, 1, 2)
            for node in range(3):
                servers.start_node(node)
            servers.wait()
            assert count(store, servers, "last") == message_count + 1


class TestMessagesKept:
    def test_unacknowledged_without_a_majority(self):
        with NatsServers(3) as servers:
            publish(servers, crowd(1)[0])
            servers.kill(1, 2)
            assert not acknowledged(servers, 0, 2.0)
            servers.start_node(1)
            servers.wait()
            publish(servers, crowd(1)[0])

    def test_when_an_idle_disk_is_replaced(self, store):
        with NatsServers(3) as servers:
            with running(store, servers, client_id=CLIENT) as aggregator:
                publish(servers, crowd(2_000, prefix="before")[0])
                # Not the exact count: if server 2's answers are lost, their messages come again.
                until(lambda: aggregator.counters.accepted == 2_000, lambda: aggregator.counters)
                servers.kill(2)
                shutil.rmtree(servers.store(2))
                servers.start_node(2)
                publish(servers, crowd(500, prefix="meanwhile")[0])
                servers.wait()
                until(lambda: aggregator.counters.accepted == 2_500, lambda: aggregator.counters)
            publish(servers, crowd(2_000, prefix="after")[0])
            asyncio.run(lead(servers, 2))
            assert count(store, servers, "last") == 2_001

    def test_by_a_stream_with_an_age_limit(self, store):
        with NatsServers(3) as servers:
            assert count(store, servers, "first") == 1
            asyncio.run(keep_for_a_time(servers))
            publish(servers, crowd(2_000, prefix="told")[0])
            servers.kill(2)
            shutil.rmtree(servers.store(2))
            servers.start_node(2)
            servers.wait()
            asyncio.run(lead(servers, 2))
            assert count(store, servers, "last") == 2_001
