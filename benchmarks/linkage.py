"""How many reports PostgreSQL's transaction records link to their devices, by batch size.

    python benchmarks/linkage.py [--quick]

Each device reports once, with uniform readings of 64 bins and grr at epsilon 1, in batches of n reports
through the real ingest path into a real PostgreSQL. Two observers guess each device's code:

    rows      reads the database once, afterwards, and compares a device's row with the counts that have the
              same xmin
    journal   sees every commit separately, like someone with the transaction log or its archive: the devices
              that changed, and by how much each count grew

"guessed" is the share of devices whose code the observer's best guess gets right; "certain" is the share
whose code it knows for sure. A code is not a reading: epsilon still bounds how much it reveals about the
reading.

Writes benchmarks/results/linkage.json.
"""

import datetime
from collections import Counter, defaultdict

import numpy as np
from published import payload
from results_file import Options, machine, run
from sqlalchemy import text

from hushmote.device.ldp_client import Experiment
from hushmote.server.ingest import pipeline as ingest
from hushmote.server.store import Store
from hushmote.server.wire import report, topics
from hushmote.simulator import vectorised

# isort: split
from postgres import Cluster, find_postgres  # pyright: ignore[reportMissingImports]

FLEET = "home"
NOW = datetime.datetime(2026, 11, 21, 14, tzinfo=datetime.UTC)
PAYLOAD = payload("grr", 64, 1_000_000, budget={"rule": "sum", "cap": 1_000_000}, window="day")
ROWS = text("SELECT d.device, h.code FROM dedupe d LEFT JOIN histogram h ON d.xmin = h.xmin")


def measure(cluster: Cluster, batch: int, devices: int, rng: np.random.Generator) -> dict:
    """Ingest in batches, then have both observers guess."""
    with Store(cluster.url(cluster.create())) as store:
        store.add_fleet(FLEET, keyed=False)
        exp = store.add_experiment(FLEET, PAYLOAD)
        codes = vectorised.codes(exp, rng.integers(0, exp.domain, devices), rng)
        sent = {f"d{i:05}": int(code) for i, code in enumerate(codes)}
        certain, guessed = journal(store, exp, sent, batch)
        candidates: dict[str, set[int]] = defaultdict(set)
        with store.engine.connect() as connection:
            for device, code in connection.execute(ROWS):
                candidates[device] |= set() if code is None else {code}
    # Without a candidate, all 64 codes are equally good guesses.
    chances = [(sent[d] in f) / len(f) if f else 1 / exp.code_count for d, f in candidates.items()]
    row = {"batch": batch, "devices": devices, "rows_guessed": float(np.mean(chances))}
    return row | {"journal_guessed": guessed / devices, "journal_certain": certain / devices}


def journal(store: Store, exp: Experiment, sent: dict[str, int], batch: int) -> tuple[int, int]:
    """Ingest batch by batch; return the number of codes that commits reveal, and of correct guesses."""
    fleets = ingest.fleets(store)
    certain = guessed = 0
    before = store.histogram(FLEET, exp.digest)
    devices = list(sent)
    for start in range(0, len(devices), batch):
        part = devices[start : start + batch]
        messages = [(topics.report_topic(FLEET, d), report.encode(exp, 1, sent[d])) for d in part]
        ingest.ingest(store, messages, fleets, NOW)
        now = store.histogram(FLEET, exp.digest)
        grown = Counter({int(code): int(n) for code, n in enumerate(now - before) if n})
        assert grown == Counter(sent[d] for d in part)
        guessed += grown.most_common(1)[0][1]
        certain += len(part) * (len(grown) == 1)
        before = now
    return certain, guessed


def linked(options: Options) -> list[dict]:
    rng = np.random.default_rng(20261121)
    sizes = {1: 2000, 3: 3000, 10: 5000, 30: 6000, 100: 10_000, 1000: 20_000}
    if options.quick:
        sizes = {1: 200, 10: 1000}
    with Cluster() as cluster:
        return [measure(cluster, batch, devices, rng) for batch, devices in sizes.items()]


if __name__ == "__main__":
    if find_postgres() is None:
        print("skipped: PostgreSQL is not installed")
    else:
        run(__doc__, "linkage.json", {"linked": linked}, head=machine() | {"bins": 64, "epsilon": 1.0})
