"""What benchmarks share: their options, their tables, and their files in benchmarks/results, a row a line.

After it, modules of tests/support can be imported by their names.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

Options = argparse.Namespace
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
sys.path += [str(ROOT / "tests" / "support"), str(ROOT / "rigs")]
CONSOLE = Console(width=180)


def machine() -> dict:
    """When and on what this ran."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line for line in lines if line.startswith("model name")), ": unknown")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu.partition(":")[2].strip(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],  # well above 1: others were using the machine, times are too long
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def read(name: str) -> dict[str, Any]:
    """A benchmark's last result; empty where there is none."""
    path = RESULTS / name
    return json.loads(path.read_text()) if path.exists() else {}


def write(name: str, value: dict[str, Any]) -> None:
    """Write a benchmark's result as results/name; NumPy's numbers become floats."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text(_text(value) + "\n")


def _text(value: Any, indent: str = "") -> str:
    """JSON with one line for each row of a list, and for what holds only plain values."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if not any(isinstance(item, dict | list | tuple) for item in items):
        return json.dumps(value, default=float)
    deeper = indent + " "
    if isinstance(value, dict):
        lines = [f"{deeper}{json.dumps(str(key))}: {_text(item, deeper)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    lines = [deeper + json.dumps(item, default=float) for item in items]
    return "[\n" + ",\n".join(lines) + f"\n{indent}]"


def memory_mib(pid: int | str = "self", field: str = "VmRSS") -> float:
    """Resident memory of a process, or with VmHWM its peak.

    Not getrusage(): its most includes what the parent had when it made this process.
    """
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{field}:")[2].split()[0]) / 1024


def least_cpu_s(work: Callable[[], object], rounds: int) -> float:
    """Least CPU time of so many calls: what else runs on the machine only ever adds to it."""
    taken = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        taken.append(time.process_time() - start)
    return min(taken)


# --- Options and tables ---------------------------------------------------------------------------


def options(doc: str | None, parts: Mapping[str, Any] | None = None, **more: dict[str, Any]):
    """A script's options: --quick, its parts where it has several, and --name for each of `more`."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=form)
    parser.add_argument("--quick", action="store_true", help="its smallest form; writes nothing")
    names = tuple(parts or ())
    if len(names) > 1:
        said = f"of {', '.join(names)}; without any: all. What is left out stays as it was measured"
        parser.add_argument("parts", nargs="*", choices=(*names, []), metavar="part", help=said)
    for name, settings in more.items():
        parser.add_argument("--" + name.replace("_", "-"), **settings)
    return parser.parse_args()


def run(
    doc: str | None,
    name: str,
    parts: Mapping[str, Callable[[Options], Any]],
    *,
    own_machine: bool = False,
    head: dict[str, Any] | None = None,
    files: Mapping[str, str] | None = None,
    keys: Mapping[str, str] | None = None,
    **more: dict[str, Any],
) -> dict[str, Any]:
    """Run a benchmark: each part that was asked for, its table, and results/name after each of them.

    A part gets the options and returns rows, or a dict. The part "" returns the file's own fields.
    own_machine: each part has a machine and its seconds of its own. head: what a file begins with in place of
    its machine. files: of parts that are not in `name`. keys: what a file calls a part, if not by its name.
    Returns what was found by part.
    """
    asked, found = options(doc, parts, **more), {}
    for part, function in parts.items():
        if part in (getattr(asked, "parts", None) or parts):
            start = time.perf_counter()
            value = found[part] = function(asked)
            seconds = time.perf_counter() - start
            show(part, value)
            CONSOLE.print(f"{part or name}: {seconds:.0f} s")
            if not asked.quick:
                about = {"machine": machine()} if head is None else head
                if own_machine:
                    rows = value if isinstance(value, dict) else {"rows": value}
                    about = {part: about | {"seconds": round(seconds)} | rows}
                else:
                    own = (keys or {}).get(part, part)
                    about |= {own: value} if own else value
                file = (files or {}).get(part, name)
                write(file, read(file) | about)
    return found


def show(title: str, found: Any) -> None:
    """Print rows as a table with a column for each of their fields; of a dict, each table that is in it."""
    if isinstance(found, Mapping) and found and all(isinstance(value, Mapping) for value in found.values()):
        found = [{"": key} | dict(value) for key, value in found.items()]
    if isinstance(found, Mapping):
        plain = {key: value for key, value in found.items() if not _has_rows(value)}
        show(title, [plain] if plain else [])
        for key in found.keys() - plain.keys():
            show(f"{title} {key}", found[key])
    elif found and isinstance(found[0], Mapping):
        rows = [dict(_cells(row)) for row in found]
        headings = dict.fromkeys(key for row in rows for key in row)
        table = Table(*headings, title=title, title_justify="left", box=None, header_style="bold")
        for row in rows:
            table.add_row(*(row.get(key, "") for key in headings))
        CONSOLE.print(table)


def _has_rows(value: Any) -> bool:
    """Whether it is a table of its own, and no cell."""
    items = value if isinstance(value, list | tuple) else [value]
    return any(isinstance(item, Mapping) for item in items)


def _cells(row: Mapping[str, Any], of: str = ""):
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _cells(value, f"{of}{key} ")
        else:
            yield f"{of}{key}".replace("_", " "), _cell(value)


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if 1000 <= abs(value) < np.inf else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " ".join(map(_cell, value))
    return "" if value is None else str(value)
