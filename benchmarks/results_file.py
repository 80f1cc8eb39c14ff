"""The benchmarks' shared helpers: options, tables, and result files with one line per row.

After importing this module, modules in tests/support and rigs can be imported by name.
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
    """Describe this run's date and machine."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    cpu = next((line for line in lines if line.startswith("model name")), ": unknown")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu.partition(":")[2].strip(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],  # if well above 1, the machine was busy and times are too long
        "system": platform.platform(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def read(name: str) -> dict[str, Any]:
    """Return a benchmark's last result, or an empty dict."""
    path = RESULTS / name
    return json.loads(path.read_text()) if path.exists() else {}


def write(name: str, value: dict[str, Any]) -> None:
    """Write a benchmark's result to results/name; NumPy numbers become floats."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text(_text(value) + "\n")


def _text(value: Any, indent: str = "") -> str:
    """Return JSON with one line per list row and per object of plain values."""
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
    """Return a process's resident memory, or its peak with VmHWM.

    getrusage() is unsuitable, because its maximum includes the parent's memory at the time of the fork.
    """
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{field}:")[2].split()[0]) / 1024


def min_cpu_s(work: Callable[[], object], rounds: int) -> float:
    """Return the lowest CPU time of several calls, since other load on the machine only adds to it."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


# --- Options and tables ---------------------------------------------------------------------------


def options(doc: str | None, parts: Mapping[str, Any] | None = None, **more: dict[str, Any]):
    """Parse a script's options: --quick, its parts if it has several, and --name for each of `more`."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=form)
    parser.add_argument("--quick", action="store_true", help="run a minimal version and write nothing")
    names = tuple(parts or ())
    if len(names) > 1:
        help_text = f"any of {', '.join(names)}; default: all. The other parts keep their last results"
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
    """Run a benchmark's requested parts; after each, print its table and write results/name.

    A part is called with the options and returns rows, or a dict. The part "" returns the file's top-level
    fields.

    Args:
        doc: The script's docstring.
        name: The result file.
        parts: The parts' functions by name.
        own_machine: Whether to record the machine and the seconds separately for each part.
        head: The file's first fields, instead of its machine.
        files: Result files of parts that are not written to `name`.
        keys: The parts' keys in the file, if they differ from their names.
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
                    key = (keys or {}).get(part, part)
                    about |= {key: value} if key else value
                file = (files or {}).get(part, name)
                write(file, read(file) | about)
    return results


def show(title: str, result: Any) -> None:
    """Print rows as a table with a column per field; for a dict, print each of its tables."""
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


def _cells(row: Mapping[str, Any], prefix: str = ""):
    for key, value in row.items():
        if isinstance(value, Mapping):
            yield from _cells(value, f"{prefix}{key} ")
        else:
            yield f"{prefix}{key}".replace("_", " "), _cell(value)


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:,.0f}" if 1000 <= abs(value) < np.inf else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return " ".join(map(_cell, value))
    return "" if value is None else str(value)
