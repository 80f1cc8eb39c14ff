"""A device's lifetime on a model of its storage, with power cuts at each flash operation: power_cuts.c."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from c_core import CORE, compile_c

RIGS = Path(__file__).parent
CORE_FILES = sorted({path.stem for path in CORE.glob("*.c")} - {"check", "fuzz"})
STORAGES = {  # the model's folder, then the files compiled with the core
    "nvs strings": ("idf_model", [CORE / "idf" / "idf_nvs.c"], "storage_nvs.c"),
    "nvs blobs": ("idf_model", [], "storage_blobs.c"),
    "zephyr": ("zephyr_model", [CORE / "zephyr" / "hushmote_zephyr.c"], "storage_zephyr.c"),
}


def build(folder: Path, storage: str, *flags: str) -> Path:
    """Build the program for one of STORAGES; return its path."""
    model, port, adapter = STORAGES[storage]
    sources = [*CORE_FILES, RIGS / "power_cuts.c", RIGS / model / "nvs.c", RIGS / model / adapter]
    headers = [f"-I{RIGS / model}", f"-I{RIGS}", f"-I{CORE / 'idf'}", f"-I{CORE / 'zephyr'}"]
    return compile_c(
        folder / "power_cuts", [*sources, *port], "-std=gnu17", "-Wno-pedantic", *headers, *flags
    )


def live(program: Path, step: int = 1, again: int = 0) -> dict[str, int]:
    """Cut power at every step-th operation, and again `again` operations later; return the counts."""
    done = subprocess.run([program, str(step), str(again)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)
