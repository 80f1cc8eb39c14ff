"""The time and memory to read a million rows, compared with pandas, each in its own process.

    python benchmarks/csv_files.py [--quick]

Each file has three columns: a number for each row, a reading, and a word. pandas reads only that column
and is given the encoding and the decimal separator, which Hushmote detects. Times are CPU times and include
the imports.

Writes benchmarks/results/csv_files.json.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from results_file import Options, run

ROWS, QUICK_ROWS = 1_000_000, 100_000
_OURS = """
from hushmote.simulator.population import read_csv
count = len(read_csv(path, "temp").readings)
"""
_PANDAS = """
import pandas
count = len(pandas.read_csv(path, usecols=["temp"], {arguments})["temp"])
"""
_MEASURE = """
import sys, time
from pathlib import Path
path = sys.argv[1]
{body}
peak_kib = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
print(count, time.process_time(), int(peak_kib) / 1024)
"""


def write_file(path: Path, rows: int, form: str) -> str:
    """Write a file, and return the arguments with which pandas reads it."""
    readings = np.random.default_rng(1).normal(21, 3, rows)
    if form == "tenths":
        cells, delimiter, arguments = [f"{x:.1f}" for x in readings], ",", "encoding='cp1252'"
    elif form == "millionths":
        cells, delimiter, arguments = [f"{x:.6f}" for x in readings], ",", "encoding='cp1252'"
    else:
        cells, delimiter = [f"{x:.2f}".replace(".", ",") for x in readings], ";"
        arguments = "sep=';', decimal=',', encoding='cp1252'"
    with open(path, "w", encoding="cp1252") as file:
        file.write(delimiter.join(("time", "temp", "Gerät")) + "\n")
        file.writelines(f"{i}{delimiter}{cell}{delimiter}heizt\n" for i, cell in enumerate(cells))
    return arguments


def measure(body: str, path: Path) -> tuple[int, float, float]:
    """Return the number of readings, the CPU seconds and the peak MiB of a process that reads a file."""
    command = [sys.executable, "-c", _MEASURE.format(body=body), str(path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(output[0]), float(output[1]), float(output[2])


def compare(settings: Options) -> list[dict[str, Any]]:
    """Return a row for each form of the readings."""
    rows, results = QUICK_ROWS if settings.quick else ROWS, []
    with tempfile.TemporaryDirectory() as folder:
        for form in ("tenths", "millionths", "decimal commas"):
            path = Path(folder) / "readings.csv"
            arguments = write_file(path, rows, form)
            count, ours_s, ours_mib = measure(_OURS, path)
            assert count == rows
            _, pandas_s, pandas_mib = measure(_PANDAS.format(arguments=arguments), path)
            times = {
                "rows": rows,
                "hushmote_s": ours_s,
                "pandas_s": pandas_s,
                "time_ratio": ours_s / pandas_s,
            }
            memory = {
                "hushmote_mib": ours_mib,
                "pandas_mib": pandas_mib,
                "memory_ratio": ours_mib / pandas_mib,
            }
            results.append({"readings": form} | times | memory)
    return results


if __name__ == "__main__":
    run(__doc__, "csv_files.json", {"reading": compare})
