"""Step counts of the shipped code: equal for truths and lies, and for all readings.

A copy of each board file counts every statement that its functions execute. Every branch of every mechanism's
draws is run with these copies, on CPython and on MicroPython. This proves that the number of statements
depends only on the drawn level, which is visible in the report. It does not prove that each statement takes
the same time, and does not cover the conversion from a reading to an index.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from experiments import experiment_json
from micropython import find_runtime

from hushmote.server.mechanisms import MECHANISMS
from hushmote.server.wire.board_files import DEVICE, shipped_files

NAMES = ("ldp_client", *(path.stem for path in shipped_files().values()))

NUMBER: dict[str, Any] = {"type": "number", "low": -20_000, "high": 50_000}
PAIR: dict[str, Any] = {
    "type": "pair",
    "of": [{"name": "a", "type": "bool"}, {"name": "b", "type": "choice", "labels": ["x", "y"]}],
}
TEXT: dict[str, Any] = {"type": "text", "salt": "s", "slots": 8}
SHAPES: dict[str, dict[str, Any]] = {
    "rr": {"type": "bool", "mechanism": "rr"},
    "grr": NUMBER | {"bins": 5, "mechanism": "grr"},
    "olh": NUMBER | {"bins": 10, "mechanism": "olh", "g": 3},
    "hh": NUMBER | {"bins": 9, "mechanism": "hh", "fanout": 3, "cells": [2, 5]},
    "hh of three levels": NUMBER | {"bins": 5, "mechanism": "hh", "fanout": 2, "cells": [2, 2, 5]},
    "sw": NUMBER | {"bins": 5, "mechanism": "sw", "reach": 1},
    "pgr": NUMBER | {"bins": 11, "mechanism": "pgr", "q": 3},
    "views": PAIR | {"mechanism": "views", "views": [[0], [1], [0, 1]], "cells": [2, 2, 5]},
    "grr of a pair": PAIR | {"mechanism": "grr"},
    "pgr of a pair": PAIR | {"mechanism": "pgr", "q": 2},
    "olh of a text": TEXT | {"mechanism": "olh", "g": 3},
    "grr with missing": {"type": "bool", "missing": 1, "mechanism": "grr"},
    "hh with missing": NUMBER | {"bins": 8, "missing": 1, "mechanism": "hh", "fanout": 3, "cells": [2, 5]},
    "views with missing": {
        "type": "pair",
        "of": [{"name": "a", "type": "bool", "missing": 1}, {"name": "b", "type": "bool", "missing": 1}],
        "mechanism": "views",
        "views": [[0], [0, 1]],
        "cells": [3, 5],
    },
    "prefix": TEXT | {"slots": 4, "prefixes": [1, 2], "mechanism": "prefix", "q": 2},
}
LISTED = frozenset(SHAPES)
for _word in sorted(MECHANISMS.keys() - {shape["mechanism"] for shape in SHAPES.values()}):
    SHAPES |= {f"{_word} {i}": dict(example) for i, example in enumerate(MECHANISMS[_word].examples)}

# Runs every branch of every index on both runtimes, by scripted draws.
SCRIPT = """
import json
import executed_steps
import ldp_client
for name in NAMES[1:]:
    __import__(name)


class Branches:
    def __init__(self):
        self.choices = []
        self.sizes = []
        self.at = 0

    def _choose(self, n):
        at = self.at
        self.at += 1
        if at == len(self.choices):
            self.choices.append(0)
            self.sizes.append(n)
        return self.choices[at]

    def bernoulli(self, threshold):
        return self._choose(2) == 0

    def below(self, n):
        return self._choose(n)

    def advance(self):
        while self.choices and self.choices[-1] == self.sizes[-1] - 1:
            self.choices.pop()
            self.sizes.pop()
        self.at = 0
        if self.choices:
            self.choices[-1] += 1
        return bool(self.choices)


found = {}
for name in PAYLOADS:
    exp = ldp_client.Experiment.parse(PAYLOADS[name].encode())
    several = len(exp.levels) > 1
    counts = {}
    branches = 0
    for index in range(exp.domain):
        rng = Branches()
        while True:
            executed_steps.count = 0
            exp.randomize(index, rng)
            counts.setdefault(rng.choices[0] if several else 0, set()).add(executed_steps.count)
            branches += 1
            if not rng.advance():
                break
    found[name] = [branches, sorted([level, sorted(counts[level])] for level in counts)]
print(json.dumps(found))
"""


class Counting(ast.NodeTransformer):
    """Puts `executed_steps.count += 1` before each statement of a function."""

    def __init__(self) -> None:
        self.inside = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.inside += 1
        self.generic_visit(node)
        self.inside -= 1
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if self.inside:
            for name in ("body", "orelse", "finalbody"):
                body = getattr(node, name, None)
                if isinstance(body, list) and body:
                    step_counts = [
                        [*ast.parse("executed_steps.count += 1").body, statement] for statement in body
                    ]
                    setattr(node, name, [statement for pair in step_counts for statement in pair])
        return node


def counting(source: str) -> str:
    tree = Counting().visit(ast.parse(source))
    return "import executed_steps\n" + ast.unparse(ast.fix_missing_locations(tree))


def stage(folder: Path, change: tuple[str, str] = ("", "")) -> dict[str, bytes]:
    """Write the counting copies and the script; change: a text in ldp_client.py and its replacement."""
    payloads = {name: experiment_json(epsilon=8_000_000, **shape) for name, shape in SHAPES.items()}
    for name in NAMES:
        source = (DEVICE / f"{name}.py").read_text()
        if name == "ldp_client":
            assert change[0] in source
            source = source.replace(*change) if change[0] else source
        (folder / f"{name}.py").write_text(counting(source))
    (folder / "executed_steps.py").write_text("count = 0\n")
    texts = {name: payload.decode() for name, payload in payloads.items()}
    (folder / "count_steps.py").write_text(f"NAMES = {NAMES!r}\nPAYLOADS = {texts!r}\n{SCRIPT}")
    return payloads


def step_counts(folder: Path, argv: tuple[str, ...]) -> dict[str, Any]:
    result = subprocess.run(
        [*argv, "count_steps.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr + result.stdout
    return json.loads(result.stdout)


@pytest.fixture(params=["CPython", "MicroPython"])
def argv(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return (sys.executable,) if request.param == "CPython" else find_runtime()


def test_step_count_depends_on_neither_lie_nor_reading(tmp_path: Path, argv: tuple[str, ...]):
    stage(tmp_path)
    steps = step_counts(tmp_path, argv)
    assert set(steps) == set(SHAPES)
    for name, (branches, levels) in steps.items():
        assert branches > 2, name
        for level, counts in levels:
            assert len(counts) == 1, f"{name}, level {level}: {counts} steps"


def test_detects_code_that_runs_only_for_lies(tmp_path: Path, argv: tuple[str, ...]):
    draw_line = "        return code + (cell + lie * other) % g\n"
    stage(
        tmp_path, (draw_line, "        if lie:\n            cell += other\n        return code + cell % g\n")
    )
    steps = step_counts(tmp_path, argv)
    uneven = {name for name, (_, levels) in steps.items() if any(len(counts) > 1 for _, counts in levels)}
    assert uneven & LISTED == {name for name in LISTED if not name.startswith(("sw", "pgr", "prefix"))}
