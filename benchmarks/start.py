"""Time from the start of the process to subscribed, on a store that has counted much.

    python benchmarks/start.py [--quick]

The store (SQLite) holds ten reports each of 10^6 devices, 10^7 in all: a dedupe row for each device, a
histogram of `hh` with a day's window for each of 30 days, 10,000 revoked devices, a fleet with keys.
`hushmote serve` is started as a command and ended by SIGTERM, 15 times with the file in memory and 15 times
after the system was asked to forget it; the clock runs from before the start to the line `ready`, which
follows the broker's answer to the subscription and the publication of the experiment. Beside it: the same
with an empty store, and Python alone. Writes benchmarks/results/start.json.
"""

import argparse
import datetime
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from published import payload as experiment_payload
from results_file import run
from sqlalchemy import insert

from hushmote.server.service.process import READY
from hushmote.server.store import Store, schema
from hushmote.server.store.number_set import NumberSet
from hushmote.server.wire import keys
from hushmote.simulator.broker import MosquittoBroker

FLEET = "bench"
MASTER = bytes(range(32))
REPORTS_EACH = 10
DAYS = 30
REVOKED = 10_000
_ROWS = 50_000


def fill(url: str, devices: int) -> int:
    """Make a store as after n devices' reports; returns how many reports it has counted."""
    rng = np.random.default_rng(1)
    with Store(url) as store:
        store.add_fleet(FLEET, keyed=True)
        exp = store.add_experiment(FLEET, experiment_payload("hh", 1024, 1_000_000))
        if not devices:
            return 0
        store.revoke_devices(FLEET, [f"r{i:06}" for i in range(REVOKED)])
        (version,) = store.experiments()
        numbers = NumberSet(REPORTS_EACH).encode()[0]
        first = datetime.date(2026, 1, 1)
        codes = rng.integers(0, exp.code_count, (DAYS, devices * REPORTS_EACH // DAYS))
        with store.writing() as connection:
            for start in range(0, devices, _ROWS):
                rows = [
                    {
                        "fleet": FLEET,
                        "experiment": exp.name,
                        "device": f"d{i:07}",
                        "numbers": numbers,
                        "accepted": REPORTS_EACH,
                    }
                    for i in range(start, min(devices, start + _ROWS))
                ]
                connection.execute(insert(schema.dedupe), rows)
            for day in range(DAYS):
                window = str(first + datetime.timedelta(day))
                counts = np.bincount(codes[day], minlength=exp.code_count)
                rows = [
                    {"experiment": version.id, "window": window, "code": code, "count": int(counts[code])}
                    for code in np.flatnonzero(counts).tolist()
                ]
                connection.execute(insert(schema.histogram), rows)
        return int(codes.size)


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def start(url: str, port: int) -> tuple[float, float]:
    """Seconds from the start of `hushmote serve` to subscribed, and CPU seconds of its whole short life."""
    command = [sys.executable, "-m", "hushmote", "serve", "--store", url]
    command += ["--broker", f"mqtt://127.0.0.1:{port}"]
    environment = os.environ | {keys.ENVIRONMENT_VARIABLE: f"{MASTER.hex()},signing:{MASTER.hex()}"}
    before = _children_cpu_s()
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline().strip()
        seconds = time.perf_counter() - begin
        process.terminate()
        assert line == READY, process.stderr.read()
    return seconds, _children_cpu_s() - before


def forget(path: Path) -> None:
    """Ask the system to keep nothing of a file in memory."""
    for part in path.parent.glob(path.name + "*"):
        fd = os.open(part, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def python_alone() -> tuple[float, float]:
    before, begin = _children_cpu_s(), time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - begin, _children_cpu_s() - before


def started(options: argparse.Namespace) -> dict:
    devices, rounds = (10_000, 3) if options.quick else (1_000_000, 15)
    rows: dict[str, list[tuple[float, float]]] = {"Python alone": [python_alone() for _ in range(rounds)]}
    with tempfile.TemporaryDirectory() as folder, MosquittoBroker() as broker:
        empty, full = Path(folder) / "empty.sqlite", Path(folder) / "full.sqlite"
        fill(f"sqlite:///{empty}", 0)
        reports = fill(f"sqlite:///{full}", devices)
        size_bytes = full.stat().st_size
        start(f"sqlite:///{empty}", broker.port)  # whatever the first start compiles or caches
        rows["empty store"] = [start(f"sqlite:///{empty}", broker.port) for _ in range(rounds)]
        rows["full store, in memory"] = [start(f"sqlite:///{full}", broker.port) for _ in range(rounds)]
        cold = rows["full store, forgotten"] = []
        for _ in range(rounds):
            forget(full)
            cold.append(start(f"sqlite:///{full}", broker.port))
    result: dict = {"devices": devices, "reports": reports, "store_bytes": size_bytes}
    for i, name in enumerate(("seconds", "cpu_s")):
        result[name] = {row: [round(times[i], 3) for times in starts] for row, starts in rows.items()}
    return result


if __name__ == "__main__":
    run(__doc__, "start.json", {"": started})
