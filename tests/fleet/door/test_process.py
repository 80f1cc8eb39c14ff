"""The door's process: it announces that it is ready, ends at SIGTERM, and names a broker that refuses it."""

import signal

import pytest

from hushmote.fleet.door import process
from hushmote.fleet.door.app import door_application
from hushmote.fleet.door.publisher import ReportPublisher
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.session import BrokerRefused
from hushmote.simulator.broker import MosquittoBroker


def run(broker: MosquittoBroker) -> None:
    publisher = ReportPublisher(BrokerAddress("127.0.0.1", broker.port), fleets=["open"])
    process.run(publisher, door_application(publisher), "127.0.0.1", 0)


def test_announces_once_and_ends_at_sigterm(monkeypatch: pytest.MonkeyPatch):
    announced: list[bool] = []

    def announce() -> None:
        announced.append(True)
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(process, "announce_ready", announce)
    with MosquittoBroker() as broker:
        run(broker)
    assert announced == [True]


def test_raises_the_refusal_of_a_broker():
    with MosquittoBroker(settings=("allow_anonymous false",)) as broker, pytest.raises(BrokerRefused):
        run(broker)
