"""A broker's cost per board connection: CPU time for the TLS handshake, and memory while connected.

    python benchmarks/handshakes.py [--quick] [rows | retained]

rows: up to 2,000 connections to mosquitto and to 1 and 3 NATS servers; this takes minutes. retained: the
memory for an offline board's status. --quick: 100 connections.

Each client behaves like a board that has just started: TCP, TLS 1.2 with P-256 certificates on both sides and
without session resumption, CONNECT with a last will, SUBSCRIBE to one retained experiment, and a retained
status at QoS 1. Then it sends pings, and reports at QoS 1 that the broker queues for an absent aggregator: in
a session (mosquitto) or for a durable pull consumer (NATS, streams on all servers). Eight boards work at a
time. The CPU time is the total over all servers. hello: a board that leaves after the broker's first answer,
so that the broker's signature is wasted. Loopback only.

Writes benchmarks/results/handshakes.json.
"""

import asyncio
import datetime
import os
import ssl
import tempfile
from contextlib import suppress
from itertools import product
from pathlib import Path

from brokers import brokers
from cryptography.hazmat.primitives.serialization import Encoding
from results_file import Options, memory_mib, run

from hushmote.device.async_reporter import _packet, _text
from hushmote.fleet.provisioning import authority
from hushmote.server.ingest.broker_url import parse_nats_url
from hushmote.server.wire import topics

FLEET = "home"
EXPERIMENT = b'{"v":1,"name":"room_temp"}'.ljust(420)  # as long as a signed tree experiment
EXPERIMENT_TOPIC = f"hushmote/v1/{FLEET}/experiment/room_temp".encode()
_AT_ONCE = 8
BROKERS = ("mosquitto", "nats 1", "nats 3")


def cpu_s(pids: list[int]) -> float:
    """Return the CPU seconds used by these processes' threads so far."""
    threads = [path for pid in pids for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in threads) / 1e9


def memory(pids: list[int]) -> float:
    """Return these processes' resident private memory in bytes."""
    return 2**20 * sum(memory_mib(pid, "RssAnon") for pid in pids)


class Certificates:
    """A broker's and a board's certificate, as files, from one authority, and a client's TLS context."""

    def __init__(self, folder: Path) -> None:
        now = datetime.datetime.now(datetime.UTC)
        root = authority.new_authority(FLEET, now)
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(root.certificate.public_bytes(Encoding.PEM))
        self.broker = folder / "broker.pem"
        self.broker.write_bytes(authority.issue_broker(root, ["127.0.0.1"], now).to_pem())
        self.board = folder / "board.pem"
        self.board.write_bytes(authority.issue_client(root, "k3f9", now, 30).to_pem())

    def context(self) -> ssl.SSLContext:
        """Return a context like a board's: TLS 1.2, which MicroPython's mbedTLS supports."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(self.ca)
        context.load_cert_chain(self.board)
        return context


def broker(kind: str, certificates: Certificates | None):
    """Return a context manager with a broker for many boards, with TLS if certificates are given."""
    files = () if certificates is None else (certificates.ca, certificates.broker)
    return brokers(kind, ("max_connections -1",), *files)


class Board:
    """One client's connection."""

    def __init__(self, number: int, flags: int = 0x2E) -> None:
        self.name = f"board{number:06}".encode()
        self._flags = flags  # CONNECT flags: clean session, last will
        self.status = f"hushmote/v1/{FLEET}/status/".encode() + self.name
        self.topic = f"hushmote/v1/{FLEET}/report/".encode() + self.name

    async def connect(self, port: int, context: ssl.SSLContext | None) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        body = _text(b"MQTT") + bytes((4, self._flags)) + (3600).to_bytes(2, "big") + _text(self.name)
        await self._exchange(_packet(0x10, body + _text(self.status) + _text(b"offline")), 0x20)

    async def _exchange(self, data: bytes, answer: int) -> None:
        self.writer.write(data)
        while True:
            head = (await self.reader.readexactly(1))[0]
            size, shift, more = 0, 0, True
            while more:
                byte = (await self.reader.readexactly(1))[0]
                size, shift, more = size | (byte & 127) << shift, shift + 7, byte >= 128
            body = await self.reader.readexactly(size)
            if head & 0xF6 == 0x32:  # a message at QoS 1
                at = 2 + int.from_bytes(body[:2], "big")
                self.writer.write(_packet(0x40, body[at : at + 2]))
            if head & 0xF0 == answer:
                return

    async def subscribe(self, qos: int, topic: bytes = EXPERIMENT_TOPIC) -> None:
        await self._exchange(_packet(0x82, b"\0\1" + _text(topic) + bytes([qos])), 0x90)

    async def publish(self, topic: bytes, content: bytes, *, retain: bool = True) -> None:
        await self._exchange(_packet(0x32 | retain, _text(topic) + b"\0\2" + content), 0x40)

    async def online(self) -> None:
        await self.publish(self.status, b"online")

    async def reports(self) -> None:
        for _ in range(5):
            await self.publish(self.topic, bytes(19), retain=False)

    async def ping(self) -> None:
        for _ in range(5):
            await self._exchange(b"\xc0\0", 0xD0)

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError, ssl.SSLError):
            await self.writer.wait_closed()


async def for_each(boards: list[Board], step) -> None:
    """Call a function for each board, _AT_ONCE boards at a time."""
    waiting = iter(boards)

    async def run_next() -> None:
        for board in waiting:
            await step(board)

    await asyncio.gather(*(run_next() for _ in range(_AT_ONCE)))


async def keep_reports(where: int | str, context: ssl.SSLContext | None) -> None:
    """Make the broker keep reports for an absent aggregator.

    Args:
        where: An MQTT port, or a NATS URL.
        context: TLS with the aggregator's certificate, or None.
    """
    if isinstance(where, int):
        aggregator = Board(-1, 0x2C)
        await aggregator.connect(where, context)
        await aggregator.subscribe(1, topics.report_filter().encode())
        await aggregator.close()
        return
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    host, port, _ = parse_nats_url(where).servers[0]
    client = await nats.connect(f"nats://{host}:{port}")
    consumer = ConsumerConfig(durable_name="aggregator", ack_policy=AckPolicy.EXPLICIT)
    consumer.filter_subject = "$MQTT.msgs.hushmote.v1.*.report.*"
    await client.jetstream().add_consumer("$MQTT_msgs", consumer)
    await client.close()


async def measure(
    where: int | str, ports: list[int], pids: list[int], context, count: int, qos: int
) -> dict[str, float]:
    """Return the CPU µs of each step of a connection, and the memory, in bytes, after each step."""
    first = Board(count)
    await first.connect(ports[0], context)
    await first.publish(EXPERIMENT_TOPIC, EXPERIMENT)
    await keep_reports(where, context)
    boards = [Board(i) for i in range(count)]
    result: dict[str, float] = {"connections": count}
    port_of = {board.name: ports[i % len(ports)] for i, board in enumerate(boards)}
    await asyncio.sleep(1)
    empty = memory(pids)
    steps = {
        "connect": lambda b: b.connect(port_of[b.name], context),
        "subscribe": lambda b: b.subscribe(qos),
    }
    steps |= {"status": Board.online, "ping": Board.ping, "report": Board.reports}
    for name, step in steps.items():
        per = 5 if name in ("ping", "report") else 1
        before = cpu_s(pids)
        await for_each(boards, step)
        await asyncio.sleep(1)  # include the server's work after its answer
        result[f"{name}_us"] = 1e6 * (cpu_s(pids) - before) / (count * per)
        result[f"{name}_bytes"] = (memory(pids) - empty) / count
    for board in (first, *boards):
        await board.close()
    return result


async def handshake(port: int, context: ssl.SSLContext, *, whole: bool = True) -> dict[str, int]:
    """Return a handshake's bytes, without TCP and IP; only up to the broker's signature unless `whole`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls, sent, received = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1"), 0, 0
    done = False
    while not done:
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
            done = True
        writer.write(data := outgoing.read())
        sent += len(data)
        if not done:
            incoming.write(data := await reader.read(16_384))
            received, done = received + len(data), not whole
    writer.close()
    return {"sent": sent, "received": received}


async def retained_bytes(port: int, pids: list[int], count: int) -> float:
    """Return the memory, in bytes over all servers of a new broker, for an absent board's status."""
    boards = [Board(10**6 + i) for i in range(_AT_ONCE)]
    for board in boards:
        await board.connect(port, None)
    await asyncio.sleep(1)
    before, numbers = memory(pids), iter(range(count))

    async def publish_statuses(board: Board) -> None:
        for number in numbers:
            board.status = f"hushmote/v1/{FLEET}/status/away{number:07}".encode()
            await board.online()

    await asyncio.gather(*map(publish_statuses, boards))
    await asyncio.sleep(2)
    return (memory(pids) - before) / count


async def hello_us(port: int, pids: list[int], context: ssl.SSLContext, count: int) -> float:
    """Return the CPU µs for a board that leaves once the broker has signed its answer."""
    before = cpu_s(pids)
    await for_each([Board(i) for i in range(count)], lambda _: handshake(port, context, whole=False))
    await asyncio.sleep(1)
    return 1e6 * (cpu_s(pids) - before) / count


def measured(kind: str, tls: bool, qos: int, count: int, certificates: Certificates) -> dict:
    """Measure one row."""
    context = certificates.context() if tls else None
    with broker(kind, certificates if tls else None) as (where, ports, pids):
        row = {"broker": kind, "tls": tls, "qos": qos}
        row |= asyncio.run(measure(where, ports, pids, context, count, qos))
        if context is not None:
            row["hello_us"] = asyncio.run(hello_us(ports[0], pids, context, min(count, 500)))
            row |= asyncio.run(handshake(ports[0], context))
    return row | {"load_average": os.getloadavg()[0]}


def rows(options: Options) -> list[dict]:
    few_boards, many_boards = (100, 0) if options.quick else (500, 2000)
    sizes = [(False, few_boards), (True, few_boards)] + ([(True, many_boards)] if many_boards else [])
    cases = [(kind, tls, int(kind == "mosquitto"), count) for kind in BROKERS for tls, count in sizes]
    # Each subscription at QoS 1 is a NATS consumer; creating 2,000 on three servers takes a few minutes.
    cases += [("nats 1", True, 1, few_boards), ("nats 3", True, 1, few_boards)]
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        return [measured(*case, certificates) for case in cases]


def retained(options: Options) -> list[dict]:
    results = []
    for kind, count in product(BROKERS, (2_000, 4_000) if options.quick else (10_000, 20_000)):
        with broker(kind, None) as (_, ports, pids):
            size = asyncio.run(retained_bytes(ports[0], pids, count))
        results.append({"broker": kind, "boards": count, "bytes": size})
    return results


if __name__ == "__main__":
    run(__doc__, "handshakes.json", {"rows": rows, "retained": retained})
