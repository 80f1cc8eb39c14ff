"""Boards that all reconnect at once: the simulation compared with the real reporter and a real broker.

    python benchmarks/arrival.py [--quick]

Runs 300 and then 200 boards against mosquitto and a NATS server, which takes ten minutes. --quick: 60 boards,
mosquitto only.

The boards are the shipped AsyncReporter with its real back-off and time-outs, in one process; the broker
uses TLS 1.2 with certificates on both sides. So that a few hundred boards overload it, a Linux control group
limits the broker to a small fraction of a core (this needs root). First, boards connect to the unlimited
broker to measure the cost per board; then all connect at once, and finally within spread_s. The simulation
uses those costs and that fraction of a core. Loopback only.

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
SHARES = {"half_s": 0.5, "all_s": 1.0}  # shares of connected boards whose times are measured
MAX_S = 900.0
BACKLOG = {"mosquitto": 100, "nats 1": None}  # argument of listen(); NATS accepts connections at any time


class Counted(AsyncReporter):
    """The shipped reporter, extended to count its attempts and record when it first connected."""

    attempts = 0
    connected_at: float | None = None

    async def _connect(self) -> None:
        self.attempts += 1
        await super()._connect()
        self.connected_at = self.connected_at or time.perf_counter()


def reporters(count: int, port: int, context: ssl.SSLContext, **settings: int) -> list[Counted]:
    """Return boards with a ledger, not yet started."""
    boards = []
    for number in range(count):
        storage = MemoryStorage()
        ldp_client.provision(storage, consent=True)
        client = ldp_client.Client(POLICY, storage, f"board{number}", fleet=FLEET)
        experiments = KeptExperiments(client, None)
        boards.append(Counted(client, "127.0.0.1", port, ssl=context, kept=experiments, **settings))
    return boards


async def arrive(boards: list[Counted], pids: list[int]) -> dict[str, float]:
    """Start all boards at once; wait until all are connected, or MAX_S. cpu_s is the broker's CPU time."""
    before, start = cpu_s(pids), time.perf_counter()
    tasks = [asyncio.create_task(board.run()) for board in boards]
    while time.perf_counter() - start < MAX_S and any(board.connected_at is None for board in boards):
        await asyncio.sleep(0.02)
    used = cpu_s(pids) - before
    at = np.array([MAX_S if b.connected_at is None else b.connected_at - start for b in boards])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    times = {name: float(np.quantile(at, share)) for name, share in SHARES.items()}
    return times | {"attempts": float(np.mean([board.attempts for board in boards])), "cpu_s": used}


def rows_of(kind: str) -> list[dict]:
    """Return handshakes.py's measurements of a broker, without TLS and with TLS."""
    rows = read("handshakes.json")["rows"]
    matches = [row for row in rows if row["broker"] == kind and row["connections"] == 500]
    return [
        min(matches, key=lambda r: (r["tls"] != tls, r["qos"] if kind != "mosquitto" else 0))
        for tls in (False, True)
    ]


def server_of(kind: str, cost: float, hello: float, share: float) -> Server:
    """Return the simulated broker.

    Args:
        kind: "mosquitto" or "nats".
        cost: CPU seconds per board.
        hello: CPU seconds for the first answer.
        share: Share of a core that the broker gets.
    """
    # How the work after the broker's signature is divided, in µs: TLS, CONNECT, SUBSCRIBE, status.
    plain, tls = rows_of(kind)
    parts = [tls["connect_us"] - tls["hello_us"] - plain["connect_us"], plain["connect_us"]]
    parts += [tls["subscribe_us"], tls["status_us"]]
    finish, connect, subscribe, status = (part * (cost - hello) / sum(parts) for part in parts)
    return Server(hello, finish, connect, subscribe, status, share, BACKLOG[kind])


def simulated(server: Server, count: int, spread: int | None) -> dict[str, float]:
    """Return medians over 20 simulations, and the lowest and highest time until all are connected."""
    boards = Boards(count, spread, boot_s=(0.0, 0.0), crypto_s=0.0, round_trip_s=0.001, asyncio=True)
    runs = [simulate(boards, server, seed, max_s=MAX_S) for seed in range(20)]
    times = {name: [run.share_s(share) for run in runs] for name, share in SHARES.items()}
    medians = {name: float(np.median(seconds)) for name, seconds in times.items()}
    medians |= {"all_s_low": min(times["all_s"]), "all_s_high": max(times["all_s"])}
    return medians | {"attempts": float(np.mean([run.attempts.mean() for run in runs]))}


def compare(kind: str, count: int, load_s: float, certificates: Certificates) -> list[dict]:
    """Return a broker's rows; together, the boards keep it busy for load_s seconds."""
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
                more = {"spread_s": spread or 2}
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
    # The simulated brokers' order of work was chosen with the first size; the second size checks it.
    cases = [(kind, *size) for size in ((300, 40.0), (200, 25.0)) for kind in BACKLOG]
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        small = [("mosquitto", 60, 8.0)] if options.quick else cases
        return [row for case in small for row in compare(*case, certificates)]


if __name__ == "__main__":
    if not core_parts.is_supported():
        sys.exit(f"skipped: {core_parts.NEEDS}")
    run(__doc__, "arrival.json", {"rows": arrivals})
