"""Which lines and branches of the C client's core its tests leave out: 1 where those are not WHY's.

python tools/cover_c.py [ARGUMENT ...]      for pytest; with LONG=1 the long series
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import _paths  # noqa: F401
from c_core import CORE, COVERAGE

NOT_CORE = ("check.c", "fuzz.c")
# How lines begin that never run, or a branch of theirs or the line behind it, and why.
WHY = {
    "if (!hm_keep(e, prefixes, count)": "75 bytes are enough for any text, and there are 128",
    "if (!behind)": "what was checked has an end",
    "return least == quotient": "the bounds are 2^-160 apart: no case is known where they do not agree",
}
TESTS = CORE.parents[1] / "tests" / "clients"


def counts(folder: Path) -> dict[str, dict[int, list[Counter[int]]]]:
    """File -> line -> how often each way of compiling it ran: key -1 the line, from 0 on its branches.

    Branches of one line are added up where as many were compiled.
    """
    found: dict[str, dict[int, list[Counter[int]]]] = defaultdict(lambda: defaultdict(list))
    for data in sorted(folder.rglob("*.gcda")):
        command = ["gcov", "--branch-probabilities", "--json-format", "--stdout", data.name]
        done = subprocess.run(command, cwd=data.parent, capture_output=True, text=True, check=True)
        for file in json.loads(done.stdout)["files"]:
            path = Path(data.parent, file["file"])
            if path.parent == CORE and path.suffix == ".c" and path.name not in NOT_CORE:
                for line in file["lines"]:
                    _add(found[path.name][line["line_number"]], line)
    return found


def _add(ways: list[Counter[int]], line: dict[str, Any]) -> None:
    one = Counter({-1: line["count"]} | {i: b["count"] for i, b in enumerate(line["branches"])})
    same = next((way for way in ways if way.keys() == one.keys()), None)
    if same is None:
        ways.append(one)
    else:
        for key, count in one.items():  # update() would drop no zeros, + does
            same[key] += count


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS), *sys.argv[1:]]
        done = subprocess.run(command, env={**os.environ, COVERAGE: folder}, check=False)
        found = counts(Path(folder))
    totals, listed = Counter(), set()
    for name, of_file in sorted(found.items()):
        text = [line.strip() for line in (CORE / name).read_text().splitlines()]
        for number, ways in sorted(of_file.items()):
            # A line that was compiled in several ways counts as the one with the most branches.
            way = max(ways, key=len)
            ran, taken = any(w[-1] for w in ways), sum(way[i] > 0 for i in range(len(way) - 1))
            totals.update({"lines": 1, "lines ran": ran, "branches": len(way) - 1, "branches ran": taken})
            if not ran or taken < len(way) - 1:
                lines = text[number - 1 - (not ran) : number]
                begin = next((begin for begin in WHY if any(line.startswith(begin) for line in lines)), "")
                listed.add(begin)
                said = f"{taken} of {len(way) - 1}: {lines[-1]} -- {WHY.get(begin, 'NOT LISTED')}"
                print(f"{name}:{number}: {said}")
    for words in ("lines", "branches"):
        print(f"{totals[f'{words} ran']} of {totals[words]} {words}")
    return done.returncode or listed != WHY.keys()


if __name__ == "__main__":
    sys.exit(main())
