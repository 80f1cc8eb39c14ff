"""Reports per second through the HTTP door and directly over MQTT, and the effect of a flood of requests.

    python benchmarks/door.py [--quick]

Side by side: mosquitto, `hushmote serve` on SQLite and `hushmote door` each run in their own process. A
client publishes reports, one per device, at QoS 1, with CLIENTS of them unacknowledged at a time; then the
same number of reports go through the door over CLIENTS persistent connections, each waiting for its 204. The
two take turns for three rounds; the result is the median. At the end, every report that got a 204 must have
been counted exactly once.

Flood: a door with its default limits, 200 requests per second from one address, receives FLOOD requests per
second over FLOODING connections for some seconds, from a client that does not wait for answers, while
/healthz of the door and the aggregator are queried every 0.1 s. The results are the number of requests that
the door accepted, the answers by status, the door's memory before the flood and at its peak, the slowest
/healthz, and the longest time for which the aggregator's loop was blocked. Writes
benchmarks/results/door.json.
"""

import asyncio
import contextlib
import multiprocessing
import re
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
from brokers import Process, Reports, publish, set_up
from results_file import Options, run

from hushmote.simulator.broker import MosquittoBroker

CLIENTS = 32
FLOOD = 10_000  # requests a second
FLOODING = 200  # connections used for the flood
_WAIT_S = 120.0


def requests(messages: Sequence[tuple[str, bytes]]) -> list[bytes]:
    """Convert reports to HTTP requests."""
    encoded = []
    for topic, payload in messages:
        path = "/v1/" + topic.removeprefix("hushmote/v1/")
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
        encoded.append(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
    return encoded


async def send(port: int, messages: Sequence[bytes]) -> float:
    """Send all messages over CLIENTS connections, waiting for each 204; return the seconds taken."""

    async def client(requests: Sequence[bytes]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in requests:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            if answer[9:12] != b"204":
                raise SystemExit(f"the door answered {answer.decode()}")
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(client(messages[i::CLIENTS]) for i in range(CLIENTS)))
    return time.perf_counter() - start


def pour(port: int, messages: Sequence[bytes]) -> int:
    """Send FLOOD requests a second over FLOODING connections without waiting; return the number sent.

    A request is skipped if its connection still has unsent data because the door, or TCP, holds it back.
    """
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(FLOODING)]
    for s in connections:
        s.setblocking(False)
    unsent, sent, start = [b""] * FLOODING, 0, time.perf_counter()
    for number, request in enumerate(messages):
        i = number % FLOODING
        s = connections[i]
        if number % 100 == 0:
            time.sleep(max(0.0, start + number / FLOOD - time.perf_counter()))
        try:
            with contextlib.suppress(BlockingIOError):
                s.recv(1 << 16)
            sent += not unsent[i]
            unsent[i] = unsent[i] or request
            unsent[i] = unsent[i][s.send(unsent[i]) :]
        except BlockingIOError:
            pass
        except ConnectionError:
            s.close()
            connections[i], unsent[i] = socket.create_connection(("127.0.0.1", port)), b""
            connections[i].setblocking(False)
    for s in connections:
        s.close()
    return sent


@contextlib.contextmanager
def serving(folder: str, *limits: str) -> Iterator[tuple[MosquittoBroker, Process, Process]]:
    """Yield a broker, an aggregator on a new store, and a door."""
    set_up(url := f"sqlite:///{folder}/store.sqlite", Reports(0).payload, keyed=False)
    with MosquittoBroker() as broker:
        address = ("--broker", f"mqtt://127.0.0.1:{broker.port}")
        with Process("serve", "--store", url, *address) as serve, Process("door", *address, *limits) as door:
            yield broker, serve, door


def await_counted(serve: Process, expected: int) -> None:
    """Wait until this many reports are counted; exit if it takes too long."""
    end = time.monotonic() + _WAIT_S
    while serve.metric("hushmote_reports_accepted_total") < expected:
        if time.monotonic() > end:
            raise SystemExit("some acknowledged reports were not counted")
        time.sleep(0.1)


def side_by_side(folder: str, devices: int, rounds: int) -> dict[str, float]:
    """Return the reports per second over MQTT and through the door."""
    reports = Reports(0, keyed=False)
    rates: dict[str, list[float]] = {"mqtt": [], "door": []}
    unlimited = ("--rate", "1e6", "--rate", "address=1e6", "--rate", "device=1e6")
    with serving(folder, *unlimited) as (broker, serve, door):
        for number, path in enumerate(rounds * list(rates), 1):
            messages = reports.messages(np.arange(devices), number)
            if path == "mqtt":
                seconds = publish(broker.port, messages, CLIENTS)
            else:
                seconds = asyncio.run(send(door.port, requests(messages)))
            rates[path].append(devices / seconds)
        await_counted(serve, 2 * rounds * devices)
    mqtt_rate, door_rate = (statistics.median(per_s) for per_s in rates.values())
    return {
        "mqtt_per_s": round(mqtt_rate),
        "door_per_s": round(door_rate),
        "ratio": round(door_rate / mqtt_rate, 3),
    }


def post_answers(door: Process) -> dict[str, int]:
    """Return the door's number of answers to POST, by status."""
    counts = re.findall(r'answers_total{method="POST",status="(\d+)"} (\S+)', door.get("/metrics")[1])
    return {status: int(float(count)) for status, count in counts}


def flood(folder: str, seconds: int) -> dict:
    """Measure a door with its default limits under FLOOD requests a second."""
    messages = requests(Reports(0, keyed=False).messages(np.arange(FLOOD * seconds), 1))
    slowest = {"door": 0.0, "aggregator": 0.0}
    longest_block, stopped = 0.0, threading.Event()
    with serving(folder) as (_, serve, door):

        def watch() -> None:
            nonlocal longest_block
            while not stopped.wait(0.1):
                for name, process in (("door", door), ("aggregator", serve)):
                    start = time.perf_counter()
                    if process.get("/healthz")[0] != 200:
                        raise SystemExit(f"the {name} is not healthy under the flood")
                    slowest[name] = max(slowest[name], time.perf_counter() - start)
                longest_block = max(longest_block, serve.metric("hushmote_since_turn_seconds"))

        before = door.memory_mib("VmRSS")
        watcher = threading.Thread(target=watch)
        watcher.start()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            start = time.perf_counter()
            sent = pool.apply(pour, (door.port, messages))
            took = time.perf_counter() - start
        stopped.set()
        watcher.join()
        time.sleep(2)  # let the door read the remaining input of the connections
        peak, answers = door.memory_mib("VmHWM"), post_answers(door)
        await_counted(serve, answers["204"])
    result = {"seconds": round(took, 1), "offered": len(messages), "sent": sent, "answers": answers}
    result |= {"door_mib_before": round(before, 1), "door_mib_peak": round(peak, 1)}
    result["slowest_healthz_s"] = {name: round(value, 3) for name, value in slowest.items()}
    return result | {"aggregator_standstill_s": round(longest_block, 3)}


def measure(options: Options) -> dict:
    devices, rounds, seconds = (2_000, 1, 2) if options.quick else (20_000, 3, 10)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        return {"side_by_side": side_by_side(first, devices, rounds), "flood": flood(second, seconds)}


if __name__ == "__main__":
    run(__doc__, "door.json", {"": measure})
