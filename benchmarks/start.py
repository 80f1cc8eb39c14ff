"""The time from an aggregator's start until it is subscribed, and the CPU time that commands take to start.

    python benchmarks/start.py [--quick] [serve | commands]

serve: the store (SQLite) holds ten reports from each of 10^6 devices, 10^7 in total: a dedupe row per device,
an `hh` histogram with 30 daily windows, 10,000 revoked devices, and a fleet with keys. `hushmote serve` is
started as a command and stopped by SIGTERM, 15 times with the file in memory and 15 times after the system
was asked to drop it from its cache. The time runs from before the start until the line `ready`, which is
printed once the broker has confirmed the subscription and the experiment is published.
commands: the help, an estimate, a status and rejected commands, with CPU budgets. Each runs in its own
process, in turn with `python -c pass`; the result is the lowest user and system time of 15 runs, since a busy
machine only makes runs slower. Compiled modules are in Python's cache, as after a first start. The store
(SQLite) holds 30 days of reports to `hh` over 1,024 values from 20,000 devices.

Writes benchmarks/results/start.json and start_up.json.
"""

import datetime
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from brokers import FLEET, Process, device_name, fill
from published import payload as experiment_payload
from results_file import Options, run

from hushmote.server.store import Store
from hushmote.simulator.broker import MosquittoBroker

REPORTS_EACH = 10
DAYS = 30
REVOKED = 10_000
BUDGETS_S = {"--help": 0.15, "status": 0.7, "estimate": 1.0}
REFUSAL_S = 0.3
REFUSALS = ("plan --devices x", "serve --nothing", "flash", "estimate nothing")
REFUSALS += ("experiment show nothing.toml", "simulate nothing.toml", "status --store sqlite:///no.sqlite")


def make_store(url: str, devices: int) -> int:
    """Make a store that has counted n devices' reports; return the number of reports."""
    rng = np.random.default_rng(1)
    with Store(url) as store:
        store.add_fleet(FLEET, keyed=True)
        exp = store.add_experiment(FLEET, experiment_payload("hh", 1024, 1_000_000))
        store.revoke_devices(FLEET, [f"r{i:06}" for i in range(REVOKED)])
        codes = rng.integers(0, exp.code_count, (DAYS, devices * REPORTS_EACH // DAYS))
        days = (str(datetime.date(2026, 1, 1) + datetime.timedelta(day)) for day in range(DAYS))
        windows = dict(zip(days, map(np.bincount, codes), strict=True))
        fill(store, FLEET, [*map(device_name, range(devices))], windows, reports=REPORTS_EACH)
        return int(codes.size)


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def start(url: str, port: int) -> tuple[float, float]:
    """Return the seconds until `hushmote serve` is subscribed, and its CPU seconds until it ends."""
    before, begin = _children_cpu_s(), time.perf_counter()
    with Process("serve", "--store", url, "--broker", f"mqtt://127.0.0.1:{port}", keyed=True):
        seconds = time.perf_counter() - begin
    return seconds, _children_cpu_s() - before


def forget(path: Path) -> None:
    """Ask the system to drop a file from its cache."""
    for part in path.parent.glob(path.name + "*"):
        fd = os.open(part, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def alone(*command: str, refused: bool) -> float:
    """Run a command; return its CPU seconds."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = _children_cpu_s()
    subprocess.run(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=not refused
    )
    return _children_cpu_s() - before


def started(options: Options) -> dict:
    devices, rounds = (10_000, 3) if options.quick else (1_000_000, 15)
    with tempfile.TemporaryDirectory() as folder, MosquittoBroker() as broker:
        full = Path(folder) / "full.sqlite"
        reports = make_store(f"sqlite:///{full}", devices)
        size_bytes = full.stat().st_size
        start(f"sqlite:///{full}", broker.port)  # compile and cache everything
        rows = {"in memory": [start(f"sqlite:///{full}", broker.port) for _ in range(rounds)]}
        cold = rows["forgotten"] = []
        for _ in range(rounds):
            forget(full)
            cold.append(start(f"sqlite:///{full}", broker.port))
    result: dict = {"devices": devices, "reports": reports, "store_bytes": size_bytes}
    for i, name in enumerate(("seconds", "cpu_s")):
        result[name] = {row: [round(times[i], 3) for times in starts] for row, starts in rows.items()}
    return result


def commands(options: Options) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'store.sqlite'}"
        make_store(store, 20_000)
        ours = (sys.executable, "-m", "hushmote")
        commands_timed = {
            "python -c pass": (sys.executable, "-c", "pass"),
            "--help": (*ours, "--help"),
            "estimate": (*ours, "estimate", "bench", "--store", store, "--fleet", FLEET),
            "status": (*ours, "status", "--store", store),
        }
        commands_timed |= {line: (*ours, *line.split()) for line in REFUSALS}
        commands_timed["estimate nothing"] += ("--store", store)
        rounds = [
            {n: alone(*c, refused=n in REFUSALS) for n, c in commands_timed.items()}
            for _ in range(2 if options.quick else 16)
        ]
    budgets = dict.fromkeys(REFUSALS, REFUSAL_S) | BUDGETS_S
    least = {name: round(min(row[name] for row in rounds), 3) for name in commands_timed}
    return {name: {"cpu_s": took, "budget_s": budgets.get(name)} for name, took in least.items()}


if __name__ == "__main__":
    files, parts = {"commands": "start_up.json"}, {"serve": started, "commands": commands}
    run(__doc__, "start.json", parts, files=files, keys={"serve": "", "commands": "least_cpu_s"})
