"""Several aggregators on one store, behind one shared subscription: each report is counted by one of them."""

import contextlib
import socket
import threading

import pytest
from boards import experiment, payload_of
from running import running as threaded
from running import until
from served import add_fleet, served
from traffic import counted, crowd, listening, publish

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
    """An aggregator of the share `crew`, a process of its own."""
    arguments = ("--store", url, "--broker", f"mqtt://{broker.host}:{broker.port}", "--batch", "0.1s")
    crew = {"HUSHMOTE_CLIENT_ID": name, "HUSHMOTE_SHARE": "crew"}
    with served(*arguments, *more, environment=crew) as process:
        yield process


def running(store, broker, name, share):
    """An aggregator in a thread, subscribed; stopped at the end."""
    return threaded(store, broker, client_id=name, share=share, batch_s=0.1)


def accepted(process):
    """What a process that has ended says it accepted."""
    line = next(line for line in process.log().splitlines() if "reports accepted" in line)
    return int(line.split("stopped: ")[1].split()[0])


@pytest.mark.parametrize(
    "store_url", [pytest.param("sqlite", marks=pytest.mark.long), "postgresql"], indirect=True
)
def test_a_member_that_is_killed_and_returns_a_thousand_reports_later_has_lost_none(store_url, store):
    messages, counts = crowd(1200)
    first, second = messages[:200], messages[200:]
    with MosquittoBroker() as broker, member(store_url, broker, "a") as a:
        a.ready()
        with member(store_url, broker, "b") as b:
            b.ready()
            publish(broker, first)
            until(lambda: counted(store) == 200, lambda: counted(store))
            b.process.kill()
            b.wait()
        publish(broker, second)
        # The broker goes on giving b its share, which nobody counts for now.
        until(lambda: counted(store) >= 600, lambda: counted(store))
        assert counted(store) < 1200
        with member(store_url, broker, "b") as b:
            b.ready()
            until(lambda: counted(store) == 1200, lambda: counted(store))
            assert b.end() == 0
        assert a.end() == 0
        assert accepted(b) > 100
        assert accepted(a) > 100
    assert list(store.histogram("open", experiment().digest)) == counts
    # Whatever b had committed and not acknowledged came a second time.
    assert {reason for fleet in store.rejects().values() for reason in fleet} <= {"duplicate"}
    assert store.participation("open")["temp"].reports == 1200


def test_a_member_that_retires_leaves_nothing_behind_and_the_others_get_all(tmp_path, caplog):
    messages, counts = crowd(500)
    waiting, later = messages[:300], messages[300:]
    caplog.set_level("INFO", "hushmote")
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store, MosquittoBroker() as broker:
        add_fleet(store)

        def retire(share):
            # The broker sends 20 and then waits: between batches nothing is there, and more is to come.
            options = {"client_id": "b", "share": share, "batch_reports": 10, "retire": True}
            leaving = Aggregator(store, BrokerAddress("127.0.0.1", broker.port), Counting(**options))
            leaving.run()
            return leaving.counters.accepted

        with running(store, broker, "a", "crew"):
            with running(store, broker, "b", "crew"):
                pass
            publish(broker, waiting)
            with pytest.raises(BrokerRefused, match="correct share"):
                retire("other")
            assert retire("crew") > 50
            assert "nothing is left for b" in caplog.text
            assert counted(store) == 300
            publish(broker, later)
            until(lambda: counted(store) == 500, lambda: counted(store))
            with pytest.raises(BrokerRefused, match="keeps nothing for a client with the id b"):
                retire("crew")
        assert list(store.histogram("open", experiment().digest)) == counts
        # A connection that is closed with messages unread is reset, and acknowledgements on their way may be
        # lost with it: what they were for came again.
        assert set(store.rejects().get("open", {})) <= {"duplicate"}


def test_the_command_retires_a_member_and_ends(tmp_path):
    url = f"sqlite:///{tmp_path}/store.sqlite"
    with Store(url) as store, MosquittoBroker() as broker:
        add_fleet(store)
        with running(store, broker, "a", "crew"):
            with running(store, broker, "b", "crew"):
                pass
            publish(broker, crowd(100)[0])
            with member(url, broker, "b", "--retire") as b:
                assert b.wait() == 0
        assert accepted(b) > 20
        assert counted(store) == 100


def test_an_aggregator_that_joins_a_share_gives_up_the_whole_subscription_of_its_session(tmp_path):
    messages, counts = crowd(400)
    with Store(f"sqlite:///{tmp_path}/store.sqlite") as store, MosquittoBroker() as broker:
        add_fleet(store)
        with running(store, broker, "a", None):
            pass
        with running(store, broker, "a", "crew") as a, running(store, broker, "b", "crew") as b:
            publish(broker, messages)
            until(lambda: counted(store) == 400, lambda: counted(store))
        assert a.counters.accepted + b.counters.accepted == 400
        assert min(a.counters.accepted, b.counters.accepted) > 100
        assert list(store.histogram("open", experiment().digest)) == counts
        assert store.rejects() == {}  # a second copy would be a duplicate


def test_members_publish_experiments_once_each_and_do_not_answer_one_another(tmp_path):
    with (
        Store(f"sqlite:///{tmp_path}/store.sqlite") as store,
        MosquittoBroker() as broker,
        listening(broker) as heard,
    ):
        add_fleet(store)

        def come(number):
            until(lambda: sum(map(len, heard.values())) == number, heard)

        with running(store, broker, "a", "crew"), running(store, broker, "b", "crew"):
            come(2)
            # Either looks for new experiments every 2 s: adding one shows that they have looked since.
            new = store.add_experiment("open", payload_of(experiment(name="door")))
            come(4)
            store.add_experiment("open", payload_of(experiment(epsilon=500_000)))
            come(6)
    assert sum(map(len, heard.values())) == 6
    assert heard["hushmote/v1/open/experiment/door"] == [payload_of(new)] * 2


def test_a_broker_without_shared_subscriptions_is_refused_in_one_line(tmp_path):
    with (
        Store(f"sqlite:///{tmp_path}/store.sqlite") as store,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        add_fleet(store)

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                # What a 3.1.1 broker answers to MQTT 5: its own code 1.
                connection.sendall(b"\x20\x02\x00\x01")
                connection.recv(1000)

        threading.Thread(target=answer, daemon=True).start()
        address = BrokerAddress("127.0.0.1", server.getsockname()[1])
        aggregator = Aggregator(store, address, Counting(client_id="a", share="crew"))
        with pytest.raises(BrokerRefused, match=r"speaks only MQTT 3\.1\.1"):
            aggregator.run()
