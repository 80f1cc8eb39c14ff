"""paho's client with read-ahead: the same messages in the same order, with one acknowledgement each."""

import contextlib
import itertools
import socket
import struct
import time

import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

from hushmote.server.ingest.paho_client import BatchClient


class Broker:
    """The broker's end of a socket, so that the test decides when each byte arrives."""

    def __init__(self, version=MQTTProtocolVersion.MQTTv311, manual_ack=True):
        listener = socket.create_server(("127.0.0.1", 0))
        self.got = []
        callbacks = CallbackAPIVersion.VERSION2
        self.client = BatchClient(callbacks, client_id="agg", protocol=version, manual_ack=manual_ack)
        self.client.on_message = lambda _c, _d, m: self.got.append((m.topic, m.payload, m.mid))
        self.client.connect("127.0.0.1", listener.getsockname()[1])
        self.socket, _ = listener.accept()
        listener.close()
        self.socket.settimeout(10)
        self.socket.recv(1000)  # CONNECT
        five = version == MQTTProtocolVersion.MQTTv5
        self.socket.sendall(b"\x20\x03\x00\x00\x00" if five else b"\x20\x02\x00\x00")
        self.turn()

    def turn(self):
        """Read like BrokerConnection.turn(), and return the last code."""
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


class TestReadAhead:
    def test_messages_are_the_same_in_any_pieces(self):
        messages = [(f"a/{i}", bytes(range(i % 150)), i + 1) for i in range(160)]
        wire = b"".join(publish(*m) for m in messages)
        for step in (len(wire), 1000, 7, 1):
            broker = Broker()
            sent = wire if step > 1 else wire[:2000]
            for at in range(0, len(sent), step):
                broker.socket.sendall(sent[at : at + step])
                assert broker.turn() == MQTTErrorCode.MQTT_ERR_SUCCESS
            expected = sum(
                end <= len(sent) for end in itertools.accumulate(len(publish(*m)) for m in messages)
            )
            end = time.monotonic() + 20
            while len(broker.got) < expected:
                assert time.monotonic() < end
                broker.turn()
            assert broker.got == messages[:expected]
            broker.close()

    def test_lost_connection_is_noticed_after_the_last_byte(self):
        broker = Broker()
        broker.socket.sendall(b"".join(publish("a", b"x", i) for i in range(1, 4)) + b"\x32\x05")
        broker.socket.close()
        while (rc := broker.turn()) == MQTTErrorCode.MQTT_ERR_SUCCESS:
            pass
        assert rc == MQTTErrorCode.MQTT_ERR_CONN_LOST
        assert [mid for _, _, mid in broker.got] == [1, 2, 3]


class TestProperties:
    """MQTT 5's properties are skipped, whatever they are and however their length is encoded."""

    @staticmethod
    def message(properties, length, qos=1):
        body = b"\x00\x03a/b" + (b"\x00\x07" if qos else b"") + length + properties + b"code"
        size = len(body)
        header = bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14))
        return bytes((0x30 | qos << 1,)) + header + body

    @pytest.mark.parametrize(
        ("size", "length"),
        [
            (0, b"\x00"),
            (127, b"\x7f"),
            (128, b"\x80\x01"),
            (16_384, b"\x80\x80\x01"),
            (5, b"\x85\x80\x80\x00"),
        ],
    )
    @pytest.mark.parametrize("qos", [0, 1])
    def test_skips_properties_of_any_length(self, size, length, qos):
        broker = Broker(MQTTProtocolVersion.MQTTv5)
        broker.socket.sendall(self.message(b"\xef\xbb\xbf\xff\x26"[:size].ljust(size, b"?"), length, qos))
        end = time.monotonic() + 20
        while not broker.got:
            assert time.monotonic() < end
            assert broker.turn() == MQTTErrorCode.MQTT_ERR_SUCCESS
        assert broker.got == [("a/b", b"code", 7 if qos else 0)]
        broker.close()

    @pytest.mark.parametrize(
        "packet",
        [
            b"\x32\x01\x00",  # no topic
            b"\x32\x04\x00\x09ab",  # a topic longer than the packet
            b"\x32\x05\x00\x02ab\x00",  # half a packet id
            b"\x32\x06\x00\x02ab\x00\x07",  # no properties' length
            b"\x32\x08\x00\x02ab\x00\x07\x09x",  # properties longer than the packet
            b"\x32\x0b\x00\x02ab\x00\x07\xff\xff\xff\xff\x01",  # a length of five bytes
            b"\x34\x07\x00\x02ab\x00\x07\x00",  # QoS 2, which nobody requests
        ],
    )
    def test_ends_connection_at_malformed_packet(self, packet):
        broker = Broker(MQTTProtocolVersion.MQTTv5)
        broker.socket.sendall(packet)
        end = time.monotonic() + 20
        while (rc := broker.turn()) == MQTTErrorCode.MQTT_ERR_SUCCESS:
            assert time.monotonic() < end
        assert (rc, broker.got) == (MQTTErrorCode.MQTT_ERR_PROTOCOL, [])
        broker.close()


class TestAcknowledgement:
    def test_is_automatic_unless_manual(self):
        broker = Broker(manual_ack=False)
        broker.socket.sendall(publish("a", b"x", 258))
        broker.turn()
        assert broker.socket.recv(4) == b"\x40\x02\x01\x02"
        broker.close()

    def test_survives_a_full_socket(self):
        broker = Broker()
        broker_socket = broker.client.socket()
        assert isinstance(broker_socket, socket.socket)
        broker_socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        broker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        mids = list(range(1, 10_000))
        broker.client.acknowledge(mids)
        assert broker.client.want_write()
        expected = b"".join(struct.pack("!BBH", 0x40, 2, mid) for mid in mids)
        got = bytearray()
        broker.socket.settimeout(0.05)
        end = time.monotonic() + 20
        while len(got) < len(expected):
            assert time.monotonic() < end
            broker.client.loop(0.05)
            with contextlib.suppress(TimeoutError):
                got += broker.socket.recv(10_000)
        assert bytes(got) == expected
        broker.close()


class TestTopic:
    def test_is_empty_if_it_is_not_text(self):
        broker = Broker()
        broker.socket.sendall(b"\x32\x07\x00\x02\xff\xfe\x00\x01x")
        broker.turn()
        assert broker.got == [("", b"x", 1)]
        broker.close()
