"""The aggregator on real NATS servers: nothing lost, nothing counted twice, whatever dies or goes away."""

import pytest
from boards import experiment, payload_of
from running import running, until
from traffic import crowd, publish, total

from hushmote.server.store import Store
from hushmote.simulator.nats_servers import NatsServers


@pytest.fixture
def store(tmp_path):
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store:
        store.add_fleet("open", keyed=False)
        store.add_experiment("open", payload_of(experiment()))
        yield store


@pytest.fixture(scope="module")
def one():
    with NatsServers(1) as servers:
        yield servers


def counted(store):
    return int(store.histogram("open", experiment().digest).sum())


def test_reports_are_counted_once_and_what_comes_while_nobody_is_there_is_kept(store, one):
    messages, counts = crowd(300)
    with running(store, one, client_id="kept") as aggregator:
        publish(one, messages[:100] + messages[:50])
        until(lambda: total(aggregator) == 150, lambda: aggregator.counters)
        assert aggregator.counters.rejected == {"duplicate": 50}
        assert aggregator.counters.batches < 20
    publish(one, messages[100:])
    with running(store, one, client_id="kept") as aggregator:
        until(lambda: total(aggregator) == 200, lambda: aggregator.counters)
    assert list(store.histogram("open", experiment().digest)) == counts
    assert store.rejects() == {"open": {"duplicate": 50}}
