"""Check that all branches of the C client's draws take the same number of cycles on the emulated RP2040.

    python firmware_tests/steps_c.py

The compiled code runs with every reading's index and both outcomes of the truth draw, and the cycles are
compared exactly. A real chip's flash also has a cache, whose state depends only on addresses.
"""

import json
import re
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import c_targets
from c_targets import PICO_CHIP

_MARK = re.compile(r"^MARK (\d+) (\d+)$", re.MULTILINE)
_BEFORE = 999_999  # a run that only determines what is drawn
NUMBER = {"type": "number", "low": 0, "high": 1000}
TEXT = {"type": "text", "salt": "s"}
PAIR = [{"name": "a", "type": "bool"}, {"name": "b", "type": "choice", "labels": ["x", "y"]}]
SHAPES: tuple[tuple[int, dict[str, Any]], ...] = (
    (2, {"type": "bool", "mechanism": "rr"}),
    (16, NUMBER | {"bins": 16, "mechanism": "grr"}),
    (10, NUMBER | {"bins": 10, "mechanism": "olh", "g": 3}),
    (9, NUMBER | {"bins": 9, "mechanism": "hh", "fanout": 3, "cells": [2, 5]}),
    (7, NUMBER | {"bins": 7, "mechanism": "pgr", "q": 2}),
    (6, NUMBER | {"bins": 6, "mechanism": "pgr", "q": 5}),
    (5, NUMBER | {"bins": 5, "mechanism": "sw", "reach": 2}),
    (4, TEXT | {"slots": 2, "prefixes": [1, 2], "mechanism": "prefix", "q": 2}),
    (9, NUMBER | {"bins": 8, "missing": 1, "mechanism": "hh", "fanout": 3, "cells": [2, 5]}),
    (6, {"type": "pair", "of": PAIR, "mechanism": "views", "views": [[0], [1], [0, 1]], "cells": [2, 3, 5]}),
)


def published(shape: dict[str, Any]) -> str:
    around = {"v": 1, "name": "e", "epsilon": 1_000_000, "budget": {"rule": "unlimited"}, "window": "day"}
    return json.dumps(around | shape, separators=(",", ":"))


def header() -> str:
    """Return steps.h for steps.c."""
    payloads = ", ".join(json.dumps(published(shape)) for _, shape in SHAPES)
    return f"#define PAYLOADS {payloads}\n#define DOMAINS {', '.join(str(domain) for domain, _ in SHAPES)}\n"


def cycles(output: str) -> dict[int, list[int]]:
    """Return the cycles of each branch, by its experiment times 1000 plus its level."""
    marks = [(int(n), int(at)) for n, at in _MARK.findall(output)]
    cycles_by_number: dict[int, list[int]] = defaultdict(list)
    for (number, begin), (_, end) in zip(marks[::2], marks[1::2], strict=True):
        if number != _BEFORE:
            cycles_by_number[number].append(end - begin)
    return cycles_by_number


def main() -> int:
    missing = PICO_CHIP.missing()
    if missing:
        print(f"0 passed, 0 failed, 1 skipped: {missing}")
        return 0
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        (folder / "steps.h").write_text(header())
        sources = [*c_targets.core(without=("drbg.c", "client.c", "ledger.c")), c_targets.RIG / "steps.c"]
        done = PICO_CHIP.run(PICO_CHIP.build(folder / "steps", sources, f"-I{folder}"))
    if done.returncode:
        sys.exit(f"steps.c: {(done.stdout + done.stderr)[-2000:]}")
    failed = 0
    for number, counts in cycles(done.stdout).items():
        good = min(counts) == max(counts)
        failed += not good
        word = SHAPES[number // 1000][1]["mechanism"]
        print(f"{word} level {number % 1000}: {len(counts)} branches, {min(counts)} to {max(counts)} cycles")
    print(f"{len(SHAPES)} experiments, {failed} levels whose cycles reveal something")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
