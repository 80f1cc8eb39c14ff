"""Shared parts of the benchmarks: options, tables, and files in benchmarks/results with one line per row.

After importing it, modules of tests/support can be imported by name.
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
    """Return the date and the machine of this run."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line for line in lines if line.startswith("model name")), ": unknown")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu.partition(":")[2].strip(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],  # well above 1: the machine was busy, and times are too long
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def read(name: str) -> dict[str, Any]:
    """Return a benchmark's last result, or an empty dict."""
    path = RESULTS / name
    return json.loads(path.read_text()) if path.exists() else {}


def write(name: str, value: dict[str, Any]) -> None:
    """Write a benchmark's result as results/name; NumPy's numbers become floats."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text(_text(value) + "\n")


def _text(value: Any, indent: str = "") -> str:
    """Return JSON with one line for each row of a list, and for each object of plain values."""
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
    """Return resident memory of a process, or with VmHWM its peak.

    Not getrusage(): its maximum includes the parent's memory when it made this process.
    """
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{field}:")[2].split()[0]) / 1024


def least_cpu_s(work: Callable[[], object], rounds: int) -> float:
    """Return the least CPU time of several calls, since other load on the machine only adds to it."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


# --- Options and tables ---------------------------------------------------------------------------


def options(doc: str | None, parts: Mapping[str, Any] | None = None, **more: dict[str, Any]):
    """Return a script's options: --quick, its parts if it has several, and --name for each of `more`."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=form)
    parser.add_argument("--quick", action="store_true", help="its smallest form; writes nothing")
    names = tuple(parts or ())
    if len(names) > 1:
        help_text = f"of {', '.join(names)}; without any: all. What is left out stays as it was measured"
        parser.add_argument("parts", nargs="*", choices=(*names, []), metavar="part", help=help_text)
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
    """Run a benchmark: each requested part, its table, and results/name after each of them.

    A part gets the options and returns rows, or a dict. The part "" returns the file's own fields.

    Args:
        doc: The script's docstring.
        name: The result file.
        parts: Functions by name.
        own_machine: Each part has its own machine and seconds.
        head: The file's first fields, in place of its machine.
        files: Parts that are not in `name`.
        keys: Names of parts in the file, if different.
        more: Further options.

    Returns:
        The results by part.
    """
    settings, results = options(doc, parts, **more), {}
    for part, function in parts.items():
        if part in (getattr(settings, "parts", None) or parts):
            start = time.perf_counter()
            value = results[part] = function(settings)
            seconds = time.perf_counter() - start
            show(part, value)
            CONSOLE.print(f"{part or name}: {seconds:.0f} s")
            if not settings.quick:
                about = {"machine": machine()} if head is None else head
                if own_machine:
                    rows = value if isinstance(value, dict) else {"rows": value}
                    about = {part: about | {"seconds": round(seconds)} | rows}
                else:
                    own = (keys or {}).get(part, part)
                    about |= {own: value} if own else value
                file = (files or {}).get(part, name)
                write(file, read(file) | about)
    return results


def show(title: str, result: Any) -> None:
    """Print rows as a table with a column for each field; for a dict, each table in it."""
    if (
        isinstance(result, Mapping)
        and result
        and all(isinstance(value, Mapping) for value in result.values())
    ):
        result = [{"": key} | dict(value) for key, value in result.items()]
    if isinstance(result, Mapping):
        plain = {key: value for key, value in result.items() if not _has_rows(value)}
        show(title, [plain] if plain else [])
        for key in result.keys() - plain.keys():
            show(f"{title} {key}", result[key])
    elif result and isinstance(result[0], Mapping):
        rows = [dict(_cells(row)) for row in result]
        headings = dict.fromkeys(key for row in rows for key in row)
        table = Table(*headings, title=title, title_justify="left", box=None, header_style="bold")
        for row in rows:
            table.add_row(*(row.get(key, "") for key in headings))
        CONSOLE.print(table)


def _has_rows(value: Any) -> bool:
    """Return whether a value is a table rather than a cell."""
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
