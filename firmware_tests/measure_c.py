# ruff: noqa: E501 (lines of prose)
"""Measure the C client's cost on chips, and write its section of clients/c/README.md.

Sizes come from the compilers, and time and stack from the emulated RP2040.

python firmware_tests/measure_c.py      prints the targets; exits 1 if one is missed
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import c_targets
import page_part
import write_cost
from c_targets import CORTEX_M3, PICO_CHIP, RISCV, Target

from hushmote.server.wire import keys

PAGE = c_targets.CORE / "README.md"
_BEGIN, _END = "<!-- cost: written by firmware_tests/measure_c.py -->\n", "<!-- end of the cost -->"
_CYCLES_PER_MS = 125_000
CHIPS = {"Cortex-M0+": PICO_CHIP, "Cortex-M3": CORTEX_M3, "RISC-V rv32imac": RISCV}
LEAN = ("P256", "SW", "PREFIX", "PAIRS")  # the first parts to leave out if flash is short
LEANEST = (*LEAN, "SCALE", "PGR", "TEXT")
REPORTER = c_targets.CORE / "reporter.c"
IDENTITY = c_targets.CORE / "identity.c"  # linked only by firmware that is the same for all boards
LOG = c_targets.CORE / "log.c"  # linked only by firmware whose policy has a log
PREVIEW = c_targets.CORE / "preview.c"  # linked only by firmware that calls it
_OPTIONAL = {
    REPORTER.name: ", the reporter",
    IDENTITY.name: ", one image for all boards; in no sum",
    LOG.name: ", a public log; in no sum",
    PREVIEW.name: ", previews and export with their words; in no sum",
}
_SIZED = ("-Os", *c_targets.SECTIONS)
FLEET = "house"


@dataclass(frozen=True)
class Sizes:
    """Bytes of flash on one chip.

    Attributes:
        files: Each file's size with all parts.
        whole: The core's size with all parts, without LEAN, and without LEANEST; then the same three with
            the reporter.
        linked: The same sizes including the used parts of the C library and the compiler's library.
    """

    files: dict[str, int]
    whole: list[int]
    linked: list[int]


@dataclass(frozen=True)
class Times:
    """Milliseconds at 125 MHz for a mechanism's calls."""

    keyed: float
    open: float
    sent: float
    enroll: float


@dataclass(frozen=True)
class Costs:
    """The measurements.

    Attributes:
        ram: Number of experiments -> bytes of static RAM on Cortex-M0+, by unsent reports.
        reporter_ram: Static RAM that the reporter adds.
        stack: Each call's stack bytes at the deepest point.
        reporter_stack: The same for the reporter's calls.
    """

    sizes: dict[str, Sizes]
    ram: dict[int, dict[int, int]]
    reporter_ram: dict[int, int]
    times: dict[str, Times]
    sha256_ms: float
    entropy_ms: float
    begin_ms: float
    signed_ms: float
    stack: dict[str, int]
    reporter_stack: dict[str, int]


def left_out(parts: Sequence[str]) -> list[str]:
    return [f"-DHUSHMOTE_WITH_{part}=0" for part in parts]


def size_of(file: Path, target: Target) -> int:
    """Return an object's or a program's flash: code, constants, and nonzero initial values."""
    tool = target.compiler.replace("gcc", "size")
    done = subprocess.run([tool, str(file)], capture_output=True, text=True, check=True)
    text, data, _ = done.stdout.splitlines()[1].split()[:3]
    return int(text) + int(data)


def compiled(target: Target, folder: Path, source: Path, parts: Sequence[str], *flags: str) -> Path:
    out = folder / f"{source.stem}.o"
    command = [target.compiler, *c_targets.STRICT, *target.chip, *_SIZED, *left_out(parts), *flags]
    subprocess.run([*command, f"-I{c_targets.CORE}", "-c", str(source), "-o", str(out)], check=True)
    return out


def linked(target: Target, folder: Path, objects: Sequence[Path]) -> int:
    """Return the flash of a program with all public functions of these objects and their libraries."""
    defined = subprocess.run(
        [target.compiler.replace("gcc", "nm"), "--defined-only", *map(str, objects)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    public = re.findall(r" T (hushmote_\w+)$", defined, re.MULTILINE)
    keep = [f"-Wl,-u,{name}" for name in public]
    specs = [] if target is RISCV else ["--specs=nano.specs", "--specs=nosys.specs"]
    program = folder / "linked.elf"
    command = [target.compiler, *target.chip, *specs, "-nostartfiles", "-Wl,--gc-sections", "-Wl,-e,0"]
    ends = ["-Wl,--defsym=end=0"] if target is not RISCV else ["-Wl,-T/dev/null"]
    subprocess.run([*command, *keep, *ends, *map(str, objects), "-o", str(program)], check=True)
    return size_of(program, target)


def sizes(target: Target) -> Sizes:
    files: dict[str, int] = {}
    object_sizes, linked_sizes = [], []
    for more in ([], [REPORTER]):
        for parts in ((), LEAN, LEANEST):
            with tempfile.TemporaryDirectory() as parent:
                folder = Path(parent)
                objects = [compiled(target, folder, source, parts) for source in (*c_targets.core(), *more)]
                sizes_by_file = {f"{o.stem}.c": size_of(o, target) for o in objects}
                files = sizes_by_file | files
                object_sizes.append(sum(sizes_by_file.values()))
                linked_sizes.append(linked(target, folder, objects))
    with tempfile.TemporaryDirectory() as parent:
        for path in (IDENTITY, PREVIEW):
            files[path.name] = size_of(compiled(target, Path(parent), path, ()), target)
        files[LOG.name] = size_of(compiled(target, Path(parent), LOG, (), "-DHUSHMOTE_WITH_LOG=1"), target)
    return Sizes(dict(sorted(files.items())), object_sizes, linked_sizes)


def client_ram(count: int, unsent: int) -> int:
    """Return the static RAM of a client for this many experiments and unsent reports, on Cortex-M0+."""
    return _ram(
        "struct hushmote client;",
        f"struct hushmote_experiment experiments[{count}];",
        f"uint8_t records[2 * HUSHMOTE_RECORD_BYTES({count}, {unsent})];",
        "struct hushmote_config config;",
    )


def reporter_ram(count: int) -> int:
    """Return the static RAM of a reporter for this many experiments, on Cortex-M0+."""
    return _ram(
        "struct hushmote_reporter reporter;",
        "struct hushmote_port port;",
        f"struct hushmote_topic topics[{count}];",
        "uint8_t kept[HUSHMOTE_KEPT_BYTES];",
    )


def _ram(*lines: str) -> int:
    with tempfile.TemporaryDirectory() as parent:
        source = Path(parent) / "ram.c"
        source.write_text("\n".join(['#include "hushmote_port.h"', *lines]) + "\n")
        out = compiled(PICO_CHIP, Path(parent), source, ())
        done = subprocess.run(["arm-none-eabi-size", str(out)], capture_output=True, text=True, check=True)
    return int(done.stdout.splitlines()[1].split()[2])


def _header(experiments: dict[str, bytes]) -> str:
    signing_key = bytes(range(32))
    topic = f"hushmote/v1/{FLEET}/experiment/rr"
    signed = keys.sign_experiment(signing_key, topic, experiments["rr"], 1)

    def listed(data: bytes) -> str:
        return "{" + ", ".join(map(str, data)) + "}"

    return (
        f"#define NAMES {', '.join(map(json.dumps, experiments))}\n"
        f"#define PAYLOADS {', '.join(json.dumps(text.decode()) for text in experiments.values())}\n"
        f"#define SIGNED {listed(signed)}\n#define FLEET {json.dumps(FLEET)}\n"
        f"#define ANNOUNCE_KEY {listed(keys.public_key_bytes(signing_key))}\n"
    )


def run_cost(experiments: dict[str, bytes]) -> str:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        (folder / "costs.h").write_text(_header(experiments))
        sources = [*c_targets.core(), REPORTER, c_targets.RIG / "cost.c"]
        done = PICO_CHIP.run(PICO_CHIP.build(folder / "cost", sources, f"-I{folder}"))
    if done.returncode:
        sys.exit(f"cost.c: {(done.stdout + done.stderr)[-2000:]}; nothing is written")
    return done.stdout


def measure() -> Costs:
    for target in CHIPS.values():
        if missing := target.missing():
            sys.exit(f"{target.name}: {missing}; nothing is written")
    experiments = write_cost.experiments()
    output = run_cost(experiments)
    stack: dict[str, int] = {}
    for call, deep in re.findall(r"^STACK (\S+) (\d+)\s*$", output, re.MULTILINE):
        stack[call] = max(stack.get(call, 0), int(deep))
    marks = [(int(n), int(cycles)) for n, cycles in re.findall(r"^MARK (\d+) (\d+)$", output, re.MULTILINE)]
    took: dict[int, list[float]] = {}
    for (number, begin), (other, end) in zip(marks[::2], marks[1::2], strict=True):
        assert number == other
        took.setdefault(number, []).append((end - begin) / _CYCLES_PER_MS)
    ms = {number: median(values) for number, values in took.items()}
    times = {
        name: Times(ms[100 + 4 * i], ms[102 + 4 * i], ms[101 + 4 * i], ms[10 + i])
        for i, name in enumerate(experiments)
    }
    memory = {count: {unsent: client_ram(count, unsent) for unsent in (4, 16)} for count in (1, 5)}
    reporter_memory = {count: reporter_ram(count) for count in memory}
    chip_sizes = {name: sizes(target) for name, target in CHIPS.items()}
    stacks = [
        {call: n for call, n in stack.items() if ("reporter" in call) == reporter}
        for reporter in (False, True)
    ]
    return Costs(chip_sizes, memory, reporter_memory, times, ms[1], ms[3], ms[4], ms[2], *stacks)


def targets(costs: Costs) -> list[tuple[str, str, str, bool]]:
    """Return rows of (what, target, measured, whether it is reached)."""
    m0 = costs.sizes["Cortex-M0+"]
    slowest = max(t.keyed for t in costs.times.values())
    deepest = max(costs.stack.values())
    rows = [
        ("flash, everything", 18 * 1024, m0.whole[0], "bytes"),
        ("flash without P-256, sw, prefix and pairs", 10 * 1024, m0.whole[1], "bytes"),
        ("static RAM, one experiment", 1536, costs.ram[1][16], "bytes"),
        ("static RAM, five experiments", 4096, costs.ram[5][16], "bytes"),
        ("deepest stack", 1536, deepest, "bytes"),
        ("deepest stack with the reporter", 2048, max(costs.reporter_stack.values()), "bytes"),
        ("the slowest report", 4, slowest, "ms"),
        ("a signed experiment", 600, costs.signed_ms, "ms"),
    ]
    return [
        (what, f"at most {most:,} {unit}", f"{n:,.5g} {unit}" if unit == "ms" else f"{n:,} {unit}", n <= most)
        for what, most, n, unit in rows
    ]


def _listed(stack: dict[str, int]) -> str:
    return ", ".join(f"`{call.removeprefix('reporter-')}` {deep:,}" for call, deep in stack.items())


def part(costs: Costs) -> str:
    """Return the page's part."""
    text = [
        "All numbers are measured: sizes with `-Os -ffunction-sections` and Debian 12's compilers, times as cycles of the emulated RP2040 converted to milliseconds at 125 MHz"
        " (real chips are slower, because the emulator does not wait for external flash), and stack as the deepest byte that a call writes. The ledger is in memory.",
        "",
        "| flash, bytes | " + " | ".join(costs.sizes) + " |",
        "|---" * (1 + len(costs.sizes)) + "|",
    ]
    files = next(iter(costs.sizes.values())).files
    text += [
        f"| `{f}`{_OPTIONAL.get(f, '')} | "
        + " | ".join(f"{s.files[f]:,}" for s in costs.sizes.values())
        + " |"
        for f in files
    ]
    names = (
        "**everything**",
        "without P-256, sw, prefix and pairs",
        "rr, grr, olh and hh alone, without P-256",
    )
    for i, name in enumerate(f"{name}; {which} reporter" for which in ("no", "with the") for name in names):
        cells = (f"{s.whole[i]:,} ({s.linked[i]:,})" for s in costs.sizes.values())
        text.append(f"| {name} | " + " | ".join(cells) + " |")
    text += [
        "",
        "In parentheses: size when linked with every public function, including the required C library and compiler routines (division, 64-bit products, `memcpy`).",
        "",
        "| static RAM on Cortex-M0+, bytes | 4 unsent reports | 16 unsent reports | the reporter adds |",
        "|---|---|---|---|",
        *(
            f"| {count} experiment{'s' * (count > 1)} | {by[4]:,} | {by[16]:,} | {costs.reporter_ram[count]:,} |"
            for count, by in costs.ram.items()
        ),
        "",
        f"The client uses no heap. Maximum stack without the reporter: {_listed(costs.stack)} bytes; with it: {_listed(costs.reporter_stack)} bytes."
        " The callbacks are included but empty; add the needs of your flash and MQTT functions.",
        "",
        "| mechanism | `hushmote_report()`, keyed | open | `hushmote_sent()` | `hushmote_enroll()` |",
        "|---|---|---|---|---|",
        *(
            f"| {name} | {t.keyed:.2f} ms | {t.open:.2f} ms | {t.sent:.2f} ms | {t.enroll:.1f} ms |"
            for name, t in costs.times.items()
        ),
        "",
        f"Reading the random source takes {costs.entropy_ms:.2f} ms of each report, without waiting between bits. A signed experiment takes {costs.signed_ms:.0f} ms, once for each version;"
        f" `hushmote_begin()` {costs.begin_ms:.1f} ms; one SHA-256 of 64 bytes {costs.sha256_ms:.2f} ms.",
    ]
    return "\n".join(["", *text, "", ""])


def main() -> int:
    costs = measure()
    page_part.renew(PAGE, _BEGIN, _END, part(costs))
    return page_part.judge(targets(costs))


if __name__ == "__main__":
    sys.exit(main())
