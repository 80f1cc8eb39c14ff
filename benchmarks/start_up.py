"""CPU that commands take for a start, beside Python alone: help, the version, an estimate, a status.

    python benchmarks/start_up.py [--quick]

Each command is a process of its own, in turn with `python -c pass`; user and system time of each, the least
of 15 runs, since a busy machine makes a run slower, never faster. Compiled modules are in Python's cache, as
after a first start. The store (SQLite) holds 30 days of 20,000 devices' reports to `hh` over 1,024 values.
Wanted are at most 0.4 s of --help and 1.2 s of an estimate. Writes benchmarks/results/start_up.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from results_file import run
from start import FLEET, fill


def cpu_s(*command: str) -> float:
    """User and system seconds of one process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime


def least(options: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{Path(folder) / 'store.sqlite'}"
        fill(store, 20_000)
        ours = (sys.executable, "-m", "hushmote")
        commands = {
            "python -c pass": (sys.executable, "-c", "pass"),
            "--help": (*ours, "--help"),
            "--version": (*ours, "--version"),
            "estimate": (*ours, "estimate", "bench", "--store", store, "--fleet", FLEET),
            "status": (*ours, "status", "--store", store),
        }
        rounds = [{n: cpu_s(*c) for n, c in commands.items()} for _ in range(2 if options.quick else 16)]
    return {name: round(min(row[name] for row in rounds), 3) for name in commands}


if __name__ == "__main__":
    run(__doc__, "start_up.json", {"least_cpu_s": least})
