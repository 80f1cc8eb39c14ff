"""Reports per second through the HTTP door and by MQTT directly, and the effect of a flood of requests.

    python benchmarks/door.py [--quick]

Side by side: a real mosquitto, `hushmote serve` on SQLite and `hushmote door`, each a process of its own. A
client publishes reports of as many devices with QoS 1, CLIENTS of them unacknowledged at a time; then the
same number go through the door over CLIENTS kept connections, each waiting for its 204. Three rounds in turn;
the result is the median. Every 204 must be counted once at the end.

Flood: a door with its usual limits, 200 requests per second from one address, receives FLOOD per second over
FLOODING connections for some seconds, from a client that does not wait for answers, while /healthz of door
and aggregator are asked every 0.1 s. The results are how many the door's connections took, the answers by
status, the door's memory before and its peak, the slowest /healthz, and the longest time that the
aggregator's loop was blocked. Writes benchmarks/results/door.json.
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
FLOODING = 200  # connections
_WAIT_S = 120.0


def requests(messages: Sequence[tuple[str, bytes]]) -> list[bytes]:
    """Return the same reports as HTTP requests."""
    requests_made = []
    for topic, payload in messages:
        path = "/v1/" + topic.removeprefix("hushmote/v1/")
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
        requests_made.append(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload)
    return requests_made


async def send(port: int, messages: Sequence[bytes]) -> float:
    """Send all over CLIENTS connections, the next on each after its 204; return the seconds."""

    async def client(own: Sequence[bytes]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for request in own:
            writer.write(request)
            answer = await reader.readuntil(b"\r\n\r\n")
            if answer[9:12] != b"204":
                raise SystemExit(f"the door answered {answer.decode()}")
        writer.close()

    start = time.perf_counter()
    await asyncio.gather(*(client(messages[i::CLIENTS]) for i in range(CLIENTS)))
    return time.perf_counter() - start


def pour(port: int, messages: Sequence[bytes]) -> int:
    """Send FLOOD requests a second over FLOODING connections without waiting; return how many were sent.

    Requests that a connection does not accept in time are skipped: the door, or its TCP, holds them back.
    """
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(FLOODING)]
    for s in connections:
        s.setblocking(False)
    rest, went, start = [b""] * FLOODING, 0, time.perf_counter()
    for number, request in enumerate(messages):
        at = number % FLOODING
        s = connections[at]
        if number % 100 == 0:
            time.sleep(max(0.0, start + number / FLOOD - time.perf_counter()))
        try:
            with contextlib.suppress(BlockingIOError):
                s.recv(1 << 16)
            went += not rest[at]
            rest[at] = rest[at] or request
            rest[at] = rest[at][s.send(rest[at]) :]
        except BlockingIOError:
            pass
        except ConnectionError:
            s.close()
            connections[at], rest[at] = socket.create_connection(("127.0.0.1", port)), b""
            connections[at].setblocking(False)
    for s in connections:
        s.close()
    return went


@contextlib.contextmanager
def serving(folder: str, *limits: str) -> Iterator[tuple[MosquittoBroker, Process, Process]]:
    """Yield a broker, an aggregator on a new store, and a door."""
    set_up(url := f"sqlite:///{folder}/store.sqlite", Reports(0).payload, keyed=False)
    with MosquittoBroker() as broker:
        where = ("--broker", f"mqtt://127.0.0.1:{broker.port}")
        with Process("serve", "--store", url, *where) as serve, Process("door", *where, *limits) as door:
            yield broker, serve, door


def await_counted(serve: Process, expected: int) -> None:
    """Return once this many reports are counted; exit if they never are."""
    end = time.monotonic() + _WAIT_S
    while serve.metric("hushmote_reports_accepted_total") < expected:
        if time.monotonic() > end:
            raise SystemExit("not every report that was acknowledged is counted")
        time.sleep(0.1)


def side_by_side(folder: str, devices: int, rounds: int) -> dict[str, float]:
    """Return reports a second by MQTT and through the door."""
    reports = Reports(0, keyed=False)
    rates: dict[str, list[float]] = {"mqtt": [], "door": []}
    free = ("--rate", "1e6", "--rate", "address=1e6", "--rate", "device=1e6")
    with serving(folder, *free) as (broker, serve, door):
        for number, way in enumerate(rounds * list(rates), 1):
            messages = reports.messages(np.arange(devices), number)
            if way == "mqtt":
                seconds = publish(broker.port, messages, CLIENTS)
            else:
                seconds = asyncio.run(send(door.port, requests(messages)))
            rates[way].append(devices / seconds)
        await_counted(serve, 2 * rounds * devices)
    mqtt, through = (statistics.median(times) for times in rates.values())
    return {"mqtt_per_s": round(mqtt), "door_per_s": round(through), "ratio": round(through / mqtt, 3)}


def posted(door: Process) -> dict[str, int]:
    """Return how often a door has answered POST, by status."""
    counts = re.findall(r'answers_total{method="POST",status="(\d+)"} (\S+)', door.get("/metrics")[1])
    return {status: int(float(count)) for status, count in counts}


def flood(folder: str, seconds: int) -> dict:
    """Return the behaviour of a door with its usual limits under FLOOD requests a second."""
    messages = requests(Reports(0, keyed=False).messages(np.arange(FLOOD * seconds), 1))
    slowest = {"door": 0.0, "aggregator": 0.0}
    standstill, stopped = 0.0, threading.Event()
    with serving(folder) as (_, serve, door):

        def watch() -> None:
            nonlocal standstill
            while not stopped.wait(0.1):
                for name, process in (("door", door), ("aggregator", serve)):
                    begun = time.perf_counter()
                    if process.get("/healthz")[0] != 200:
                        raise SystemExit(f"the {name} is not healthy under the flood")
                    slowest[name] = max(slowest[name], time.perf_counter() - begun)
                standstill = max(standstill, serve.metric("hushmote_since_turn_seconds"))

        before = door.memory_mib("VmRSS")
        watcher = threading.Thread(target=watch)
        watcher.start()
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            begun = time.perf_counter()
            went = pool.apply(pour, (door.port, messages))
            took = time.perf_counter() - begun
        stopped.set()
        watcher.join()
        time.sleep(2)  # the door has read the remaining input of the connections
        peak, answers = door.memory_mib("VmHWM"), posted(door)
        await_counted(serve, answers["204"])
    result = {"seconds": round(took, 1), "offered": len(messages), "sent": went, "answers": answers}
    result |= {"door_mib_before": round(before, 1), "door_mib_peak": round(peak, 1)}
    result["slowest_healthz_s"] = {name: round(value, 3) for name, value in slowest.items()}
    return result | {"aggregator_standstill_s": round(standstill, 3)}


def both(options: Options) -> dict:
    devices, rounds, seconds = (2_000, 1, 2) if options.quick else (20_000, 3, 10)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        return {"side_by_side": side_by_side(one, devices, rounds), "flood": flood(other, seconds)}


if __name__ == "__main__":
    run(__doc__, "door.json", {"": both})
