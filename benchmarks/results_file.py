"""What a benchmark leaves in benchmarks/results: a JSON file with one row a line, and what it ran on."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"


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
