"""Two runs for the page on scale: what stores take on disk, and boards that all come back at once, simulated.

    python benchmarks/scale_runs.py             some minutes; needs PostgreSQL
    python benchmarks/scale_runs.py --quick     few devices and boards; writes no file

Writes benchmarks/results/store_bytes.json, benchmarks/results/arrival_simulated.json and docs/scale.png. Then
`python benchmarks/scale.py` makes the page's tables.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from results_file import machine, write

from hushmote.server.store import Store
from hushmote.server.store.number_set import NumberSet
from hushmote.studies import fleet_needs as scale
from hushmote.studies.arrival import draw as plot
from hushmote.studies.arrival import numbers_of
from hushmote.studies.power_cut import Boards, Server, simulate, spread_for

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "scale.png"
BINS, DAYS = 1024, 50
STORE_FEW, STORE_MANY = 50_000, 200_000


# --- Bytes on disk --------------------------------------------------------------------------------


def store_bytes(url: str, devices: int) -> dict[str, float]:
    """Fill a new store: bytes for a device that was heard of, and for a code of a window."""
    from published import payload as experiment_payload

    with Store(url) as store:
        store.add_fleet("home", keyed=True)
        store.add_experiment("home", experiment_payload("hh", 256, 1_000_000))
        version = store.experiments("home")[0]
        empty = size(store)
        seen = NumberSet().add(1)
        for start in range(0, devices, 20_000):
            names = [f"{number:016x}" for number in range(start, min(start + 20_000, devices))]
            with store.ingest() as transaction:
                transaction.write({("home", "bench", name): seen for name in names}, {}, {})
        with_devices = size(store)
        for day in range(DAYS):
            window = f"2026-{1 + day // 28:02}-{1 + day % 28:02}"
            with store.ingest() as transaction:
                transaction.write({}, {(version.id, window, code): 1000 for code in range(BINS)}, {})
        return {
            "device": (with_devices - empty) / devices,
            "bin": (size(store) - with_devices) / (BINS * DAYS),
        }


def size(store: Store) -> int:
    """Bytes of the store, its log not among them."""
    with store.engine.connect() as connection:
        if store.engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            pages = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
            return int(connection.exec_driver_sql(pages).scalar_one())
        total = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r'"
        total += " AND relnamespace = 'public'::regnamespace"
        return int(connection.exec_driver_sql(total).scalar_one())


def measure_stores(counts: tuple[int, ...]) -> list[dict]:
    """Rows of results/store_bytes.json."""
    from brokers import database

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("sqlite", "postgresql"):
            for count in counts:
                with database(kind, folder, f"bytes{count}") as (url, _):
                    rows.append({"store": kind, "devices": count} | store_bytes(url, count))
                    print(rows[-1], flush=True)
    return rows


# --- Boards that come back at once ----------------------------------------------------------------


def ways(count: int, server: Server) -> dict[str, Boards]:
    """What boards may do at a start."""
    shipped = Boards(count)
    spread = spread_for(count, server)
    return {
        "at once, back-off always within 2 s": replace(shipped, backoff_max_s=2),
        "at once, the shipped back-off": shipped,
        f"within spread_s = {spread}": replace(shipped, spread_s=spread),
    }


def simulate_arrivals(cases: tuple[tuple[str, int, int], ...], picture: Path | None) -> list[dict]:
    """Rows of results/arrival_simulated.json, and the picture of the last case."""
    rows, runs = [], {}
    for kind, cores, count in cases:
        server = scale.server(kind, cores)
        runs = {}
        for way, boards in ways(count, server).items():
            run = simulate(boards, server, seed=1, most_s=300.0)
            runs[way] = run
            there = float(np.isfinite(run.connected_s).mean())
            rows.append({"broker": kind, "cores": cores, "way": way, "there": there} | numbers_of(run))
            print(rows[-1], flush=True)
    if picture is not None:
        plot(picture, runs)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs for the page on scale.")
    parser.add_argument("--quick", action="store_true", help="few devices and boards; writes no file")
    if parser.parse_args().quick:
        simulate_arrivals((("mosquitto", 1, 500),), None)
        measure_stores((2_000,))
        return
    rows = measure_stores((STORE_FEW, STORE_MANY))
    write("store_bytes.json", {"machine": machine(), "rows": rows})
    rows = simulate_arrivals((("mosquitto", 1, 20_000), ("nats 3", 6, 60_000)), PICTURE)
    write("arrival_simulated.json", {"machine": machine(), "rows": rows})


if __name__ == "__main__":
    main()
