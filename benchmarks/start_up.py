"""CPU that commands take for a start, beside Python alone: help, the version, an estimate, a status.

    python benchmarks/start_up.py [--quick]

Each command is a process of its own, in turn with `python -c pass`; user and system time of each, the least
of 15 runs, since a busy machine makes a run slower, never faster. Compiled modules are in Python's cache, as
after a first start. The store (SQLite) holds 30 days of 20,000 devices' reports to `hh` over 1,024 values.
Writes benchmarks/results/start_up.json.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from results_file import machine, write
from rich.console import Console
from rich.table import Table
from start import FLEET, fill

# CPU seconds that are wanted at most.
LIMITS = {"--help": 0.4, "estimate": 1.2}


def cpu_s(*command: str) -> float:
    """User and system seconds of one process."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU that commands take for a start.")
    parser.add_argument("--quick", action="store_true", help="5 runs; writes no file")
    quick = parser.parse_args().quick
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
        least = {name: cpu_s(*command) for name, command in commands.items()}
        for _ in range(5 if quick else 15):
            least = {name: min(least[name], cpu_s(*command)) for name, command in commands.items()}
    table = Table("", "CPU s", "of python's", "wanted", title="least CPU of a start")
    for name, seconds in least.items():
        limit = LIMITS.get(name)
        ratio = seconds / least["python -c pass"]
        table.add_row(name, f"{seconds:.2f}", f"{ratio:.1f}", "" if limit is None else f"at most {limit}")
    Console(width=80).print(table)
    if not quick:
        rounded = {name: round(seconds, 3) for name, seconds in least.items()}
        write("start_up.json", {"machine": machine(), "least_cpu_s": rounded})


if __name__ == "__main__":
    main()
