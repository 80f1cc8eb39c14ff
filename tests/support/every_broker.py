"""The brokers from which an aggregator counts, and the reports that it rejects on each of them."""

from collections.abc import Iterator

import pytest
from boards import experiment
from traffic import crowd

from hushmote.server.ingest.nats import consumer as nats_consumer
from hushmote.server.wire import report
from hushmote.simulator.broker import MosquittoBroker
from hushmote.simulator.nats_servers import NatsServers

AggregatorsBroker = MosquittoBroker | NatsServers

GOOD = crowd(1)[0][0]
# Messages that no store counts, as (topic, payload), and the reasons.
REJECTED = (
    (("hushmote/v1/open/report/a", b""), "malformed"),
    (("hushmote/v1/open/report/a", bytes(1000)), "malformed"),
    (("hushmote/v1/open/report/A", b"x"), "unknown device"),
    (("hushmote/v1/away/report/a", GOOD[1]), "unknown fleet"),
    (
        ("hushmote/v1/open/report/a", report.encode(experiment(name="other"), 1, 0)),
        "unknown digest",
    ),
    (GOOD, "duplicate"),  # GOOD is sent first
)


@pytest.fixture(params=["mqtt", "nats"])
def every_broker(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AggregatorsBroker]:
    """Provide a running broker of each kind."""
    # Unacknowledged messages come again because they were returned, not because time has passed.
    monkeypatch.setattr(nats_consumer, "ACK_WAIT_S", 3600.0)
    with NatsServers(1) if request.param == "nats" else MosquittoBroker() as broker:
        yield broker
