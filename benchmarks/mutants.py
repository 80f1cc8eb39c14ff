"""Check that the tests notice small errors, by applying mutants that they should kill.

A mutant is a small change that a tired engineer could make. `mutants.toml` lists them by file. Each is
applied to a copy of this tree and tested there. A mutant dies if a test fails or takes too long. The exit
status is 1 if fewer than 95% die, and 2 if the table is stale or the tests do not pass without any mutant.
"""

import argparse
import ast
import builtins
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from results_file import machine, write

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("mutants.toml")
MIN_SHARE = 0.95
_LIMIT_S = 400.0  # the slowest of these tests take a tenth of this
_PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")


class Stale(Exception):
    """An entry in the table no longer matches the code."""


@dataclass(frozen=True)
class Mutant:
    """A change to a single place in a file, and the tests that should notice it."""

    file: str
    function: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def words(self) -> str:
        """The change, in one line."""
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file} {self.function}: {old!r} -> {new!r}"

    def applied(self, source: str) -> str:
        """Return the source with the change; raise Stale unless the old text occurs exactly once."""
        times = source.count(self.old)
        if times != 1:
            raise Stale(f"the old text must occur in the file once, not {times} times: {self.words}")
        start = source.index(self.old) + len(self.old) - len(self.old.lstrip())
        line = source[:start].count("\n") + 1
        if self.function not in _around(source, line):
            raise Stale(f"the old text is not in that function: {self.words}")
        mutated = source.replace(self.old, self.new)
        try:
            before, after = ast.parse(source), ast.parse(mutated)
        except SyntaxError:
            raise Stale(f"the new text is not valid Python: {self.words}") from None
        if ast.dump(after) == ast.dump(before):
            raise Stale(f"the new text changes nothing: {self.words}")
        if unknown := _names(after) - _names(before) - set(dir(builtins)):
            raise Stale(
                f"the new text uses a name that the file does not define, {min(unknown)}: {self.words}"
            )
        return mutated


def _names(tree: ast.AST) -> set[str]:
    """Return a module's names and the attributes of self; any test would notice an undefined one."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    fields = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return names | {f.attr for f in fields if isinstance(f.value, ast.Name) and f.value.id == "self"}


def _around(source: str, line: int) -> set[str]:
    """Return the names of the functions and classes around a line, or "module"."""
    names = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first <= line <= (node.end_lineno or first):
                names.add(node.name)
    return names or {"module"}


def read_table(path: Path = TABLE) -> list[Mutant]:
    """Read the table, which lists each file's tests and its mutants' function, old text and new text."""
    table = tomllib.loads(path.read_text("utf-8"))
    return [
        Mutant(entry["file"], function, old, new, tuple(entry["tests"]))
        for entry in table["of"]
        for function, old, new in entry["mutants"]
    ]


class Copy:
    """A copy of the tree without ignored files; Python imports its packages as `hushmote`."""

    def __init__(self, folder: Path):
        self.root = folder / "tree"
        names = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        self._environment = os.environ | {"PYTHONPATH": str(self._finder(folder))}
        where = self._python("-c", "from hushmote.server import errors; print(errors.__file__)")
        if not where or Path(where).parents[1] != self.root:
            raise SystemExit(f"import hushmote must find the copy, but finds {where or 'nothing'}")

    def _finder(self, folder: Path) -> Path:
        """Make a folder for PYTHONPATH, in which pip's editable-install finder has the copy's paths."""
        finders = folder / "path"
        finders.mkdir()
        for path in map(Path, reversed(sys.path)):  # the first of several finders on the path counts
            for finder in path.glob("__editable___hushmote_*_finder.py"):
                (finders / finder.name).write_text(finder.read_text().replace(str(ROOT), str(self.root)))
        return finders

    def _python(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.root, env=self._environment, capture_output=True, text=True
        )
        return done.stdout.strip()

    def check(self, tests: Sequence[str], *, slow: bool = False, keep: bool = False) -> str | None:
        """Run tests; return None if all pass, else their output.

        Args:
            tests: Test files and test names.
            slow: Also run the slow tests when a whole file is given.
            keep: Keep compiled files, which must not be done for a mutant, since the next run could use them.
        """
        quick = () if slow or all("::" in test for test in tests) else ("-m", "not slow")
        environment = self._environment | ({} if keep else {"PYTHONDONTWRITEBYTECODE": "1"})
        process = subprocess.Popen(
            [sys.executable, *_PYTEST, *quick, *tests], cwd=self.root, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=None if keep else _LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "the tests take too long"
        return output if process.returncode else None

    def survives(self, mutant: Mutant) -> bool:
        """Return whether no test notices the mutant, trying the slow ones last."""
        path = self.root / mutant.file
        source, times = path.read_text("utf-8"), path.stat()
        path.write_text(mutant.applied(source), "utf-8")
        try:
            return all(self.check(mutant.tests, slow=slow) is None for slow in (False, True))
        finally:
            path.write_text(source, "utf-8")
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # keep its compiled file valid


def survivors(copy: Copy, mutants: Sequence[Mutant]) -> Iterator[Mutant]:
    """Try all mutants; yield those that no test noticed."""
    for number, mutant in enumerate(mutants, 1):
        start = time.monotonic()
        lives = copy.survives(mutant)
        took = f"{'LIVES' if lives else 'died':<5} {time.monotonic() - start:4.0f} s"
        print(f"{number:>4} {took}  {mutant.words}", flush=True)
        if lives:
            yield mutant


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE", help="or a part of its path")
    parser.add_argument("--quick", action="store_true", help="only see that the table fits; writes nothing")
    options = parser.parse_args()
    table = read_table()
    stale = list(_stale(table))
    for words in stale:
        print("stale:", words)
    if stale or options.quick:
        print(f"{len(table)} mutants, {len(stale)} stale")
        return 2 if stale else 0
    mutants = [m for m in table if not options.only or any(part in m.file for part in options.only)]
    if not mutants:
        raise SystemExit(f"no mutant of a file with {' or '.join(options.only)} in its path")
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for tests in dict.fromkeys(m.tests for m in mutants):
            failed = copy.check(tests, keep=True)
            if failed is not None:
                print(failed, "These tests do not pass without any mutant.", sep="\n")
                return 2
        living = list(survivors(copy, mutants))
    share = 1 - len(living) / len(mutants)
    for mutant in living:
        print("lives:", mutant.words)
    print(f"{len(mutants) - len(living)} of {len(mutants)} mutants died: {share:.1%}")
    if not options.only:
        row = {"mutants": len(mutants), "died": share, "lived": [[m.words] for m in living]}
        write("mutants.json", {"machine": machine(), **row})
    return 0 if share >= MIN_SHARE else 1


def _stale(table: Sequence[Mutant]) -> Iterator[str]:
    for mutant in table:
        missing = [t for t in mutant.tests if not (ROOT / t.partition("::")[0]).exists()]
        try:
            mutant.applied((ROOT / mutant.file).read_text("utf-8"))
        except (Stale, OSError) as e:
            yield str(e)
        if missing:
            yield f"no such tests, {', '.join(missing)}: {mutant.words}"


if __name__ == "__main__":
    sys.exit(main())
