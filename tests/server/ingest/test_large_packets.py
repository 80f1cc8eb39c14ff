"""A 250 MB message at a broker that accepts it, and an aggregator with too little memory for it."""

import socket
import struct

import pytest
from boards import experiment
from running_aggregator import running, until
from serve_process import add_fleet, get, served
from traffic import crowd, publish

from hushmote.server.aggregator import CLIENT_ID
from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker, free_port

HUGE_BYTES = 250_000_000
SPARE_BYTES = 96 << 20
# A broker that accepts any size and writes nothing to disk.
UNLIMITED = ("max_packet_size 268435455", "persistence false")

# `hushmote serve` with a limit on the memory that it may use after startup.
LIMITED = f"""
import re, resource, sys
import hushmote.cli.serve.run, hushmote.server.service.metrics
from hushmote.cli.main import main
held = int(re.search(r"VmData:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (held + {SPARE_BYTES},) * 2)
sys.argv[0] = "hushmote"
main()
"""


def publish_huge(broker, topic, size):
    """Publish a payload of zeros at QoS 1 in pieces, so that this process never holds it in memory."""
    with socket.create_connection((broker.host, broker.port)) as s:
        s.sendall(b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02hu")
        assert s.recv(4) == b"\x20\x02\x00\x00"
        head = struct.pack("!H", len(topic)) + topic.encode() + b"\x00\x01"
        length, rest = b"", len(head) + size
        while rest or not length:
            length += bytes((rest % 128 | (128 if rest > 127 else 0),))
            rest //= 128
        s.sendall(b"\x32" + length + head)
        piece = bytes(1 << 20)
        while size:
            s.sendall(piece[:size])
            size -= min(size, len(piece))
        assert s.recv(4) == b"\x40\x02\x00\x01"


class TestLargePacket:
    @pytest.mark.parametrize("protocol", ["5", "3.1.1"])
    def test_larger_than_memory_does_not_stop_counting(self, tmp_path, protocol):
        before, _ = crowd(20)
        after, _ = crowd(20, prefix="after")
        later, _ = crowd(20, prefix="later")
        url = f"sqlite:///{tmp_path}/store.sqlite"
        port = free_port()
        with MosquittoBroker(settings=UNLIMITED) as broker, Store(url) as store:
            add_fleet(store)
            counted_reports = lambda: store.histogram("open", experiment().digest).sum()  # noqa: E731
            arguments = ["--store", url, "--broker", f"mqtt://127.0.0.1:{broker.port}"]
            spoken = {"HUSHMOTE_PROTOCOL": protocol}
            with running(store, broker, client_id=CLIENT_ID, protocol=protocol):
                pass  # its session is there
            publish(broker, before)
            publish_huge(broker, "hushmote/v1/open/report/huge", HUGE_BYTES)
            publish(broker, after)
            with served(
                *arguments, "--http", f"127.0.0.1:{port}", script=LIMITED, environment=spoken
            ) as process:
                process.ready()
                until(lambda: counted_reports() == 40 or process.process.poll() is not None, process.log)
                publish(broker, later)
                until(lambda: counted_reports() == 60 or process.process.poll() is not None, process.log)
                assert get(f"http://127.0.0.1:{port}/healthz")[0] == 200
                assert process.end() == 0
            # With MQTT 5 the broker drops it as too large; with 3.1.1 it arrives and is malformed.
            assert store.rejects() == ({} if protocol == "5" else {"open": {"malformed": 1}})
