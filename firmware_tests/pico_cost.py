# ruff: noqa: E501 (lines of prose)
"""Time and heap on the emulated Pico, for write_cost.py."""

import hashlib
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import run
import runtimes
from emulation.pico import board, build
from measure_pico import TURNS

from hushmote.fleet.provisioning import usb
from hushmote.fleet.provisioning.flash import MODULES
from hushmote.server.wire import keys

KINDS = ("source", "compiled", "frozen")
_CYCLES_PER_MS = 125_000
_MPY_6 = 6
IN_ORDER = tuple(sorted(MODULES, key="consent".__eq__))  # consent imports reporter_base


@dataclass(frozen=True)
class PicoReport:
    """Milliseconds at 125 MHz for a mechanism's calls, with the ledger in memory."""

    mechanism: str
    keyed_ms: float
    open_ms: float
    sent_ms: float
    enroll_ms: float


@dataclass(frozen=True)
class PicoCosts:
    """The measurements.

    Attributes:
        imports: For each kind and module, the heap bytes kept and the milliseconds.
    """

    turns: int
    sha256_ms: float
    verify_ms: float
    reports: tuple[PicoReport, ...]
    flash_report_ms: float
    flash_sent_ms: float
    imports: dict[str, dict[str, tuple[int, float]]]


def measure(experiments: dict[str, bytes]) -> PicoCosts:
    """Run measure_pico on the emulated board, for reports and for each way of importing."""
    if not board.FIRMWARE.exists():
        sys.exit("the emulated Pico is needed: make pico; nothing is written")
    build.freeze(runtimes.RIG, runtimes.ROOT / "device")
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        (folder / "costs.json").write_text(
            json.dumps(
                {"experiments": {n: t.decode() for n, t in experiments.items()}, "signature": _signed()}
            )
        )
        (folder / "modules.json").write_text(json.dumps(IN_ORDER))
        done = _run(folder, "compiled", "reports", board.FIRMWARE)
        times = _times(done.log)
        reports = []
        for i, name in enumerate(experiments):
            keyed, sent, unkeyed = (_median(times, 100 + 4 * i + k) for k in (0, 1, 2))
            reports.append(PicoReport(name, keyed, unkeyed, sent, _median(times, 10 + i)))
        imports = {}
        for kind in KINDS:
            firmware = board.FROZEN if kind == "frozen" else board.FIRMWARE
            done = _run(folder, kind, "imports", firmware)
            heap_kept = json.loads(done.output.split("KEPT", 1)[1])
            times = {**times, **_times(done.log)}
            imports[kind] = {
                name: (size, _median(times, 200 + n)) for n, (name, size) in enumerate(heap_kept)
            }
    return PicoCosts(
        TURNS,
        _median(times, 1),
        _median(times, 2),
        tuple(reports),
        _median(times, 3),
        _median(times, 4),
        imports,
    )


def _signed() -> list[str]:
    """Return an experiment's public key, digest and signature, in hex."""
    signing_key = bytes(range(32))
    topic = "hushmote/v1/house/experiment/temperature"
    payload = keys.sign_experiment(signing_key, topic, b"{}", 1)
    digest = hashlib.sha256(topic.encode() + b"\0" + payload[:-64]).digest()
    return [keys.public_key_bytes(signing_key).hex(), digest.hex(), payload[-64:].hex()]


def _run(folder: Path, kind: str, function: str, firmware: Path) -> board.Run:
    names = ["costs.json", "modules.json"]
    for path in (run.HERE / "measure_pico.py", *(run.DEVICE / f"{m}.py" for m in MODULES)):
        if path.stem in MODULES and kind == "frozen":
            continue
        source = path.stem in MODULES and kind == "source"
        name = path.name if source else path.stem + ".mpy"
        (folder / name).write_bytes(path.read_bytes() if source else usb.compile_mpy(path, _MPY_6, path.name))
        names.append(name)
    image = folder / f"{kind}.img"
    image.unlink(missing_ok=True)
    board.make_image(image, folder, names)
    script = folder / "script.py"
    script.write_text(f"import measure_pico\nmeasure_pico.{function}()\n")
    done = board.run(script, image, firmware=firmware)
    if done.error:
        sys.exit(f"measure_pico.{function}, {kind}: {done.error.splitlines()[-1]}; nothing is written")
    return done


def _times(log: dict[str, Any]) -> dict[int, list[float]]:
    """Return the milliseconds between each number's two marks."""
    times: dict[int, list[float]] = {}
    marks = log["marks"]
    for start, end in zip(marks[::2], marks[1::2], strict=True):
        assert start["n"] == end["n"], (start, end)
        times.setdefault(start["n"], []).append((end["cycles"] - start["cycles"]) / _CYCLES_PER_MS)
    return times


def _median(times: dict[int, list[float]], number: int) -> float:
    return median(times[number])


def part(pico: PicoCosts, smallest: dict[str, int]) -> list[str]:
    """Return the section for docs/reporter.md.

    Args:
        pico: The measurements.
        smallest: Smallest heap, in KiB, for importing ldp_client, by kind.
    """
    text = [
        "### Time on a Pico",
        "",
        "Cycles of MicroPython's own firmware for the RP2040 in an emulator, converted to milliseconds at 125 MHz; medians of"
        f" {pico.turns}; the ledger in memory. The emulator does not wait for the external flash, so a chip takes longer."
        f" One SHA-256 of 64 bytes takes {pico.sha256_ms:.2f} ms in mbedTLS at `-Os`, as MicroPython builds it.",
        "",
        "| mechanism | `report()`, keyed | `report()`, open | `sent()` | `enroll()` |",
        "|---|---|---|---|---|",
    ]
    text += [
        f"| {p.mechanism} | {p.keyed_ms:.1f} ms | {p.open_ms:.1f} ms | {p.sent_ms:.1f} ms | {p.enroll_ms:.0f} ms |"
        for p in pico.reports
    ]
    text += [
        "",
        f"* With the ledger in littlefs, `report()` with hh takes {pico.flash_report_ms:.1f} ms and `sent()`"
        f" {pico.flash_sent_ms:.1f} ms of processor time, plus the flash chip's own (a W25Q16JV typically programs"
        " a page in 0.4 ms and erases a sector in 45 ms).",
        f"* Verifying an experiment's signature takes {pico.verify_ms / 1000:.2f} s, once for each new version.",
        "",
        "### Frozen into the firmware",
        "",
        "**Frozen modules take a quarter of the heap.** `device/manifest.py` freezes them: `make BOARD=RPI_PICO_W"
        " FROZEN_MANIFEST=.../device/manifest.py` in `ports/rp2` of MicroPython's sources; `make pico` does it for the emulated Pico. Importing takes, in bytes of heap and in milliseconds at each start:",
        "",
        "| | source | | `.mpy` | | frozen | |",
        "|---|---|---|---|---|---|---|",
    ]
    import_costs = [pico.imports[kind].values() for kind in KINDS]
    cells = [f"{sum(k for k, _ in v):,} | {sum(ms for _, ms in v):.0f} ms" for v in import_costs]
    text.append("| all modules | " + " | ".join(cells) + " |")
    text += [
        "",
        f"`ldp_client.py` can be imported in a heap of {smallest['source']} KiB, `ldp_client.mpy` in"
        f" {smallest['compiled']} KiB. So `hushmote flash` and `make mip` put compiled files on boards.",
    ]
    return text
