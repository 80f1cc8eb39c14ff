# ruff: noqa: E501 (lines of prose)
"""Measure the client's cost on a board, and write its section of docs/reporter.md.

Memory is measured on the runtime that is most like a board's, time and frozen modules on the emulated Pico
(make pico).

python firmware_tests/write_cost.py      prints the targets; exits 1 if one is missed
"""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import on_device
import page_part
import pico_cost
import run
import runtimes

from hushmote.device.ldp_client import Experiment
from hushmote.fleet.audit.audit import subject
from hushmote.fleet.provisioning import usb as board
from hushmote.fleet.provisioning.flash import MODULES
from hushmote.server.experiments.payload import NoMechanism, chosen_fields
from hushmote.server.mechanisms import MECHANISMS
from hushmote.server.mechanisms.workload import ALL_RANGES
from hushmote.server.wire.board_files import needed_files, shipped_files, with_imports

TARGET = runtimes.ROOT / "docs" / "reporter.md"
_BEGIN, _END = "<!-- cost: written by firmware_tests/write_cost.py -->\n", "<!-- end of the cost -->"
DOMAIN = 1024
EPSILON = 1_000_000  # micro-nats
CAP = 10**16  # no budget runs out during the measurement
HEAPS_KIB = range(24, 129)
LIFETIMES = 3  # lifetimes per heap size, because the objects' positions depend on the draws
ROOMY = "256k"  # heap for measurements that are not about the smallest one
_KIB = 1024
_MPY_6 = 6  # sys.implementation._mpy of a runtime without native code
_BY_ITSELF = tuple(m for m in pico_cost.IN_ORDER if m != "async_reporter")  # it needs asyncio


@dataclass(frozen=True)
class Report:
    """The cost of a mechanism's report(): sizes in bytes, and the number of SHA-256 computations."""

    mechanism: str
    domain: int
    modules: str  # the files that it needs in addition to ldp_client.py, separated by commas
    kept: int
    hole: int
    garbage: int
    sha256: int
    length: int
    record: int


@dataclass(frozen=True)
class Wear:
    """Erases on a littlefs geometry; `record` is the ledger's size with three experiments and a report."""

    name: str
    reports: int
    erases: int
    programmed_bytes: int
    record: int

    @property
    def erases_per_report(self) -> float:
        return self.erases / self.reports


@dataclass(frozen=True)
class Lifetime:
    """Heaps in which a lifetime succeeds.

    Attributes:
        measuring_bytes: Heap of the measuring code.
        heaps_kib: The heap sizes in which a whole lifetime succeeded.
    """

    measuring_bytes: int
    heaps_kib: frozenset[int]

    @property
    def smallest_kib(self) -> int | None:
        """The smallest heap such that it and all larger ones succeeded; None if the largest failed."""
        smallest = None
        for heap in reversed(HEAPS_KIB):
            if heap not in self.heaps_kib:
                break
            smallest = heap
        return smallest


@dataclass(frozen=True)
class Costs:
    """The measurements for the page's section."""

    version: str
    lines: int  # of ldp_client.py
    sizes: dict[str, tuple[int, dict[str, int]]]  # module -> bytes of source, {architecture: of .mpy}
    kept: dict[str, int]  # module -> heap bytes
    imports: dict[str, int]  # "source", "compiled" -> smallest heap for importing ldp_client, KiB
    pico: pico_cost.PicoCosts
    reports: tuple[Report, ...]
    lifetimes: dict[bool, Lifetime]  # keyed by whether the reporter is loaded
    wear: tuple[Wear, ...]


def experiments() -> dict[str, bytes]:
    """Return an experiment for each mechanism to measure, with the parameters that the server chooses.

    A mechanism whose examples are not numbers, or that supports fewer values, uses its last example.
    """
    number = {"type": "number", "low": -20_000, "high": 50_000, "bins": DOMAIN}
    kinds = {}
    for word, mechanism in MECHANISMS.items():
        examples = [example for example in mechanism.examples if example.get("mechanism", word) == word]
        kinds[word] = dict(examples[-1])
        if any(example["type"] == "number" for example in examples):
            with contextlib.suppress(NoMechanism):  # it supports fewer values
                kinds[word] = number | chosen_fields(DOMAIN, EPSILON, ALL_RANGES, word)
    ends = {"epsilon": EPSILON, "budget": {"rule": "sum", "cap": CAP}, "window": "day"}
    payloads = {}
    for mechanism, fields in kinds.items():
        text = json.dumps({"v": 1, "name": mechanism, "mechanism": mechanism} | fields | ends).encode()
        Experiment.parse(text)  # raises if it is invalid
        payloads[mechanism] = text
    return payloads


def stage(folder: Path) -> None:
    """Write the modules as `hushmote flash` compiles them, the measuring code, and the experiments' files."""
    folder.mkdir()
    modules = (*(run.DEVICE / f"{m}.py" for m in MODULES), *shipped_files().values())
    for path in (*modules, run.HERE / "measure_cost.py"):
        (folder / f"{path.stem}.mpy").write_bytes(board.compile_mpy(path, _MPY_6, path.name))
    texts = experiments()
    for name, text in on_device.EXPERIMENTS.items():
        fields = json.loads(text)
        fields["budget"]["cap"] = CAP
        texts[name] = json.dumps(fields).encode()
    for name, payload in texts.items():
        (folder / f"{name}.json").write_bytes(payload)


def ask(runtime: runtimes.Runtime, staged: Path, heap: str, *arguments: str) -> list[str] | str:
    """Return the fields of the line that measure_cost prints, or the last line of its error."""
    with tempfile.TemporaryDirectory() as parent:
        board_folder = Path(parent) / "board"
        shutil.copytree(staged, board_folder)
        command = [*runtime.argv, "-X", f"heapsize={heap}", "-m", "measure_cost", *arguments]
        done = subprocess.run(
            command, cwd=board_folder, capture_output=True, text=True, timeout=runtimes.TIMEOUT_S, check=False
        )
    lines = (done.stdout + done.stderr).splitlines()
    if done.returncode == 0 and lines and "|" in lines[-1]:
        return lines[-1].split("|")[1:]
    return lines[-1] if lines else f"no output, exit status {done.returncode}"


def must_ask(runtime: runtimes.Runtime, staged: Path, *arguments: str) -> list[str]:
    """Call ask() with a large heap; exit if it fails."""
    answer = ask(runtime, staged, ROOMY, *arguments)
    if isinstance(answer, str):
        sys.exit(f"measure_cost {' '.join(arguments)}: {answer}; nothing is written")
    return answer


def live(runtime: runtimes.Runtime, staged: Path, with_reporter: bool) -> Lifetime:
    """Try a whole lifetime in every heap of the grid."""
    arguments = ("lifetime", "reporter") if with_reporter else ("lifetime",)

    def attempt(heap: int) -> list[str] | str:
        for _ in range(LIFETIMES):
            answer = ask(runtime, staged, f"{heap}k", *arguments)
            if isinstance(answer, str):
                break
        return answer

    with ThreadPoolExecutor() as pool:
        answers = dict(zip(HEAPS_KIB, pool.map(attempt, HEAPS_KIB), strict=True))
    passed = {heap: answer for heap, answer in answers.items() if not isinstance(answer, str)}
    broken = {a for a in answers.values() if isinstance(a, str) and "MemoryError" not in a}
    if not passed or broken:
        sys.exit(f"a whole lifetime ends with {broken or set(answers.values())}; nothing is written")
    return Lifetime(int(next(iter(passed.values()))[0]), frozenset(passed))


def wear(runtime: runtimes.Runtime) -> tuple[Wear, ...]:
    """Return erases per report, as test_wear.py counts them."""
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / "staged"
        run.stage(staged, run.ARCHITECTURES[0])
        test = run.TestFile.read(run.HERE / "test_wear.py")
        outcome = run.run_file(runtime, test, run.ARCHITECTURES[0], staged)
    # Exceeding its limit is a line in our own table; its printed numbers are valid then.
    lines = [line.split("|")[1:] for line in outcome.output.splitlines() if line.startswith("WEAR|")]
    if len(lines) != 2:
        sys.exit(f"test_wear.py {outcome.word} ({outcome.note}); nothing is written\n{outcome.output}")
    results = [Wear(f[0], int(f[1]), int(f[2]), int(f[4]), int(f[5])) for f in lines]
    return tuple(sorted(results, key=lambda w: w.name))


def measure() -> Costs:
    runtime = next((r for r in runtimes.find(install=True)[0] if r.name == "unix32f"), None)
    if runtime is None:
        sys.exit("unix32f is needed: python firmware_tests/runtimes.py --install says why it is missing")
    sizes = {}
    for name in (
        *(f"{m}.py" for m in pico_cost.IN_ORDER),
        *(path.name for path in shipped_files().values()),
        "main.py",
    ):
        path = run.DEVICE / name
        compiled = {arch: len(board.compile_mpy(path, mpy, name)) for arch, mpy in run.NATIVE.items()}
        sizes[name] = (path.stat().st_size, compiled)
    with tempfile.TemporaryDirectory() as folder:
        staged = Path(folder) / "staged"
        stage(staged)
        reports = []
        further = tuple(path.stem for path in shipped_files().values())
        for mechanism, payload in experiments().items():
            experiment = Experiment.parse(payload)
            files = [
                path
                for file in needed_files(experiment).values()
                for path in (*with_imports(file.read_bytes()), file)
            ]
            modules = ",".join(path.stem for path in files)
            # For other types than numbers, the audit's first reading; a list becomes a tuple.
            reading = 21.4 if experiment.type == "number" else subject(payload, whole=False).readings[0]
            value = json.dumps(reading)
            fields = must_ask(runtime, staged, "report", mechanism, value, modules)[1:]
            reports.append(Report(mechanism, experiment.domain, modules, *(int(x) for x in fields)))
        heap_kept = must_ask(runtime, staged, "import", *_BY_ITSELF, *further)
        lifetimes = {with_reporter: live(runtime, staged, with_reporter) for with_reporter in (False, True)}
    kept_by = {f"{m}.py": int(x) for m, x in zip((*_BY_ITSELF, *further), heap_kept, strict=True)}
    lines = len((run.DEVICE / "ldp_client.py").read_text().splitlines())
    core = {word: text for word, text in experiments().items() if not needed_files(Experiment.parse(text))}
    pico = pico_cost.measure(core)
    imports = smallest_imports(runtime)
    return Costs(
        runtime.version, lines, sizes, kept_by, imports, pico, tuple(reports), lifetimes, wear(runtime)
    )


def smallest_imports(runtime: runtimes.Runtime) -> dict[str, int]:
    """Return the smallest heap in which ldp_client can be imported, from source and compiled, in KiB."""
    smallest = {}
    path = run.DEVICE / "ldp_client.py"
    for kind, name, content in (
        ("source", path.name, path.read_bytes()),
        ("compiled", "ldp_client.mpy", board.compile_mpy(path, _MPY_6, path.name)),
    ):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / name).write_bytes(content)
            for heap in range(8, 257):
                command = [*runtime.argv, "-X", f"heapsize={heap}k", "-c", "import ldp_client"]
                done = subprocess.run(
                    command, cwd=folder, capture_output=True, timeout=runtimes.TIMEOUT_S, check=False
                )
                if done.returncode == 0:
                    smallest[kind] = heap
                    break
            else:
                sys.exit(f"ldp_client as {kind} cannot be imported in 256 KiB; nothing is written")
    return smallest


def targets(costs: Costs) -> list[tuple[str, str, str, bool]]:
    """Return rows of (what, target, measured, whether it is reached)."""
    rows = []
    size = max(costs.sizes["ldp_client.py"][1].values())
    rows.append(("`ldp_client.mpy`", "at most 11,264 bytes", f"{size:,} bytes", size <= 11 * _KIB))
    rows.append(("`ldp_client.py`", "at most 1,000 lines", f"{costs.lines:,} lines", costs.lines <= 1000))
    for name in ("ldp_p256.py", *(path.name for path in shipped_files().values())):
        size = max(costs.sizes[name][1].values())
        rows.append((f"`{name[:-3]}.mpy`", "at most 1,500 bytes", f"{size:,} bytes", size <= 1500))
    hashes = max(r.sha256 for r in costs.reports)
    rows.append(("SHA-256 for a report", "at most 25 times", f"{hashes} times", hashes <= 25))
    verify_s = costs.pico.verify_ms / 1000
    rows.append(("verifying an experiment on a Pico", "at most 2 s", f"{verify_s:.2f} s", 0 < verify_s <= 2))
    heap_bytes = costs.kept["ldp_client.py"]
    rows.append(
        (
            "heap kept after `import ldp_client`",
            "at most 20,480 bytes",
            f"{heap_bytes:,} bytes",
            heap_bytes <= 20 * _KIB,
        )
    )
    for with_reporter, lifetime in costs.lifetimes.items():
        what = "a whole lifetime" + (", reporter loaded" if with_reporter else "")
        smallest = lifetime.smallest_kib
        good = smallest is not None and smallest <= 64
        rows.append((what, "works in 64 KiB", _from(smallest), good))
    limits = {"littlefs, ESP32": 0.1, "littlefs, Pico": 0.2}
    for w in costs.wear:
        limit = limits[w.name]
        rows.append(
            (
                f"erases per report, {w.name}",
                f"at most {limit}",
                f"{w.erases_per_report:.3f}",
                0 < w.erases_per_report <= limit,
            )
        )
    longest = max(w.record for w in costs.wear)
    rows.append(
        ("ledger record, three experiments", "at most 128 bytes", f"{longest} bytes", 0 < longest <= 128)
    )
    return rows


def _from(smallest_kib: int | None) -> str:
    return f"no heap up to {HEAPS_KIB[-1]} KiB" if smallest_kib is None else f"{smallest_kib} KiB"


def part(costs: Costs) -> str:
    """Return the page's part."""
    smallest = {with_reporter: lifetime.smallest_kib for with_reporter, lifetime in costs.lifetimes.items()}
    text = [
        "Measured on MicroPython"
        f" {costs.version} built as a board's is (32 bits, 31-bit small integers, single floats, heap blocks of 16"
        " bytes), with the modules compiled as by `hushmote flash` (`mpy-cross -O3`), without Wi-Fi, TLS and the application.",
        "",
        f"**A whole lifetime works in a heap of {_from(smallest[False])}, with the reporter in {_from(smallest[True])}**: import,"
        " provision a folder, enroll three experiments, 16 reports without a broker, acknowledgements, a restart, 60 more reports."
        f" Every heap size from {HEAPS_KIB[0]} to {HEAPS_KIB[-1]} KiB was tried {LIFETIMES} times, without a connection;"
        f" {' and '.join(f'{lifetime.measuring_bytes:,}' for lifetime in costs.lifetimes.values())} bytes of these are the measuring code.",
        "",
        "| file | source | `.mpy`, armv6m (Pico) | `.mpy`, xtensawin (ESP32) | heap kept after import |",
        "|---|---|---|---|---|",
    ]
    for name, (source, compiled) in costs.sizes.items():
        heap_text = f"{costs.kept[name]:,}" if name in costs.kept else ""
        mpy = " | ".join(f"{compiled[arch]:,}" for arch in run.NATIVE)
        text.append(f"| `{name}` | {source:,} | {mpy} | {heap_text} |")
    text += [
        "",
        "In bytes. Each module's heap is measured after those above it, code included. `main.py` is copied as source.",
        "",
        f"**One report**, at ε = {EPSILON / 1e6:g}, with the parameters that the server chooses for {DOMAIN:,} values, or a small"
        " example if readings are not numbers; the experiment is signed, and the only one enrolled:",
        "",
        "| mechanism | values | heap kept | free heap needed | peak | garbage per report | SHA-256 | report | ledger record |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    base = costs.kept["ldp_client.py"]
    for r in costs.reports:
        files = base + sum(costs.kept[f"{module}.py"] for module in r.modules.split(",") if module)
        text.append(
            f"| {r.mechanism} | {r.domain:,} | {r.kept:,} | {r.hole:,} | {files + r.kept + r.hole:,} | {r.garbage:,} | {r.sha256}"
            f" | {r.length} | {r.record} |"
        )
    text += [
        "",
        "Sizes are in bytes; SHA-256 is the number of hashes that `report()` and `sent()` compute.",
        "",
        "* Free heap needed: the smallest contiguous block of free heap with which 40 calls of `report()` and `sent()` succeed, with the ledger in a folder. On littlefs, the open file's cache also needs heap: four times littlefs's program size.",
        "* Peak: heap used by the imports of the client and the mechanism's files, plus heap kept and free heap needed.",
        "* Garbage per report: bytes that `report()` and `sent()` allocate temporarily.",
        "",
        *pico_cost.part(costs.pico, costs.imports),
    ]
    return "\n".join(["", *text, "", ""])


def main() -> int:
    costs = measure()
    page_part.renew(TARGET, _BEGIN, _END, part(costs))
    return page_part.judge(targets(costs))


if __name__ == "__main__":
    sys.exit(main())
