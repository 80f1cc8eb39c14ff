"""Clear experiments at real brokers, with a login of its own or with the running aggregator's."""

import datetime
import itertools

import pytest
from boards import FLEET_KEYS, KEY, SIGNING, MemoryStorage, ask_fleet, experiment, payload_of
from enumeration import POLICY
from fleet_broker import Visitor, context, make_fleet
from fleet_broker import running as fleet_broker
from running_aggregator import in_thread, until
from traffic import listening, publish, total

from hushmote.device import ldp_client
from hushmote.device.ldp_client import Client
from hushmote.server.aggregator import Aggregator, Counting
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.clear_experiment import Clearing, NotCleared, clear
from hushmote.server.ingest.device_health import BrokerUnreachable
from hushmote.server.wire import keys, report, topics
from hushmote.simulator.broker import EmbeddedBroker, MosquittoBroker, free_port

pytestmark = [pytest.mark.broker, pytest.mark.slow]
OLD = experiment(name="old")
OPEN, KEYED = (topics.experiment_topic(fleet, "old") for fleet in ("open", "keyed"))


@pytest.fixture(scope="module", params=[MosquittoBroker, EmbeddedBroker])
def broker(request):
    with request.param() as broker:
        yield broker


def clear_old(broker, fleet, key=SIGNING):
    return clear(BrokerAddress(broker.host, broker.port), None, fleet, "old", lambda: key)


class TestClear:
    def test_open_experiment_is_replaced_by_nothing(self, broker):
        publish(broker, [(OPEN, payload_of(OLD))], retain=True)
        assert clear_old(broker, "open") is Clearing.CLEARED
        assert clear_old(broker, "open") is Clearing.NOTHING

    def test_signed_one_is_replaced_by_accepted_withdrawal(self, broker):
        announced = keys.sign_experiment(SIGNING, KEYED, payload_of(OLD), 7)
        publish(broker, [(KEYED, announced)], retain=True)
        with pytest.raises(NotCleared, match="was signed with another key"):
            clear_old(broker, "keyed", bytes(31) + b"\x05")
        assert clear_old(broker, "keyed") is Clearing.CLEARED
        assert clear_old(broker, "keyed") is Clearing.WITHDRAWN
        with listening(broker) as payloads:
            until(lambda: KEYED in payloads, payloads)
        (withdrawal,) = set(payloads[KEYED])  # amqtt sends it twice
        storage, policy = MemoryStorage(), POLICY | {"experiments": ("old",)}
        ldp_client.provision(storage, consent=True)
        announce_key = FLEET_KEYS.announce_key
        board = Client(policy, storage, device_id="a", key=KEY, announce_key=announce_key, fleet="keyed")
        board.enroll(announced)
        assert board.report("old", 20.0) is not None
        board.withdraw("old", withdrawal)
        assert board.report("old", 20.0) is None
        publish(broker, [(KEYED, b"")], retain=True)

    def test_broker_that_does_not_answer_is_one_line(self):
        address = BrokerAddress("127.0.0.1", free_port())
        with pytest.raises(BrokerUnreachable, match="Connection refused"):
            clear(address, None, "open", "old", lambda: SIGNING)


class TestAggregatorsLogin:
    """mosquitto as `provision` configures it gives all clients with one certificate one session."""

    EXPERIMENT = experiment(name="free", budget={"rule": "unlimited"})

    @pytest.fixture
    def fleet(self, store, tmp_path):
        """Yield a broker with an experiment to clear, the aggregator, and a function that sends reports."""
        ask_fleet(store, "home", self.EXPERIMENT)
        folder = make_fleet(tmp_path / "fleet")
        pem = tmp_path / "d1.pem"
        pem.write_bytes(folder.issue_device("d1", datetime.datetime.now(datetime.UTC)).to_pem())
        tls = context(folder, folder.path / "aggregator/aggregator_1.pem")
        address = BrokerAddress("localhost", folder.fleet.port, tls=True)
        topic, numbers = topics.report_topic("home", "d1"), itertools.count(1)

        def aggregator():
            return Aggregator(store, address, Counting(batch_s=0.1), tls=tls)

        def send(count):
            board = Visitor(address.port, context(folder, pem))
            assert board.connected()
            for _ in range(count):
                board.publish(topic, report.encode(self.EXPERIMENT, next(numbers), 0))
            board.close()

        with fleet_broker(folder):
            # Before the aggregator's first connection, because this takes its session.
            operator = Visitor(address.port, tls)
            operator.publish(topics.experiment_topic("home", "old"), payload_of(OLD), retain=True)
            operator.close()
            yield lambda: clear(address, tls, "home", "old", lambda: SIGNING), aggregator, send

    def test_waiting_reports_survive(self, fleet):
        clear_retained, new_aggregator, send = fleet
        with in_thread(new_aggregator()):
            pass  # from here on the broker keeps reports for it
        send(30)
        assert clear_retained() is Clearing.CLEARED
        send(30)
        aggregator = new_aggregator()
        with in_thread(aggregator):
            until(lambda: aggregator.counters.accepted == 60, aggregator.counters)
        assert aggregator.counters.rejected == {}

    def test_running_aggregator_reconnects_and_counts_on(self, fleet):
        clear_retained, new_aggregator, send = fleet
        aggregator = new_aggregator()
        with in_thread(aggregator):
            assert aggregator.condition.unknown == 1
            send(10)
            assert clear_retained() is Clearing.CLEARED
            send(10)
            until(lambda: total(aggregator) >= 20, aggregator.counters)
            until(lambda: aggregator.condition.unknown == 0, aggregator.condition)
        assert aggregator.counters.accepted == 20
        assert set(aggregator.counters.rejected) <= {"duplicate"}
