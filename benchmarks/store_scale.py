"""Reports per second with many devices in the dedupe table: SQLite, and PostgreSQL with ten million.

    python benchmarks/store_scale.py [--quick] [million | devices]

Stores of different sizes take turns within a run; the reporting devices are drawn from all devices.
Authenticated reports wait at mosquitto until an aggregator counts them; its memory is its process's peak.

million: SQLite with 100,000 and 1,000,000 devices. devices: PostgreSQL with ten times as many and fsync on;
CPU seconds are totals over all PostgreSQL processes. Afterwards, reading the whole table is timed.

Writes its part of benchmarks/results/ingest_scale.json, and benchmarks/results/store_scale.json.
"""

import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psycopg
from brokers import FLEET, Cluster, Reports, aggregate, brokers, cpu_s, drain, fill, publish, set_up
from results_file import Options, run

from hushmote.server.budgets import remaining
from hushmote.server.store import Store
from hushmote.server.store.check import check
from hushmote.server.store.seal import seal

# Settings for a server with a few GB, so that the table stays in memory and full pages are rarely logged.
SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB", "checkpoint_timeout": "15min"}
_FILL = f"""INSERT INTO dedupe SELECT '{FLEET}', 'bench', 'd' || lpad(i::text, 7, '0'), '1-1', 1
    FROM generate_series(0, %s) AS i"""
_SIZES = """SELECT sum(pg_table_size(relid))::bigint, sum(pg_indexes_size(relid))::bigint
    FROM pg_partition_tree('dedupe')"""

Row = dict[str, Any]


def in_turn(
    urls: dict[int, str], count: int, rounds: int, meter: Callable[[], np.ndarray] = lambda: np.zeros(2)
) -> Iterator[tuple[Row, dict[str, float], np.ndarray]]:
    """Count `count` reports in each store in turn; yield its row, drain()'s result and meter()'s increase."""
    reports, rng = Reports(0), np.random.default_rng()
    order = {size: rng.permutation(size)[: rounds * count] for size in urls}
    for number in range(rounds):
        for size, url in urls.items():
            # Use different devices each time if the fleet is larger than the count.
            chosen = np.take(order[size], range(number * count, (number + 1) * count), mode="wrap")
            with brokers("mosquitto") as (_, (port,), _):
                drain(aggregate, port, 0, url)
                publish(port, reports.messages(chosen, 2 + number * count // size))
                before = meter()
                drained = drain(aggregate, port, count, url)
                spent = meter() - before
            yield {"devices": size, "per_s": count / drained["seconds"]}, drained, spent


def ratio(rows: list[Row]) -> float:
    """Return the larger store's median rate relative to the smaller one's."""
    min_devices, *_, max_devices = sorted({row["devices"] for row in rows})
    one, other = (
        statistics.median(r["per_s"] for r in rows if r["devices"] == n) for n in (min_devices, max_devices)
    )
    return other / one


def million(options: Options) -> Row:
    sizes, count, rounds = ((100_000, 1_000_000), 100_000, 3)
    if options.quick:
        sizes, count, rounds = ((2_000, 20_000), 2_000, 1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        urls = {size: f"sqlite:///{folder}/devices{size}.sqlite" for size in sizes}
        for size, url in urls.items():
            reports = Reports(size)
            set_up(url, reports.payload)
            with Store(url) as store:
                fill(store, FLEET, reports.names, {})
        for row, drained, _ in in_turn(urls, count, rounds):
            used = {"cpu_us": 1e6 * drained["cpu_s"] / count, "peak_mib": drained["peak_mib"]}
            rows.append(row | used)
    return {"rounds": rows, "ratio": ratio(rows)}


def make_store(cluster: Cluster, devices: int) -> tuple[str, Row]:
    """Make a store with this many devices; return its URL, and its bytes per device."""
    name = f"devices{devices}"
    cluster.execute(f"CREATE DATABASE {name}")
    set_up(url := cluster.url(name), Reports(0).payload)
    with psycopg.connect(cluster.dsn(name), autocommit=True) as connection:
        connection.execute(_FILL.replace("%s", str(devices - 1)).encode())
        connection.execute("INSERT INTO histogram VALUES (1, 'all', 0, 0, %s)", (devices,))
        connection.execute("VACUUM (ANALYZE) dedupe")
        table, index = connection.execute(_SIZES).fetchone() or (0, 0)
    return url, {"devices": devices, "table": int(table) / devices, "index": int(index) / devices}


def read_all(url: str, devices: int) -> dict[str, float]:
    """Return the seconds for each command that reads every device's row, and this process's peak memory."""
    seconds: dict[str, float] = {"devices": devices}
    checked: list[Any] = []

    def timed(name: str, call: Callable[[], object]) -> None:
        start = time.perf_counter()
        call()
        seconds[f"{name}_s"] = time.perf_counter() - start

    with Store(url, create=False) as store:
        timed("participation", lambda: store.participation(FLEET))
        timed("ledger", lambda: remaining.read(store, FLEET, remaining.datetime.date(2026, 12, 1)))
        timed("seal", lambda: seal(store, FLEET, "bench"))
        timed("check", lambda: checked.extend(check(store).violations))
    assert not checked, checked
    return seconds | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def devices(options: Options) -> Row:
    sizes = (2_000, 20_000) if options.quick else (1_000_000, 10_000_000)
    count, rounds, rows = 2_000 if options.quick else options.count, 1 if options.quick else 4, []
    with Cluster(durable=True, settings=SETTINGS) as cluster:
        stores = {size: make_store(cluster, size) for size in sizes}
        urls = {size: url for size, (url, _) in stores.items()}
        with psycopg.connect(cluster.dsn("postgres"), autocommit=True) as connection:

            def spent() -> np.ndarray:
                row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
                assert row is not None
                assert cluster.pid is not None
                return np.array([1e6 * cpu_s(cluster.pid), float(row[0])])

            for row, drained, more in in_turn(urls, count, rounds, spent):
                row |= {"aggregator_us": 1e6 * drained["cpu_s"] / count}
                row |= dict(zip(("database_us", "log_bytes"), (more / count).tolist(), strict=True))
                rows.append(row | {"peak_mib": drained["peak_mib"]})
        reading = [read_all(url, size) for size, url in urls.items()]
    result = {"stores": [row for _, row in stores.values()], "rounds": rows, "reading": reading}
    return result | {"ratio": ratio(rows)}


if __name__ == "__main__":
    count = {"type": int, "default": 100_000, "help": "reports of a round on PostgreSQL"}
    parts = {"million": million, "devices": devices}
    run(__doc__, "store_scale.json", parts, files={"million": "ingest_scale.json"}, count=count)
