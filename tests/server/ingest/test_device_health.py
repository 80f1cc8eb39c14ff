"""Boards' health, read from their retained status topics: only known words are accepted."""

import socket

import pytest
from boards import experiment
from running_aggregator import running, until
from traffic import counted_reports, crowd, publish, total

from hushmote.server.ingest.broker_url import BrokerAddress
from hushmote.server.ingest.device_health import BrokerUnreachable, DeviceHealth, clear, parse, read
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker, free_port


class TestParse:
    @pytest.mark.parametrize(
        ("payload", "health"),
        [
            (b"online", DeviceHealth(True, False, False, (), (), False)),
            (b"offline locked fault", DeviceHealth(False, True, True, (), (), False)),
            (b"online duplicate-id more", DeviceHealth(True, False, False, (), (), True, True)),
            (
                b"online spent:a refused:b_c-1 more",
                DeviceHealth(True, False, False, ("a",), ("b_c-1",), True),
            ),
        ],
        ids=["online", "offline with faults", "same id twice", "spent and refused"],
    )
    def test_reads_status_words(self, payload: bytes, health: DeviceHealth):
        assert parse(payload) == health

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"asleep",
            b"online ",
            b"online\n",
            b"online  locked",
            b"online LOCKED",
            b"online spent:",
            b"online spent:[red]x",
            b"online spent:" + b"a" * 33,
            b"online" + b" locked" * 8,
            b"\xff" * 10,
            b"online \xd9\xa3",
            b"x" * 1_000_000,
            b"online" + b" spent:" * 100_000,
        ],
        ids=lambda payload: ascii(payload[:20])[2:-1],
    )
    def test_rejects_anything_else(self, payload: bytes):
        assert parse(payload) is None


@pytest.fixture
def broker():
    with MosquittoBroker() as running:
        payloads = {
            "home/status/b1": b"online",
            "home/status/b2": b"offline locked refused:door_open",
            "home/status/b3": b"online spent:door_open",
            "home/status/b4": b"[red]online[/red]\x1b[2J",
            "other/status/b5": b"online locked",
            "home/status/UPPER": b"online",
        }
        publish(
            running, [(f"hushmote/v1/{topic}", payload) for topic, payload in payloads.items()], retain=True
        )
        yield running


class TestRead:
    def test_reads_a_fleet_from_a_real_broker(self, broker: MosquittoBroker):
        devices = read(BrokerAddress("127.0.0.1", broker.port), ["home"], quiet_s=2)
        assert sorted(devices) == [("home", f"b{i}") for i in (1, 2, 3, 4)]
        assert devices["home", "b4"] is None
        locked = devices["home", "b2"]
        assert locked is not None
        assert (locked.locked, locked.refused) == (True, ("door_open",))

    @pytest.mark.parametrize(("host", "text"), [("127.0.0.1", "127.0.0.1"), ("::1", r"\[::1\]")])
    def test_missing_broker_is_one_line(self, host, text):
        with pytest.raises(
            BrokerUnreachable, match=rf"no broker at {text}:\d+ \(Connection refused\); start one"
        ):
            read(BrokerAddress(host, free_port()), ["home"])

    def test_missing_cluster_is_not_waited_for(self):
        address = BrokerAddress("127.0.0.1", free_port(), others=(("127.0.0.1", free_port()),))
        with pytest.raises(
            BrokerUnreachable, match=r"no broker at 127.0.0.1:\d+ \(Connection refused\); start one"
        ):
            read(address, ["home"], pause_s=float("inf"))  # it would never end

    def test_silent_broker_is_one_line(self):
        with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(BrokerUnreachable) as refusal:
            read(BrokerAddress("127.0.0.1", silent.getsockname()[1]), ["home"], answer_s=0.5)
        assert "did not answer" in str(refusal.value)

    def test_refused_login_is_one_line_and_final(self, broker: MosquittoBroker):
        with MosquittoBroker(settings=("allow_anonymous false",)) as guarded:
            address = BrokerAddress("127.0.0.1", guarded.port, others=(("127.0.0.1", broker.port),))
            with pytest.raises(BrokerUnreachable, match=r"ended the connection: Not authorized$"):
                read(address, ["home"])

    def test_skips_a_server_that_accepts_no_login(self, broker: MosquittoBroker):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = BrokerAddress(
                "127.0.0.1", silent.getsockname()[1], others=(("127.0.0.1", broker.port),)
            )
            assert ("home", "b1") in read(address, ["home"], answer_s=0.5)

    def test_asks_another_server_if_no_board_is_known(self, broker: MosquittoBroker):
        with MosquittoBroker() as empty:
            address = BrokerAddress("127.0.0.1", empty.port, others=(("127.0.0.1", broker.port),))
            assert ("home", "b1") in read(address, ["home"], quiet_s=2)
            assert read(address, ["nobodys"], quiet_s=2) == {}


class TestSharedLogin:
    """The broker replaces client ids with the login's name, as `hushmote provision fleet` configures it."""

    def test_aggregators_reports_stay(self, store: Store):
        with MosquittoBroker(settings=("use_username_as_clientid true",)) as broker:

            def send(messages: list[tuple[str, bytes]], *, retain: bool = False):
                publish(broker, messages, retain=retain, set_up=lambda c: c.username_pw_set("boards"))

            def read_as(name: str):
                return read(BrokerAddress("127.0.0.1", broker.port, name), ["open"])

            send([("hushmote/v1/open/status/b1", b"online")], retain=True)
            messages, counts = crowd(60)
            with running(store, broker, username="agg") as aggregator:
                with pytest.raises(
                    BrokerUnreachable, match="keeps the reports of an aggregator with this login"
                ):
                    read_as("agg")
                send(messages[:20])
                until(lambda: total(aggregator) == 20, aggregator.counters)
            send(messages[20:])
            for _ in range(2):
                with pytest.raises(
                    BrokerUnreachable, match="keeps the reports of an aggregator with this login"
                ):
                    read_as("agg")
            for _ in range(2):  # it leaves no session of its own
                assert list(read_as("me")) == [("open", "b1")]
            with running(store, broker, username="agg"):
                until(lambda: counted_reports(store) == 60, lambda: f"{counted_reports(store)} reports")
            assert list(store.histogram("open", experiment().digest)) == counts


class TestClear:
    def test_clears_one_devices_status(self):
        with MosquittoBroker() as running:
            statuses = [(f"hushmote/v1/home/status/{device}", b"online") for device in ("gone", "stays")]
            publish(running, statuses, retain=True)
            address = BrokerAddress("127.0.0.1", running.port)
            clear(address, None, "home", "gone")  # pyright: ignore[reportArgumentType]
            assert list(read(address, ["home"], quiet_s=2)) == [("home", "stays")]
