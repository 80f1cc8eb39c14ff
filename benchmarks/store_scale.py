"""PostgreSQL's dedupe table: its parts, how rows are locked and written, full pages, ten million devices.

    python benchmarks/store_scale.py [--quick] [parts | writes | pages | devices]

Batches are of 4,000 reports of as many devices, drawn from all that the table knows. Whatever is compared
takes turns within one run, in databases of one server with fsync on; PostgreSQL's CPU seconds are of the
session that works (its checkpoints and its log writer are not in them).

parts: the product's transaction on a table of 1, 8, 16, 32 and 64 parts. writes: rows locked by FOR UPDATE or
by the upsert of the product, and written from arrays or by COPY into a temporary table. pages: how full pages
are filled at first (fillfactor), and what becomes of that as every device reports several times. devices: a
store is filled, and counts authenticated reports that wait at mosquitto, with
1,000,000 and with 10,000,000 devices in turn; then what reads all of it is timed.

Writes benchmarks/results/store_scale.json.
"""

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from brokers import FLEET, NO_SAVING, Reports, aggregate, cpu_s, device_name, drain, publish, set_up
from results_file import machine, run

from hushmote.server.planning import remaining
from hushmote.server.store import Store
from hushmote.server.store.check import check
from hushmote.server.store.seal import seal
from hushmote.simulator.broker import MosquittoBroker

TESTS = Path(__file__).parent.parent / "tests"
sys.path.insert(0, str(TESTS / "support"))
from postgres import Cluster  # noqa: E402  # pyright: ignore[reportMissingImports]

BATCH = 4000
# As a server is set that has a few GB: the table stays in memory, and pages are logged whole seldom.
SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "4GB", "checkpoint_timeout": "15min"}
_COLUMNS = """fleet varchar(32) NOT NULL, experiment varchar(32) NOT NULL, device varchar(32) NOT NULL,
    numbers text NOT NULL, accepted bigint NOT NULL"""
_FILL = f"""INSERT INTO dedupe SELECT '{FLEET}', 'bench', 'd' || lpad(i::text, 7, '0'), '1-1', 1
    FROM generate_series(0, %s) AS i"""
_OF_IT = f"fleet = '{FLEET}' AND experiment = 'bench'"


def devices_of(indices: np.ndarray) -> list[str]:
    return sorted(map(device_name, indices))


def make_dedupe(connection: psycopg.Connection, parts: int, devices: int, full: int = 100) -> None:
    """Make the table dedupe anew in so many parts, its pages so full, with report 1 of every device."""
    connection.execute("DROP TABLE IF EXISTS dedupe")
    key = "PRIMARY KEY (fleet, experiment, device)"
    connection.execute(f"CREATE TABLE dedupe ({_COLUMNS}, {key}) PARTITION BY HASH (device)".encode())
    for part in range(parts):
        where = f"MODULUS {parts}, REMAINDER {part}"
        connection.execute(
            f"CREATE TABLE dedupe_{part} PARTITION OF dedupe FOR VALUES WITH ({where})"
            f" WITH (fillfactor = {full})".encode()
        )
    connection.execute(_FILL.replace("%s", str(devices - 1)).encode())
    connection.commit()


def session_cpu_s(connection: psycopg.Connection) -> float:
    fields = Path(f"/proc/{connection.info.backend_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def log_bytes(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
    assert row is not None
    return int(row[0])


def sizes(connection: psycopg.Connection) -> tuple[int, int]:
    """Bytes of the dedupe table and of its index, over all parts."""
    query = """SELECT sum(pg_table_size(relid))::bigint, sum(pg_indexes_size(relid))::bigint
        FROM pg_partition_tree('dedupe')"""
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


# How rows are locked and written. The first of each is the product's, in its own words.

_LOCKS = {
    "upsert": f"""INSERT INTO dedupe AS d SELECT '{FLEET}', 'bench', unnest(%s::text[]), '', 0
        ON CONFLICT (fleet, experiment, device) DO UPDATE SET accepted = d.accepted
        RETURNING device, numbers""",
    "FOR UPDATE": f"""SELECT m.device, m.numbers FROM unnest(%s::text[]) AS w(device) JOIN LATERAL
        (SELECT device, numbers FROM dedupe WHERE {_OF_IT} AND device = w.device LIMIT 1 FOR UPDATE) m
        ON true""",
}
_CHANGE = """ON CONFLICT (fleet, experiment, device)
    DO UPDATE SET numbers = excluded.numbers, accepted = excluded.accepted"""
_ARRAYS = f"""INSERT INTO dedupe SELECT '{FLEET}', 'bench', unnest(%s::text[]), unnest(%s::text[]),
    unnest(%s::bigint[]) {_CHANGE}"""


def by_arrays(connection: psycopg.Connection, rows: list[tuple[str, str, int]]) -> None:
    connection.execute(_ARRAYS.encode(), [list(column) for column in zip(*rows, strict=True)])


def by_copy(connection: psycopg.Connection, rows: list[tuple[str, str, int]]) -> None:
    with connection.cursor() as cursor:
        with cursor.copy("COPY incoming FROM STDIN") as copy:
            copy.write("".join([f"{FLEET}\tbench\t{d}\t{n}\t{a}\n" for d, n, a in rows]))
        cursor.execute(f"INSERT INTO dedupe SELECT * FROM incoming {_CHANGE}".encode())


_WAYS: dict[str, tuple[str, Callable[[psycopg.Connection, list[tuple[str, str, int]]], None]]] = {
    "upsert, arrays": (_LOCKS["upsert"], by_arrays),
    "upsert, COPY": (_LOCKS["upsert"], by_copy),
    "FOR UPDATE, arrays": (_LOCKS["FOR UPDATE"], by_arrays),
    "FOR UPDATE, COPY": (_LOCKS["FOR UPDATE"], by_copy),
}


def one_batch(connection: psycopg.Connection, way: str, devices: list[str]) -> dict[str, float]:
    lock, put = _WAYS[way]

    def now() -> np.ndarray:
        times = [time.perf_counter(), time.process_time(), session_cpu_s(connection)]
        return np.array([*(1e6 * x for x in times), log_bytes(connection)])

    before = now()
    seen: dict[str, str] = dict(connection.execute(lock.encode(), (devices,)).fetchall())
    last = [int(seen[device][2:]) + 1 for device in devices]
    put(connection, [(device, f"1-{n}", n) for device, n in zip(devices, last, strict=True)])
    connection.commit()
    each = ((now() - before) / len(devices)).tolist()
    return dict(zip(("us", "client_us", "server_us", "log_bytes"), each, strict=True))


def means(rows: list[dict[str, float]], ticks: Callable = statistics.fmean) -> dict[str, float]:
    """The median of times, which others disturb, and the mean of what is counted in ticks."""
    return {k: (statistics.median if k == "us" else ticks)(row[k] for row in rows) for k in rows[0]}


def in_turn(cluster: Cluster, known: int, rounds: int, sides: dict[Any, tuple[int, str]]) -> dict[Any, Any]:
    """Measure sides in turn: name -> (parts, way); each has a table of its own."""
    rng = np.random.default_rng()
    open_: dict[Any, psycopg.Connection] = {}
    found: dict[Any, list[dict[str, float]]] = {name: [] for name in sides}
    for name, (parts, _) in sides.items():
        connection = open_[name] = psycopg.connect(cluster.dsn(cluster.create()))
        make_dedupe(connection, parts, known)
        connection.execute(f"CREATE TEMP TABLE incoming ({_COLUMNS}) ON COMMIT DELETE ROWS".encode())
        connection.commit()
    for number in range(rounds + 6):
        for name, (_, way) in sides.items():
            devices = devices_of(rng.choice(known, min(BATCH, known), replace=False))
            row = one_batch(open_[name], way, devices)
            if number >= 6:  # by then plans are kept, and pages have been in memory
                found[name].append(row)
    for connection in open_.values():
        connection.close()
    return {name: means(rows) for name, rows in found.items()}


def measure_pages(cluster: Cluster, devices: int, passes: int) -> Iterator[dict[str, float]]:
    """Every device reports so many times, in random order, on tables whose pages were filled so far."""
    rng = np.random.default_rng()
    for full in (100, 90, 80, 70):
        with psycopg.connect(cluster.dsn(cluster.create())) as connection:
            make_dedupe(connection, 16, devices, full)
            table, index = sizes(connection)
            rows = []
            for _ in range(passes):
                order = rng.permutation(devices)
                for start in range(0, devices, BATCH):
                    batch = devices_of(order[start : start + BATCH])
                    rows.append(one_batch(connection, "upsert, arrays", batch))
            time.sleep(1.5)  # until statistics are told
            query = "SELECT sum(n_tup_hot_upd)::float / sum(n_tup_upd) FROM pg_stat_user_tables"
            (in_page,) = connection.execute(query).fetchone() or (0.0,)
            after, index_after = sizes(connection)
            row = {"fillfactor": full, "table": table / devices, "table_after": after / devices}
            row |= {"index": index / devices, "index_after": index_after / devices}
            yield row | {"in_page": in_page} | means(rows)


# Ten million devices


def fill(cluster: Cluster, name: str, payload: bytes, devices: int) -> dict[str, float]:
    """Make a store with so many devices; returns what each takes."""
    cluster.execute(f"CREATE DATABASE {name}")
    url = cluster.url(name)
    set_up(url, payload)
    with psycopg.connect(cluster.dsn(name), autocommit=True) as connection:
        connection.execute(_FILL.replace("%s", str(devices - 1)).encode())
        connection.execute("INSERT INTO histogram VALUES (1, 'all', 0, %s)", (devices,))
        connection.execute("VACUUM (ANALYZE) dedupe")
        table, index = sizes(connection)
    return {"devices": devices, "table": table / devices, "index": index / devices}


def measure_devices(cluster: Cluster, known: tuple[int, ...], count: int, rounds: int) -> dict[str, Any]:
    reports = Reports(0)
    made = [fill(cluster, f"devices{devices}", reports.payload, devices) for devices in known]
    rng = np.random.default_rng()
    order = {devices: rng.permutation(devices)[: rounds * count] for devices in known}
    rows = []
    assert cluster.pid is not None
    for number in range(rounds):
        for devices in known:
            url = cluster.url(f"devices{devices}")
            chosen = np.take(order[devices], range(number * count, (number + 1) * count), mode="wrap")
            with MosquittoBroker(settings=NO_SAVING) as broker:
                drain(aggregate, broker.port, 0, url)
                publish(broker.port, reports.messages(chosen, 2 + number * count // devices))
                with psycopg.connect(cluster.dsn("postgres")) as connection:
                    logged, before = log_bytes(connection), cpu_s(cluster.pid)
                    drained = drain(aggregate, broker.port, count, url)
                    row = {"devices": devices, "per_s": count / drained["seconds"]}
                    row |= {"aggregator_us": 1e6 * drained["cpu_s"] / count}
                    row |= {"database_us": 1e6 * (cpu_s(cluster.pid) - before) / count}
                    row |= {"log_bytes": (log_bytes(connection) - logged) / count}
                    rows.append(row | {"peak_mib": drained["peak_mib"]})
    return {"stores": made, "rounds": rows, "reading": [read_all(cluster, d) for d in known]}


def read_all(cluster: Cluster, devices: int) -> dict[str, float]:
    """Seconds of what reads every device's row, and the most memory that this process ever took."""
    taken: dict[str, float] = {"devices": devices}
    checked: list[Any] = []

    def timed(name: str, call: Callable[[], object]) -> None:
        start = time.perf_counter()
        call()
        taken[f"{name}_s"] = time.perf_counter() - start

    with Store(cluster.url(f"devices{devices}"), create=False) as store:
        timed("participation", lambda: store.participation(FLEET))
        timed("window_reports", lambda: store.window_reports(FLEET))
        timed("ledger", lambda: remaining.read(store, FLEET, remaining.datetime.date(2026, 12, 1)))
        timed("seal", lambda: seal(store, FLEET, "bench"))
        timed("check", lambda: checked.extend(check(store).violations))
    assert not checked, checked
    return taken | {"peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def parts(options: argparse.Namespace) -> list[dict]:
    with server() as cluster:
        sides: dict[Any, tuple[int, str]] = {k: (k, "upsert, arrays") for k in (1, 8, 16, 32, 64)}
        return [{"parts": k} | row for k, row in in_turn(cluster, *size_of(options), sides).items()]


def writes(options: argparse.Namespace) -> list[dict]:
    with server() as cluster:
        found = in_turn(cluster, *size_of(options), {way: (16, way) for way in _WAYS})
        return [{"way": way} | row for way, row in found.items()]


def pages(options: argparse.Namespace) -> list[dict]:
    with server() as cluster:
        return list(measure_pages(cluster, size_of(options)[0], 1 if options.quick else 3))


def devices(options: argparse.Namespace) -> dict:
    sizes_ = (2_000, 20_000) if options.quick else (1_000_000, 10_000_000)
    count, turns = (2_000, 1) if options.quick else (options.count, 4)
    with server() as cluster:
        found = measure_devices(cluster, sizes_, count, turns)
    few, many = (means([r for r in found["rounds"] if r["devices"] == n], statistics.median) for n in sizes_)
    found["ratio"] = many["per_s"] / few["per_s"]
    cpu = [row["aggregator_us"] + row["database_us"] for row in (few, many)]
    return found | {"cpu_ratio": cpu[0] / cpu[1]}


def server() -> Cluster:
    return Cluster(durable=True, settings=SETTINGS)


def size_of(options: argparse.Namespace) -> tuple[int, int]:
    """Devices that are known, and rounds."""
    return (10_000, 4) if options.quick else (100_000, 30)


if __name__ == "__main__":
    count = {"type": int, "default": 100_000, "help": "reports of a round with many devices"}
    which = {part.__name__: part for part in (parts, writes, pages, devices)}
    asked = " ".join(part for part in which if part in sys.argv) or "all"
    head = {f"machine of {asked}": machine(), "settings": SETTINGS}
    run(__doc__, "store_scale.json", which, head=head, count=count)
