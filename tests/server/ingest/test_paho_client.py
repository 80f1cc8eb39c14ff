"""paho's client that reads ahead: the same messages in the same order, one acknowledgement each."""

import contextlib
import itertools
import socket
import struct
import time

from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode

from hushmote.server.ingest.paho_client import BatchClient


class Broker:
    """The broker's end of a socket, so that each byte's arrival is chosen here."""

    def __init__(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.got = []
        self.client = BatchClient(CallbackAPIVersion.VERSION2, client_id="agg", manual_ack=True)
        self.client.on_message = lambda _c, _d, m: self.got.append((m.topic, bytes(m.payload), m.mid))
        self.client.connect("127.0.0.1", listener.getsockname()[1])
        self.socket, _ = listener.accept()
        listener.close()
        self.socket.settimeout(10)
        self.socket.recv(1000)  # CONNECT
        self.socket.sendall(b"\x20\x02\x00\x00")
        self.turn()

    def turn(self):
        """What BrokerConnection.turn() does; returns the last code."""
        rc = self.client.loop(0.05)
        while rc == MQTTErrorCode.MQTT_ERR_SUCCESS and self.client.has_more:
            rc = self.client.loop_read()
        return rc

    def close(self):
        self.socket.close()
        self.client.loop(0)


def publish(topic, payload, mid):
    body = struct.pack("!H", len(topic)) + topic.encode() + struct.pack("!H", mid) + payload
    length = bytes((len(body),)) if len(body) < 128 else bytes((len(body) % 128 | 128, len(body) // 128))
    return b"\x32" + length + body


def test_messages_in_one_piece_or_in_single_bytes_arrive_alike():
    messages = [(f"a/{i}", bytes(range(i % 150)), i + 1) for i in range(160)]
    wire = b"".join(publish(*m) for m in messages)
    for step in (len(wire), 1000, 7, 1):
        broker = Broker()
        sent = wire if step > 1 else wire[:2000]
        for at in range(0, len(sent), step):
            broker.socket.sendall(sent[at : at + step])
            assert broker.turn() == MQTTErrorCode.MQTT_ERR_SUCCESS
        wanted = sum(end <= len(sent) for end in itertools.accumulate(len(publish(*m)) for m in messages))
        end = time.monotonic() + 20
        while len(broker.got) < wanted:
            assert time.monotonic() < end
            broker.turn()
        assert broker.got == messages[:wanted]
        broker.close()


def test_acknowledgements_are_whole_in_order_and_survive_a_socket_that_is_full():
    broker = Broker()
    own = broker.client.socket()
    assert isinstance(own, socket.socket)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    broker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    mids = list(range(1, 10_000))
    broker.client.acknowledge(mids)
    assert broker.client.want_write()
    wanted = b"".join(struct.pack("!BBH", 0x40, 2, mid) for mid in mids)
    got = bytearray()
    broker.socket.settimeout(0.05)
    end = time.monotonic() + 20
    while len(got) < len(wanted):
        assert time.monotonic() < end
        broker.client.loop(0.05)
        with contextlib.suppress(TimeoutError):
            got += broker.socket.recv(10_000)
    assert bytes(got) == wanted
    broker.close()


def test_a_lost_connection_is_noticed_after_what_was_read_ahead():
    broker = Broker()
    broker.socket.sendall(b"".join(publish("a", b"x", i) for i in range(1, 4)) + b"\x32\x05")
    broker.socket.close()
    while (rc := broker.turn()) == MQTTErrorCode.MQTT_ERR_SUCCESS:
        pass
    assert rc == MQTTErrorCode.MQTT_ERR_CONN_LOST
    assert [mid for _, _, mid in broker.got] == [1, 2, 3]
