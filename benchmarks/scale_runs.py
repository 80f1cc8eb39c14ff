"""Two runs for docs/scale.md: the stores' size on disk, and simulated boards that all reconnect at once.

    python benchmarks/scale_runs.py [--quick] [stores | arrivals]

This takes a few minutes and needs PostgreSQL. It writes benchmarks/results/store_bytes.json,
benchmarks/results/arrival_simulated.json and docs/scale.png. Afterwards, `python benchmarks/scale.py` updates
the page's tables.
"""

import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
from brokers import database, fill
from published import payload as experiment_payload
from results_file import Options, run
from scale import BINS, DAYS, STORE_FEW, STORE_MANY

from hushmote.server.store import Store
from hushmote.studies import fleet_needs as scale
from hushmote.studies.arrival import draw as plot
from hushmote.studies.arrival import numbers_of
from hushmote.studies.power_cut import Boards, Server, simulate, spread_for

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "scale.png"


# --- Bytes on disk --------------------------------------------------------------------------------


def store_bytes(url: str, devices: int) -> dict[str, float]:
    """Fill a new store; return its bytes per known device, and per code in a window."""
    with Store(url) as store:
        store.add_fleet("home", keyed=True)
        store.add_experiment("home", experiment_payload("hh", 256, 1_000_000))
        empty = size(store)
        fill(store, "home", [f"{number:016x}" for number in range(devices)], {})
        with_devices = size(store)
        days = (f"2026-{1 + day // 28:02}-{1 + day % 28:02}" for day in range(DAYS))
        fill(store, "home", [], {day: np.full(BINS, 1000) for day in days})
        per_bin = (size(store) - with_devices) / (BINS * DAYS)
        return {"device": (with_devices - empty) / devices, "bin": per_bin}


def size(store: Store) -> int:
    """Return the store's size in bytes, without its log."""
    with store.engine.connect() as connection:
        if store.engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            pages = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
            return int(connection.exec_driver_sql(pages).scalar_one())
        total = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r'"
        total += " AND relnamespace = 'public'::regnamespace"
        return int(connection.exec_driver_sql(total).scalar_one())


def stores(options: Options) -> list[dict]:
    rows, counts = [], (2_000,) if options.quick else (STORE_FEW, STORE_MANY)
    with tempfile.TemporaryDirectory() as folder:
        for kind, count in product(("sqlite", "postgresql"), counts):
            with database(kind, folder, f"bytes{count}") as (url, _):
                rows.append({"store": kind, "devices": count} | store_bytes(url, count))
    return rows


# --- Boards that reconnect at once ----------------------------------------------------------------


def ways(count: int, server: Server) -> dict[str, Boards]:
    """Return the possible ways to reconnect."""
    shipped = Boards(count)
    spread = spread_for(count, server)
    return {
        "at once, back-off always within 2 s": replace(shipped, backoff_max_s=2),
        "at once, the shipped back-off": shipped,
        f"within spread_s = {spread}": replace(shipped, spread_s=spread),
    }


def arrivals(options: Options) -> list[dict]:
    """Simulate all cases, and draw a picture of the last one."""
    rows, runs = [], {}
    cases = (("mosquitto", 1, 20_000), ("nats 3", 6, 60_000))
    for kind, cores, count in (("mosquitto", 1, 500),) if options.quick else cases:
        server = scale.server(kind, cores)
        boards_of = ways(count, server)
        runs = {way: simulate(boards, server, seed=1, max_s=300.0) for way, boards in boards_of.items()}
        for way, arrival in runs.items():
            connected = float(np.isfinite(arrival.connected_s).mean())
            row = {"broker": kind, "cores": cores, "way": way, "there": connected}
            rows.append(row | numbers_of(arrival))
    if not options.quick:
        plot(PICTURE, runs)
    return rows


if __name__ == "__main__":
    files = {"stores": "store_bytes.json", "arrivals": "arrival_simulated.json"}
    run(__doc__, "", {"stores": stores, "arrivals": arrivals}, files=files, keys=dict.fromkeys(files, "rows"))
