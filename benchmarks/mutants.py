"""Check that the tests notice small errors: mutants of the code, which its tests should kill.

`mutation_rules.py` makes every mutant of a file. A fixed choice of them, one for about 100 lines, is the
table. Each is applied to a copy of this tree, and the tests of its mirrored folder run there, the nearest
ones first. It is killed if a test fails that passes without it, or if a test hangs.
`equivalent_mutants.toml` lists those that no test can notice. Exit status: 1 if fewer than 95% of the others
are killed, 2 if that list is outdated.
"""

import argparse
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

from mutation_rules import Mutant, is_valid, mutants_of
from results_file import machine, write

ROOT = Path(__file__).parents[1]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
MIN_SHARE = 0.95
LINES_PER_MUTANT = 100
LIMIT_S = 120.0
_HANG_S = 60.0  # no test takes this long, so none of them finishing for this long means that one hangs
_PACKAGES = ("cli", "device", "fleet", "hushmote", "planning", "server", "simulator", "studies", "web")
# The C ports' code that runs on Linux; the others run in the firmware tests' emulators.
_CLIENTS = (
    ":(glob)clients/c/*.c",
    "clients/c/posix/*.c",
    "clients/c/psa/*.c",
    "clients/c/idf/idf_mqtt.c",
    "clients/c/idf/idf_nvs.c",
)
_SCRIPTS = ("clients/js/*.js", "clients/js/node-red/*.js", "web/static/*.js")
_TEST_PROGRAMS = ("clients/c/check.c", "clients/c/fuzz.c")
_RUNTIMES = (".rig", "web/board/static/micropython")  # ignored by Git, and needed by tests of boards
# Not `python -m pytest`: click would take the module for the program's name.
_PYTEST = (str(Path(sys.executable).with_name("pytest")), "-x", "-vv", "-p", "no:cacheprovider", "--tb=no")
_CC = ("gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-Iclients/c", "-c", "-o", os.devnull)


@cache
def tracked(*patterns: str) -> list[str]:
    """Return the paths of the repository's files that match, and are neither ignored nor deleted.

    A file that is added during a run does not count, because the copies of the tree do not have it.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in sorted(set(names.split("\0"))) if name and (ROOT / name).is_file()]


def sources() -> Iterator[str]:
    """Yield the paths of all files that have mutants."""
    yield from (name for name in tracked(*_PACKAGES) if name.endswith(".py"))
    yield from (name for name in tracked(*_CLIENTS, *_SCRIPTS) if name not in _TEST_PROGRAMS)


def choose(file: str) -> list[Mutant]:
    """Return a file's mutants in the table: those with the lowest hashes, so that other edits keep them."""
    source = (ROOT / file).read_text("utf-8")
    number = max(1, round(source.count("\n") / LINES_PER_MUTANT))
    mutants = sorted(mutants_of(file, source), key=lambda m: hashlib.sha256(m.words.encode()).digest())
    chosen: list[Mutant] = []
    while mutants and len(chosen) < number:
        mutant = mutants.pop(0)
        if is_valid(mutant, source) and _compiles(mutant, source):
            chosen.append(mutant)
    return chosen


def _compiles(mutant: Mutant, source: str) -> bool:
    """Return whether a mutant of a C file compiles without warnings; True for other languages."""
    if not mutant.file.startswith("clients/c/") or "/idf/" in mutant.file:
        return True
    include = f"-I{(ROOT / mutant.file).parent}"
    command = [*_CC, include, "-x", "c", "-"]
    return (
        subprocess.run(command, cwd=ROOT, input=mutant.apply(source).encode(), capture_output=True).returncode
        == 0
    )


def tests_of(file: str) -> tuple[list[str], list[str]]:
    """Return the test files of the mirrored folder that name the module, nearest first, and the others."""
    path, packages = Path(file), set[str]()
    if path.parts[0] == "clients":
        tests = tracked("tests/clients/test_c_*.py" if "c" in path.parts else "tests/clients/test_js_*.py")
        tests += tracked("tests/clients/test_three_clients.py", "tests/clients/test_consent_lifetimes.py")
    else:
        folder = next(f for f in map(Path("tests").joinpath, path.parents) if (ROOT / f).is_dir())
        packages = {f"test_{part}" for part in path.parent.parts[len(folder.parts) - 1 :]}
        tests = tracked(f":(glob){folder}/**/test_*.py")
    stem = path.parent.name if path.stem == "__init__" else path.stem
    named = re.compile(rf"\b{re.escape(stem).replace('_', '[_-]')}\b")  # a command's name has hyphens

    def distance(test: str) -> int:
        if Path(test).stem == f"test_{stem}":
            return 0
        if Path(test).stem.startswith((f"test_{stem}", *packages)):
            return 1
        lines = (ROOT / test).read_text("utf-8").splitlines()
        if any(named.search(line) for line in lines if "import" in line):
            return 2
        return 3 if any(map(named.search, lines)) else 4

    distances = {test: distance(test) for test in tests}
    ordered = sorted(tests, key=lambda test: (distances[test], test))
    near = [test for test in ordered if distances[test] < 4]
    return near, [test for test in ordered if distances[test] == 4]


@dataclass(frozen=True, slots=True)
class TestRun:
    """The result of running tests until the first failure.

    Attributes:
        end: "passed", "failed", "hung" or "late".
        failure: The test that failed; its file if it could not be collected.
    """

    end: str
    failure: str = ""


class Copy:
    """A copy of the tree and its runtimes; Python imports its packages as `hushmote` there."""

    def __init__(self, folder: Path):
        self.root = folder / "tree"
        for name in tracked():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.root / name)
        for name in _RUNTIMES:
            if (ROOT / name).is_dir():
                # Not a link, which the search for the board's files does not follow.
                shutil.copytree(ROOT / name, self.root / name, symlinks=True)
        # A mutant's compiled file must not stay: the next mutant may have the same time and size.
        self._environment = os.environ | {
            "PYTHONPATH": str(self._finder(folder)),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        where = subprocess.run(
            [sys.executable, "-c", "from hushmote.server import errors; print(errors.__file__)"],
            cwd=self.root, env=self._environment, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
        if not where or Path(where).parents[1] != self.root:
            raise SystemExit(f"import hushmote must import the copy, not {where or 'fail'}")

    def _finder(self, folder: Path) -> Path:
        """Make a folder for the path with a copy of pip's finder that finds this copy's packages."""
        finders = folder / "path"
        finders.mkdir()
        for path in map(Path, reversed(sys.path)):  # the first of several finders on the path counts
            for finder in path.glob("__editable___hushmote_*_finder.py"):
                (finders / finder.name).write_text(finder.read_text().replace(str(ROOT), str(self.root)))
        return finders

    def run(self, tests: Sequence[str], limit_s: float = LIMIT_S, broken: Sequence[str] = ()) -> TestRun:
        """Run tests in this order, without those that are broken, until one fails."""
        command = [sys.executable, *_PYTEST, "--color=no", *tests]
        process = subprocess.Popen(
            [*command, *(f"--deselect={test}" for test in broken)],
            cwd=self.root, env=self._environment, bufsize=0,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        output, start = b"", time.monotonic()
        progress = start
        try:
            while process.poll() is None:
                now = time.monotonic()
                if part := process.stdout.read():
                    output, progress = output + part, now
                if now - progress > _HANG_S:
                    return TestRun("hung")
                if now - start > limit_s:
                    return TestRun("late")
                time.sleep(0.05)
            output += process.stdout.read() or b""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode in (0, 5):  # 5: no test was selected
            return TestRun("passed")
        # The last line names the test during which the process ended, if none failed.
        failure = re.search(rb"^(tests/.*?) (?:FAILED|ERROR)|^ERROR (\S+)|^(tests/.*?) \Z", output, re.M)
        if not failure:
            raise RuntimeError(f"pytest ended without a failed test: {output.decode()[-1000:]}")
        return TestRun("failed", (failure[1] or failure[2] or failure[3]).decode())

    def test(self, mutant: Mutant, broken: Sequence[str]) -> TestRun:
        """Run the tests of a mutant's folder over it, without those that are broken."""
        path = self.root / mutant.file
        source, times = path.read_text("utf-8"), path.stat()
        path.write_text(mutant.apply(source), "utf-8")
        start, run = time.monotonic(), TestRun("passed")
        try:
            for tests in tests_of(mutant.file):
                if tests and run.end == "passed":
                    run = self.run(tests, LIMIT_S - (time.monotonic() - start), broken)
            return run
        finally:
            path.write_text(source, "utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


class MutantRunner:
    """Copies of the tree that try mutants at the same time, and one without mutants."""

    def __init__(self, folder: Path, workers: int):
        self._clean = Copy(folder / "clean")
        self._copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(workers):
            self._copies.put(Copy(folder / str(number)))
        self._broken: dict[str, bool] = {}
        self._lock = Lock()

    def survives(self, mutant: Mutant) -> bool:
        """Return whether no test notices a mutant, and print the result."""
        copy, start = self._copies.get(), time.monotonic()
        try:
            run = copy.test(mutant, self._broken_tests())
            while run.end == "failed" and self._is_broken(run.failure):
                run = copy.test(mutant, self._broken_tests())
        finally:
            self._copies.put(copy)
        survives = run.end in ("passed", "late")
        verdict = "SURVIVED" if survives else "killed"
        reason = run.failure.rpartition("/")[2] if run.end == "failed" else run.end
        print(f"{verdict:<8} {time.monotonic() - start:4.0f} s  {mutant.words}  [{reason}]", flush=True)
        return survives

    def _broken_tests(self) -> list[str]:
        """Return the tests that failed without a mutant so far."""
        with self._lock:
            return [test for test, is_broken in self._broken.items() if is_broken]

    def _is_broken(self, test: str) -> bool:
        """Return whether a test also fails without a mutant."""
        with self._lock:
            if test not in self._broken:
                self._broken[test] = self._clean.run([test]).end == "failed"
                if self._broken[test]:
                    print(f"fails without a mutant: {test}", flush=True)
            return self._broken[test]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE", help="or a part of its path")
    parser.add_argument("--sample", type=int, metavar="N", help="try N random mutants")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N")
    parser.add_argument("--list", action="store_true", help="print the table")
    parser.add_argument("--quick", action="store_true", help="only check the list of equivalent mutants")
    options = parser.parse_args()
    table = [m for file in sources() if _matches(file, options.only) for m in choose(file)]
    reasons: dict[str, str] = tomllib.loads(EQUIVALENT.read_text("utf-8"))
    outdated = [words for words in reasons if _matches(words, options.only)]
    outdated = sorted(set(outdated) - {m.words for m in table})
    for words in outdated:
        print("not a mutant in the table:", words)
    if options.list:
        print(*(m.words for m in table), sep="\n")
    if outdated or options.quick or options.list:
        print(f"{len(table)} mutants, {len(reasons)} equivalent, {len(outdated)} outdated")
        return 2 if outdated else 0
    mutants = [m for m in table if m.words not in reasons]
    if options.sample is not None:
        mutants = random.sample(mutants, min(options.sample, len(mutants)))
    if not mutants:
        raise SystemExit(f"no mutant of a file with {' or '.join(options.only)} in its path")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.workers) as threads:
        runner = MutantRunner(Path(folder), options.workers)
        results = zip(mutants, threads.map(runner.survives, mutants), strict=True)
        survivors = [mutant for mutant, survives in results if survives]
    share = 1 - len(survivors) / len(mutants)
    for mutant in survivors:
        print("survived:", mutant.words)
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants were killed: {share:.1%}")
    if not options.only and options.sample is None:
        row = {
            "mutants": len(mutants),
            "equivalent": len(reasons),
            "killed": share,
            "survivors": [m.words for m in survivors],
        }
        write("mutants.json", {"machine": machine(), **row})
    return 0 if share >= MIN_SHARE else 1


def _matches(path: str, parts: Sequence[str]) -> bool:
    return not parts or any(part in path for part in parts)


if __name__ == "__main__":
    sys.exit(main())
