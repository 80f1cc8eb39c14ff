"""Boards that all return at once: the simulation beside the real reporter and a real broker.

    python benchmarks/arrival.py [--quick]

300 and 200 boards, mosquitto and a NATS server: ten minutes. --quick: 60 boards, mosquitto.

The boards are the shipped AsyncReporter with its own back-off and time-outs, in one process; the broker
speaks TLS 1.2 with certificates on either side. To make a few hundred boards too many for it, a control group
of Linux lets the broker run for a small part of a core only (it needs root). First, boards that connect to
the whole broker measure the cost of one of them; then all come at once, and then within spread_s. The
simulation gets those costs and that part of a core. Loopback only.

Writes benchmarks/results/arrival.json.
"""

import asyncio
import os
import ssl
import sys
import tempfile
import time
from pathlib import Path

import core_parts
import numpy as np
from core_parts import limited
from handshakes import FLEET, Certificates, broker, cpu_s, hello_us
from results_file import Options, read, run

from hushmote.device import ldp_client
from hushmote.device.async_reporter import AsyncReporter
from hushmote.device.kept_experiments import KeptExperiments
from hushmote.simulator.faithful import MemoryStorage
from hushmote.studies.power_cut import Boards, Server, simulate, spread_for

POLICY = {"sum": 8_000_000, "squares": 0, "epsilon": 1_000_000}
POLICY |= {"rules": ("sum",), "experiments": ("room_temp",)}
SHARES = {"half_s": 0.5, "all_s": 1.0}  # of the boards that are connected
MOST_S = 900.0
BACKLOG = {"mosquitto": 100, "nats 1": None}  # of listen(); NATS accepts connections at any time


class Counted(AsyncReporter):
    """The shipped reporter, which counts its attempts and records when it was first connected."""

    attempts = 0
    connected_at: float | None = None

    async def _connect(self) -> None:
        self.attempts += 1
        await super()._connect()
        self.connected_at = self.connected_at or time.perf_counter()


def reporters(count: int, port: int, context: ssl.SSLContext, **settings: int) -> list[Counted]:
    """Return boards that have a ledger and have not started yet."""
    boards = []
    for number in range(count):
        storage = MemoryStorage()
        ldp_client.provision(storage, consent=True)
        client = ldp_client.Client(POLICY, storage, f"board{number}", fleet=FLEET)
        experiments = KeptExperiments(client, None)
        boards.append(Counted(client, "127.0.0.1", port, ssl=context, kept=experiments, **settings))
    return boards


async def arrive(boards: list[Counted], pids: list[int]) -> dict[str, float]:
    """Start all at once; run until all are connected, or MOST_S. cpu_s is the broker's until then."""
    before, start = cpu_s(pids), time.perf_counter()
    tasks = [asyncio.create_task(board.run()) for board in boards]
    while time.perf_counter() - start < MOST_S and any(board.connected_at is None for board in boards):
        await asyncio.sleep(0.02)
    used = cpu_s(pids) - before
    at = np.array([MOST_S if b.connected_at is None else b.connected_at - start for b in boards])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    times = {name: float(np.quantile(at, share)) for name, share in SHARES.items()}
    return times | {"attempts": float(np.mean([board.attempts for board in boards])), "cpu_s": used}


def rows_of(kind: str) -> list[dict]:
    """Return the measurements of a broker by handshakes.py, without TLS and with it."""
    rows = read("handshakes.json")["rows"]
    own = [row for row in rows if row["broker"] == kind and row["connections"] == 500]
    return [
        min(own, key=lambda r: (r["tls"] != tls, r["qos"] if kind != "mosquitto" else 0))
        for tls in (False, True)
    ]


def server_of(kind: str, cost: float, hello: float, share: float) -> Server:
    """Return the simulated broker.

    Args:
        kind: "mosquitto" or "nats".
        cost: Processor seconds of a board.
        hello: Processor seconds of a first answer.
        share: The part of them until the first answer.
    """
    # Division of the work after the broker's signature, in µs: TLS, CONNECT, SUBSCRIBE, status.
    plain, tls = rows_of(kind)
    parts = [tls["connect_us"] - tls["hello_us"] - plain["connect_us"], plain["connect_us"]]
    parts += [tls["subscribe_us"], tls["status_us"]]
    finish, connect, subscribe, status = (part * (cost - hello) / sum(parts) for part in parts)
    return Server(hello, finish, connect, subscribe, status, share, BACKLOG[kind])


def simulated(server: Server, count: int, spread: int | None) -> dict[str, float]:
    """Return medians of 20 simulations, and the first and the last of them."""
    boards = Boards(count, spread, boot_s=(0.0, 0.0), crypto_s=0.0, round_trip_s=0.001, asyncio=True)
    runs = [simulate(boards, server, seed, most_s=MOST_S) for seed in range(20)]
    times = {name: [run.share_s(share) for run in runs] for name, share in SHARES.items()}
    medians = {name: float(np.median(of)) for name, of in times.items()}
    medians |= {"all_s_low": min(times["all_s"]), "all_s_high": max(times["all_s"])}
    return medians | {"attempts": float(np.mean([run.attempts.mean() for run in runs]))}


def compare(kind: str, count: int, load_s: float, certificates: Certificates) -> list[dict]:
    """Return the rows of one broker; all boards keep it busy for load_s seconds."""
    rows = []
    context = certificates.context()
    with broker(kind, certificates) as (_, ports, pids):
        alone = asyncio.run(arrive(reporters(count // 2, ports[0], context), pids))
        cost = alone["cpu_s"] / (count // 2)
        hello = min(1e-6 * asyncio.run(hello_us(ports[0], pids, context, count // 2)), 0.9 * cost)
        share = count * cost / load_s
        server = server_of(kind, cost, hello, share)
        for way, spread in (("at once", None), ("spread", spread_for(count, server))):
            with limited(pids, share):
                more = {} if spread is None else {"spread_s": spread}
                real = asyncio.run(arrive(reporters(count, ports[0], context, **more), pids))
            rows.append(
                {"broker": kind, "boards": count, "way": way, "spread_s": spread, "cost_us": 1e6 * cost}
                | {"hello_us": 1e6 * hello, "share_of_a_core": share}
                | {f"real_{key}": value for key, value in real.items() if key != "cpu_s"}
                | {f"simulated_{key}": value for key, value in simulated(server, count, spread).items()}
                | {"load_average": os.getloadavg()[0]}
            )
    return rows


def arrivals(options: Options) -> list[dict]:
    # The first size chose the order in which the simulated brokers work; the second checks it.
    cases = [(kind, *size) for size in ((300, 40.0), (200, 25.0)) for kind in BACKLOG]
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        small = [("mosquitto", 60, 8.0)] if options.quick else cases
        return [row for case in small for row in compare(*case, certificates)]


if __name__ == "__main__":
    if not core_parts.possible():
        sys.exit(f"skipped: {core_parts.NEEDS}")
    run(__doc__, "arrival.json", {"rows": arrivals})
