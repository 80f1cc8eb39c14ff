"""Several aggregators on one store share a subscription, and exactly one counts each report."""

import contextlib
import socket
import threading

import pytest
from boards import experiment, payload_of
from running_aggregator import running as threaded
from running_aggregator import until
from serve_process import add_fleet, served
from traffic import counted_reports, crowd, listening, publish

from hushmote.server.aggregator import Aggregator, BrokerRefused, Counting
from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker


@pytest.fixture
def store(store_url):
    with Store(store_url) as store:
        add_fleet(store)
        yield store


@contextlib.contextmanager
def member(url, broker, name, *more):
    """Run an aggregator in the share `group` as a separate process."""
    arguments = ("--store", url, "--broker", f"mqtt://{broker.host}:{broker.port}", "--batch", "0.1s")
    environment = {"HUSHMOTE_CLIENT_ID": name, "HUSHMOTE_SHARE": "group"}
    with served(*arguments, *more, environment=environment) as process:
        yield process


def running(store, broker, name, share):
    """Run a subscribed aggregator in a thread; it is stopped at the end."""
    return threaded(store, broker, client_id=name, share=share, batch_s=0.1)


def accepted_count(process):
    """Return the number of reports that a finished process accepted, according to its log."""
    line = next(line for line in process.log().splitlines() if "reports accepted" in line)
    return int(line.split("stopped: ")[1].split()[0])


class TestRetire:
    def test_leaves_nothing_behind(self, tmp_path, caplog):
        messages, counts = crowd(500)
        waiting, later = messages[:300], messages[300:]
        caplog.set_level("INFO", "hushmote")
        with Store(f"sqlite:///{tmp_path}/store.sqlite") as store, MosquittoBroker() as broker:
            add_fleet(store)

            def retire(share):
                # The broker sends 20 and then waits, so between batches it may look empty.
                options = {"client_id": "b", "share": share, "batch_reports": 10, "retire": True}
                leaving = Aggregator(store, BrokerAddress("127.0.0.1", broker.port), Counting(**options))
                leaving.run()
                return leaving.counters.accepted

            with running(store, broker, "a", "group"):
                with running(store, broker, "b", "group"):
                    pass
                publish(broker, waiting)
                with pytest.raises(BrokerRefused, match="correct share"):
                    retire("other")
                assert retire("group") > 50
                assert "nothing is left for b" in caplog.text
                assert counted_reports(store) == 300
                publish(broker, later)
                until(lambda: counted_reports(store) == 500, lambda: counted_reports(store))
                with pytest.raises(BrokerRefused, match="keeps nothing for a client with the id b"):
                    retire("group")
            assert list(store.histogram("open", experiment().digest)) == counts
            # Closing a connection with unread messages resets it, and acknowledgements in flight may be lost:
            # their messages come again.
            assert set(store.rejects().get("open", {})) <= {"duplicate"}

    def test_command_ends_when_finished(self, tmp_path):
        url = f"sqlite:///{tmp_path}/store.sqlite"
        with Store(url) as store, MosquittoBroker() as broker:
            add_fleet(store)
            with running(store, broker, "a", "group"):
                with running(store, broker, "b", "group"):
                    pass
                publish(broker, crowd(100)[0])
                with member(url, broker, "b", "--retire") as b:
                    assert b.wait() == 0
            assert accepted_count(b) > 20
            assert counted_reports(store) == 100


class TestMember:
    @pytest.mark.parametrize(
        "store_url", [pytest.param("sqlite", marks=pytest.mark.long), "postgresql"], indirect=True
    )
    def test_killed_member_loses_no_report(self, store_url, store):
        messages, counts = crowd(1200)
        first, second = messages[:200], messages[200:]
        with MosquittoBroker() as broker, member(store_url, broker, "a") as a:
            a.ready()
            with member(store_url, broker, "b") as b:
                b.ready()
                publish(broker, first)
                until(lambda: counted_reports(store) == 200, lambda: counted_reports(store))
                b.process.kill()
                b.wait()
            publish(broker, second)
            # The broker still sends b its share, which is not counted for now.
            until(lambda: counted_reports(store) >= 600, lambda: counted_reports(store))
            assert counted_reports(store) < 1200
            with member(store_url, broker, "b") as b:
                b.ready()
                until(lambda: counted_reports(store) == 1200, lambda: counted_reports(store))
                assert b.end() == 0
            assert a.end() == 0
            assert accepted_count(b) > 100
            assert accepted_count(a) > 100
        assert list(store.histogram("open", experiment().digest)) == counts
        # Reports that b had committed but not acknowledged came a second time.
        assert {reason for fleet in store.rejects().values() for reason in fleet} <= {"duplicate"}
        assert store.participation("open")["temp"].reports == 1200

    def test_joining_gives_up_its_own_subscription(self, tmp_path):
        messages, counts = crowd(400)
        with Store(f"sqlite:///{tmp_path}/store.sqlite") as store, MosquittoBroker() as broker:
            add_fleet(store)
            with running(store, broker, "a", None):
                pass
            with running(store, broker, "a", "group") as a, running(store, broker, "b", "group") as b:
                publish(broker, messages)
                until(lambda: counted_reports(store) == 400, lambda: counted_reports(store))
            assert a.counters.accepted + b.counters.accepted == 400
            assert min(a.counters.accepted, b.counters.accepted) > 100
            assert list(store.histogram("open", experiment().digest)) == counts
            assert store.rejects() == {}  # a second copy would be a duplicate

    def test_publishes_experiments_once(self, tmp_path):
        with (
            Store(f"sqlite:///{tmp_path}/store.sqlite") as store,
            MosquittoBroker() as broker,
            listening(broker) as announcements,
        ):
            add_fleet(store)

            def await_count(number):
                until(lambda: sum(map(len, announcements.values())) == number, announcements)

            with running(store, broker, "a", "group"), running(store, broker, "b", "group"):
                await_count(2)
                # Both check for new experiments every 2 s, so adding one shows that they have checked since.
                new = store.add_experiment("open", payload_of(experiment(name="door")))
                await_count(4)
                store.add_experiment("open", payload_of(experiment(epsilon=500_000)))
                await_count(6)
        assert sum(map(len, announcements.values())) == 6
        assert announcements["hushmote/v1/open/experiment/door"] == [payload_of(new)] * 2

    def test_broker_without_shared_subscriptions_is_rejected(self, tmp_path):
        with (
            Store(f"sqlite:///{tmp_path}/store.sqlite") as store,
            socket.create_server(("127.0.0.1", 0)) as server,
        ):
            add_fleet(store)

            def answer():
                connection, _ = server.accept()
                with connection:
                    connection.recv(1000)
                    # A 3.1.1 broker answers MQTT 5 with its own code 1.
                    connection.sendall(b"\x20\x02\x00\x01")
                    connection.recv(1000)

            threading.Thread(target=answer, daemon=True).start()
            address = BrokerAddress("127.0.0.1", server.getsockname()[1])
            aggregator = Aggregator(store, address, Counting(client_id="a", share="group"))
            with pytest.raises(BrokerRefused, match=r"supports only MQTT 3\.1\.1"):
                aggregator.run()
