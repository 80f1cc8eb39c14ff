"""The dependency rules hold: no upward import, no import cycle, one name for one thing."""

import ast
import gc
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("device", "server", "planning", "fleet", "simulator", "studies", "web", "cli", "hushmote")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    tree = ast.parse(path.read_text())
    gc.freeze()  # it stays: the collector need not look through it
    return tree


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Every class of the product and the module that it stands in."""
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                yield name_of(path), node


def test_the_table_of_mutants_fits_the_code():
    quick = [sys.executable, ROOT / "benchmarks/mutants.py", "--quick"]
    assert subprocess.run(quick).returncode == 0  # pytest shows what it printed


def named(path: Path) -> str:
    """The dotted name of a module, of a package's __init__.py the package's."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path, tree: ast.Module, known: set[str]) -> Iterator[str]:
    """The project's modules that a module imports, at its start or later; not those for types alone."""
    package = named(path).split(".")[: None if path.name == "__init__.py" else -1]
    ifs = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    typing = [part for node in ifs if ast.unparse(node.test) == "TYPE_CHECKING" for part in node.body]
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node in typing:
            continue
        base = package[: len(package) - node.level + 1] if node.level else []
        whole = ".".join([*base, *filter(None, [node.module])]).removeprefix("hushmote.")
        for alias in node.names:
            yield next((name for name in (f"{whole}.{alias.name}", whole) if name in known), "")


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Files that import each other in a circle, the first again at the end; none where there is no circle."""
    try:
        TopologicalSorter({name: others - {name} for name, others in graph.items()}).prepare()
    except CycleError as e:
        return e.args[1]
    return []


def test_no_file_imports_itself_over_others():
    known = {named(path) for path in MODULES}
    graph = {named(path): {*imports(path, parsed(path), known)} - {""} for path in MODULES}
    assert sum(map(len, graph.values())) > 1000
    assert circle(graph) == []


def test_a_circle_over_three_files_is_found_and_one_of_a_file_with_itself_is_none():
    graph = {"a": {"b"}, "b": {"c", "e"}, "c": {"d"}, "d": {"b"}, "e": {"e"}}
    assert set(circle(graph)) == {"b", "c", "d"}
    assert circle(graph | {"d": set()}) == []


def test_one_module_of_the_command_line_draws_progress_bars():
    drawing = {name_of(path) for path in MODULES if "rich.progress" in path.read_text()}
    assert drawing == {"cli/progress.py"}


def test_no_class_name_stands_for_two_things():
    where: dict[str, list[str]] = defaultdict(list)
    for module, node in classes():
        where[node.name].append(module)
    twice = {name: modules for name, modules in where.items() if len(modules) > 1}
    assert not twice


# A line that may not stand in a module, and the contract that says so.
VIOLATIONS = {
    "upwards": ("server/store/store.py", "from ..answers import tables", "floors"),
    "into the simulator": ("server/estimate/pooling.py", "from ...simulator import population", "floors"),
    "studies in the page": ("web/plan/view.py", "from ...studies import daily", "floors"),
    "into the command line": ("server/errors.py", "from ..cli import options", "floors"),
    "sideways": ("planning/devices.py", "from ..answers import answer", "floors"),
    "a mechanism in the middle": (
        "server/ingest/pipeline.py",
        "from ..mechanisms import local_hashing",
        "the middle knows no mechanism",
    ),
    "ours on a board": (
        "device/ldp_client.py",
        "from ..server import errors",
        "the board's files import nothing of ours",
    ),
    "Starlette in a room": (
        "server/overview/rejects.py",
        "import starlette",
        "only the page, the door and the service know Starlette",
    ),
    "typer in a room": ("server/answers/tables.py", "import typer", "only the command line knows typer"),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages as one tree, hushmote/..., beside the project's own contracts."""
    folder = tmp_path_factory.mktemp("house")
    own = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "hushmote", folder / "hushmote", ignore=own)
    for name in FOLDERS[:-1]:
        shutil.copytree(ROOT / name, folder / "hushmote" / name, ignore=own)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    """import-linter's run over a tree."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--config", "pyproject.toml"]
    environment = os.environ | {"COLUMNS": "200", "PYTHONPATH": str(tree)}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


def test_the_tree_keeps_every_contract(tree: Path):
    done = lint(tree)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout
    contracts = (ROOT / "pyproject.toml").read_text().count("[[tool.importlinter.contracts]]")
    assert f"{contracts} kept" in done.stdout


def test_deliberate_violations_fail_by_name(tree: Path):
    """All at once: each line with its contract, which names the module."""
    before = {module: (tree / "hushmote" / module).read_text() for module, _, _ in VIOLATIONS.values()}
    for module, line, _ in VIOLATIONS.values():
        with (tree / "hushmote" / module).open("a") as file:
            file.write(f"\n{line}\n")
    done = lint(tree)
    for module, text in before.items():
        (tree / "hushmote" / module).write_text(text)
    assert done.returncode == 1, done.stdout
    broken = [shown for shown in done.stdout.splitlines() if " BROKEN" in shown]
    # A heading above a line of dashes, and then what breaks that contract.
    parts = iter(re.split(r"^(.+)\n-{3,}\n", done.stdout, flags=re.MULTILINE)[1:])
    said = dict(zip(parts, parts, strict=True))
    for violation, (module, _, contract) in VIOLATIONS.items():
        assert any(shown.startswith(contract) for shown in broken), violation
        name = "hushmote." + module.removesuffix(".py").replace("/", ".")
        assert any(name in text for heading, text in said.items() if heading.startswith(contract)), violation
