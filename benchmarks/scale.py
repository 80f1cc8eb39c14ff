"""The constants and checks of `hushmote study scale`'s model, and the tables on its two pages.

    python benchmarks/scale.py              write studies/scale.csv and the tables; print the checks
    python benchmarks/scale.py --quick      print the checks and write nothing

No number is entered by hand: each constant is read from a file in benchmarks/results, or from
docs/reporter.md. The model is checked against runs that did not provide any constant.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from results_file import options, read

from hushmote.studies import fleet_needs as scale

ROOT = Path(__file__).resolve().parents[1]
CSV = ROOT / "studies" / "scale.csv"
PAGES = (ROOT / "docs" / "scale.md", ROOT / "benchmarks" / "results" / "scale.md")
COST = ROOT / "docs" / "reporter.md"
BROKERS = ("mosquitto", "nats 1", "nats 3")
FEW, MANY = 500, 2000  # connections for the constants, and for the check
AWAY = 20_000
BINS, DAYS = 1024, 50
STORE_FEW, STORE_MANY = 50_000, 200_000  # devices for the constants, and for the check
LISTED = (10_000, 100_000)
ARRIVED = {"half_s": "half are back, s", "all_s": "all are back, s"}


# --- Constants ------------------------------------------------------------------------------------


def row_of(rows: list[dict], **fields: Any) -> dict:
    """Return the only row with these fields."""
    matches = [row for row in rows if all(row.get(key) == value for key, value in fields.items())]
    assert len(matches) == 1, (fields, len(matches))
    return matches[0]


def connection(rows: list[dict], kind: str, count: int, tls: bool = True) -> dict:
    return row_of(rows, broker=kind, tls=tls, qos=1 if kind == "mosquitto" else 0, connections=count)


def million_rounds(ingest: dict) -> list[dict]:
    """Return the rounds with a million devices."""
    return [row for row in ingest["million"]["rounds"] if row["devices"] == 1_000_000]


def collect() -> Iterator[tuple[str, float, str, str, str]]:
    """Yield each constant's name, value, unit, source and conditions."""
    ingest, hands, nats = read("ingest_scale.json"), read("handshakes.json"), read("ingest_nats.json")
    waiting = "96,000 authenticated reports that waited, one member, 2 cores"
    for store in ("sqlite", "postgresql"):
        one = ingest[store]["1"]
        names = {"database": f"database {store}", "commit": f"commit {store}"}
        if store == "postgresql":
            names["aggregator"] = f"aggregator mosquitto {store}"
        for key, name in names.items():
            yield name, one[f"{key}_us"], "us", "ingest_scale.json", waiting
    # SQLite needs a quarter more time per report in a large fleet.
    million = median(row["cpu_us"] for row in million_rounds(ingest))
    conditions = "100,000 authenticated reports that waited, a million devices, one member, 2 cores"
    yield "aggregator mosquitto sqlite", million, "us", "ingest_scale.json", conditions
    yield "mosquitto deliver", ingest["sqlite"]["1"]["delivery_us"], "us", "ingest_scale.json", waiting
    one = nats["members"]["nats 3, sync always"]["1"]
    conditions = f"{one['reports']:,} authenticated reports that waited, one member, 2 cores, sync always"
    yield "aggregator nats 3 postgresql", one["aggregator_us"], "us", "ingest_nats.json", conditions
    yield "nats 3 deliver", one["delivery_us"], "us", "ingest_nats.json", conditions
    conditions = "the busiest of three servers, for a report that is published, sync always"
    yield "nats 3 log", one["publish_busiest_us"], "us", "ingest_nats.json", conditions
    for kind in BROKERS:
        secure, plain = (connection(hands["rows"], kind, FEW, tls) for tls in (True, False))
        conditions = f"{FEW} connections, TLS 1.2, P-256 certificates on both sides"
        for name in ("hello", "connect", "subscribe", "status", "ping", "report"):
            yield f"{kind} {name}", secure[f"{name}_us"], "us", "handshakes.json", conditions
        without = f"{FEW} connections, no TLS"
        yield f"{kind} plain connect", plain["connect_us"], "us", "handshakes.json", without
        yield f"{kind} connection", secure["subscribe_bytes"], "bytes", "handshakes.json", conditions
        retained = row_of(hands["retained"], broker=kind, boards=AWAY)
        conditions = f"statuses of {AWAY:,} boards that are away"
        yield f"{kind} retained", retained["bytes"], "bytes", "handshakes.json", conditions
    users = read("nats_fleet.json")["users"]
    short_list, long_list = (row_of(users, named="by URI", boards=n) for n in LISTED)
    listed = (long_list["rss_mb"] - short_list["rss_mb"]) * 1e6 / (LISTED[1] - LISTED[0])
    conditions = f"a board in users.conf, from {LISTED[0]:,} to {LISTED[1]:,}: memory of each server"
    yield "nats listed", listed, "bytes", "nats_fleet.json", conditions
    row, conditions = connection(hands["rows"], "nats 3", FEW), "TLS 1.2, P-256, without TCP and IP"
    yield "handshake up", row["sent"], "bytes", "handshakes.json", conditions
    yield "handshake down", row["received"], "bytes", "handshakes.json", conditions
    wire, conditions = read("wire_bytes.json"), "hh over 256 values, authenticated"
    tree = next(row for row in wire["rows"] if row["experiment"].startswith("hh, 256"))
    yield "publish", tree["authenticated"]["publish"], "bytes", "wire_bytes.json", conditions
    yield "puback", wire["puback_bytes"], "bytes", "wire_bytes.json", "QoS 1"
    for row in read("store_bytes.json")["rows"]:
        if row["devices"] == STORE_FEW:
            conditions = f"{STORE_FEW:,} devices with ids of 16 characters, one report each"
            yield f"{row['store']} device", row["device"], "bytes", "store_bytes.json", conditions
            yield f"{row['store']} bin", row["bin"], "bytes", "store_bytes.json", f"{BINS} codes, {DAYS} days"
    page = " ".join(COST.read_text().split())
    match = re.search(r"`report\(\)` with hh takes ([\d.]+) ms and `sent\(\)` ([\d.]+) ms", page)
    assert match is not None
    conditions = "hh over 1,024 values, ledger in littlefs, the emulated Pico at 125 MHz"
    yield "board report", float(match[1]) + float(match[2]), "ms", "docs/reporter.md", conditions


def text() -> str:
    """Return the content of scale.csv."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("name", "value", "unit", "source", "conditions"))
    for name, value, unit, source, conditions in collect():
        where = source if source.startswith("docs/") else f"benchmarks/results/{source}"
        writer.writerow((name, f"{value:.6g}", unit, where, conditions))
    return out.getvalue()


# --- Checks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """The model's prediction and the measurement, for a run that did not provide any constant."""

    what: str
    predicted: float
    measured: float
    source: str

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured


def checks() -> Iterator[Check]:
    """Yield all checks."""
    ingest, hands = read("ingest_scale.json"), read("handshakes.json")["rows"]
    value_of = {name: constant.value for name, constant in scale.constants().items()}
    for store, label in (("sqlite", "SQLite"), ("postgresql", "PostgreSQL")):
        for members in (2, 4):
            predicted = scale.throughput("mosquitto", store, members, cores=2)
            run = ingest[store][str(members)]["per_s"]
            yield Check(f"reports/s, {members} aggregators, {label}", predicted, run, "ingest_scale.json")
    alone = scale.throughput("mosquitto", "sqlite", 1, cores=2)
    run = median(r["aggregator_per_s"] for r in read("ingest.json")["bare, mosquitto"]["rounds"])
    yield Check("reports/s, 1 aggregator, another day", alone, run, "ingest.json")
    run = ingest["sqlite"]["1"]["per_s"]
    yield Check("reports/s, 1 aggregator, 96,000 devices", alone, run, "ingest_scale.json")
    soak = read("soak.json")
    what = f"reports/s, `hushmote serve` for {soak['minutes']:.0f} minutes"
    yield Check(what, alone, soak["per_s"], "soak.json")
    for kind in BROKERS:
        many, steps = connection(hands, kind, MANY), ("connect", "subscribe", "status")
        predicted = sum(value_of[f"{kind} {name}"] for name in steps) * MANY / 1e6
        run = sum(many[f"{name}_us"] for name in steps) * MANY / 1e6
        yield Check(f"{label_of(kind)}: CPU s of {MANY:,} boards", predicted, run, "handshakes.json")
        predicted, run = (x * MANY / 2**20 for x in (value_of[f"{kind} connection"], many["subscribe_bytes"]))
        yield Check(f"{label_of(kind)}: MiB of {MANY:,}", predicted, run, "handshakes.json")
    for row in read("store_bytes.json")["rows"]:
        if row["devices"] == STORE_MANY:
            predicted, run = (
                x * STORE_MANY / 2**20 for x in (value_of[f"{row['store']} device"], row["device"])
            )
            yield Check(f"MiB of {STORE_MANY:,} devices, {row['store']}", predicted, run, "store_bytes.json")
    for row in read("arrival.json")["rows"]:
        if row["way"] == "spread":
            label = f"{label_of(row['broker'])}, {row['boards']} boards spread over {row['spread_s']} s"
            for key, what in ARRIVED.items():
                yield Check(f"{label}: {what}", row[f"simulated_{key}"], row[f"real_{key}"], "arrival.json")


def at_once_table() -> str:
    """Return the table of boards that reconnect at once to a slow broker, measured and simulated."""
    rows = []
    for row in read("arrival.json")["rows"]:
        if row["way"] == "at once":
            real = [short(row[f"real_{key}"]) for key in ("half_s", "all_s", "attempts")]
            simulated = [short(row["simulated_half_s"]), short(row["simulated_attempts"])]
            simulated.insert(1, f"{row['simulated_all_s_low']:.0f} to {row['simulated_all_s_high']:.0f}")
            rows.append((f"{row['boards']}, {label_of(row['broker'])}", *real, *simulated))
    heads = "boards|half back, s|all back, s|attempts|simulated: half|all, 20 seeds|attempts"
    return table(heads.split("|"), rows)


def label_of(kind: str) -> str:
    return {"mosquitto": "mosquitto", "nats 1": "1 NATS server", "nats 3": "3 NATS servers"}[kind]


def arrivals_table() -> str:
    """Return the table of simulated arrivals."""
    rows = []
    for row in read("arrival_simulated.json")["rows"]:
        cores = f"{row['cores']} core{'s' if row['cores'] > 1 else ''}"
        half = "-" if row["half_s"] is None else f"{row['half_s']:.0f}"
        late = f"{int(1000 * row['there']) / 10:g}% after 300"
        back = late if row["all_s"] is None else f"{row['all_s']:.0f}"
        numbers = (f"{row['attempts']:.2f}", f"{row['peak_tried']:,}", f"{100 * row['wasted']:.0f}%")
        who = f"{big(row['boards'])}, {label_of(row['broker'])}, {cores}"
        rows.append((who, row["way"], half, back, *numbers))
    heads = "boards, they try, half back s, all back s, attempts, most a second, for nothing"
    return table(heads.split(", "), rows)


# --- The page -------------------------------------------------------------------------------------


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def checks_table() -> str:
    heads = ("run", "predicted", "measured", "ratio", "from")
    numbers = ((c, (short(c.predicted), short(c.measured), f"{c.ratio:.2f}")) for c in checks())
    return table(heads, [(c.what, *three, f"`{c.source}`") for c, three in numbers])


def short(x: float) -> str:
    """Format a number with three digits and commas, and a tiny one as "< 0.01"."""
    if 0 < x < 0.01:
        return "< 0.01"
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"


def big(n: float) -> str:
    """Format a number with an SI prefix from 1,000 upwards, such as 4.4 M."""
    for unit, name in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if n >= 0.9995 * unit:
            return f"{n / unit:.3g}{name}"
    return f"{n:.3g}"


def fleets_table() -> str:
    """Return the table of fleets with 8 reports per board in 5 years, with sleeping and connected boards."""
    rows = []
    for stays, boards in product((False, True), (10**6, 10**8, 10**9)):
        n = scale.smallest(scale.Fleet(boards, 5 * scale.YEAR_S / 8, stays=stays))
        counts = (n.fleet.reports_per_s * scale.DAY_S, n.standing, n.arriving)
        needs = (n.broker_cores, n.broker_gib, n.aggregator_cores + n.database_cores, n.store_tb * 1000)
        row = (big(boards), "stay" if stays else "sleep", *map(big, counts), *map(short, needs))
        rows.append((*row, short(n.network_mbit), str(n.regions), f"{n.machines:,}", n.first.what))
    heads = (
        "boards, they, reports a day, connected, connect/s, broker cores, broker GiB, other cores, store GB, "
    )
    return table((heads + "Mbit/s, regions, machines, breaks first").split(", "), rows)


TABLES = {
    "checks": checks_table,
    "fleets": fleets_table,
    "arrivals": arrivals_table,
    "at once": at_once_table,
}


def page(content: str) -> str:
    """Regenerate a page's tables."""
    for name, make in TABLES.items():
        begin, end = f"<!-- {name}: made by benchmarks/scale.py -->\n", "\n<!-- end -->"
        head, mark, rest = content.partition(begin)
        if mark:
            content = head + begin + make() + end + rest.partition(end)[2]
    return content


def main() -> None:
    quick = options(__doc__).quick
    if not quick:
        CSV.write_text(text(), encoding="utf-8")
        scale.constants.cache_clear()
    print(checks_table())
    if not quick:
        for path in PAGES:
            path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
