"""List lines and branches of the C core that tests do not run; exit with 1 unless WHY explains them.

python tools/cover_c.py [ARGUMENT ...]      arguments go to pytest; LONG=1 runs the long series
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
# Prefix of a line that never runs, or whose branch or following line never runs -> the reason.
WHY = {
    "if (!hm_keep(e, prefixes, count)": "75 bytes are enough for any text, and the buffer has 128",
    "if (!end)": "validated input always has an end",
    "return threshold == quotient": "the bounds are 2^-160 apart, and are not known to disagree",
}
TESTS = CORE.parents[1] / "tests" / "clients"


def counts(folder: Path) -> dict[str, dict[int, list[Counter[int]]]]:
    """Return run counts by file, line and compiled variant; key -1 is the line, keys from 0 its branches.

    A line's branches are summed if the variants have the same number of them.
    """
    runs: dict[str, dict[int, list[Counter[int]]]] = defaultdict(lambda: defaultdict(list))
    for data in sorted(folder.rglob("*.gcda")):
        command = ["gcov", "--branch-probabilities", "--json-format", "--stdout", data.name]
        done = subprocess.run(command, cwd=data.parent, capture_output=True, text=True, check=True)
        for file in json.loads(done.stdout)["files"]:
            path = Path(data.parent, file["file"])
            if path.parent == CORE and path.suffix == ".c" and path.name not in NOT_CORE:
                for line in file["lines"]:
                    _add(runs[path.name][line["line_number"]], line)
    return runs


def _add(variants: list[Counter[int]], line: dict[str, Any]) -> None:
    counter = Counter({-1: line["count"]} | {i: b["count"] for i, b in enumerate(line["branches"])})
    same = next((variant for variant in variants if variant.keys() == counter.keys()), None)
    if same is None:
        variants.append(counter)
    else:
        for key, count in counter.items():  # update() would drop zeros
            same[key] += count


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS), *sys.argv[1:]]
        done = subprocess.run(command, env={**os.environ, COVERAGE: folder}, check=False)
        runs = counts(Path(folder))
    totals, listed = Counter(), set()
    for name, runs_by_line in sorted(runs.items()):
        text = [line.strip() for line in (CORE / name).read_text().splitlines()]
        for number, variants in sorted(runs_by_line.items()):
            # A line compiled in several variants counts as the one with the most branches.
            variant = max(variants, key=len)
            branch_count = len(variant) - 1
            ran = any(counter[-1] for counter in variants)
            branches_taken = sum(variant[i] > 0 for i in range(branch_count))
            totals.update(
                {"lines": 1, "lines ran": ran, "branches": branch_count, "branches ran": branches_taken}
            )
            if not ran or branches_taken < branch_count:
                lines = text[number - 1 - (not ran) : number]
                begin = next((begin for begin in WHY if any(line.startswith(begin) for line in lines)), "")
                listed.add(begin)
                summary = f"{branches_taken} of {branch_count}: {lines[-1]} -- {WHY.get(begin, 'NOT LISTED')}"
                print(f"{name}:{number}: {summary}")
    for words in ("lines", "branches"):
        print(f"{totals[f'{words} ran']} of {totals[words]} {words}")
    return done.returncode or listed != WHY.keys()


if __name__ == "__main__":
    sys.exit(main())
