"""The import contracts in pyproject.toml are met and detect violations; modules do not import in a cycle."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("device", "server", "planning", "fleet", "simulator", "studies", "web", "cli")
MODULES = sorted(path for folder in (*PACKAGES, "hushmote") for path in (ROOT / folder).rglob("*.py"))

# Contract -> modules, each with a line that violates it.
VIOLATIONS = {
    "layers: the core imports nothing above it": {
        "server/answers/ask.py": "from ...planning import devices",
        "server/estimate/pooling.py": "from ...simulator import population",
        "server/errors.py": "from ..cli import options",
        "planning/devices.py": "from ..fleet import results",
        "web/plan/view.py": "from ...studies import daily",
    },
    "layers of the core": {
        "server/store/store.py": "from ..answers import tables",
        "server/release/plan.py": "from ..ingest import session",
    },
    "layers of a fleet": {"fleet/results/snapshot.py": "from ..door import app"},
    "counting knows no mechanism": {"server/ingest/pipeline.py": "from ..mechanisms import hashing"},
    "device/ imports nothing of ours": {"device/ldp_client.py": "from ..server import errors"},
    "only the command line imports typer": {"server/answers/tables.py": "import typer"},
    "nothing imports the connection to NATS": {
        "server/service/process.py": "from ..ingest.nats import source"
    },
    "only the door, the witness and the service import Starlette": {
        "server/overview/rejects.py": "import starlette"
    },
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a copy of the packages as one tree, hushmote/..., with the project's contracts."""
    folder = tmp_path_factory.mktemp("tree")
    caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "hushmote", folder / "hushmote", ignore=caches)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / "hushmote" / name, ignore=caches)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--config", "pyproject.toml"]
    environment = os.environ | {"COLUMNS": "200", "PYTHONPATH": str(tree)}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


class TestContracts:
    def test_are_met(self, tree: Path):
        run = lint(tree)
        assert run.returncode == 0, run.stdout
        contracts = (ROOT / "pyproject.toml").read_text().count("[[tool.importlinter.contracts]]")
        assert f"{contracts} kept, 0 broken" in run.stdout

    def test_name_each_violation(self, tree: Path):
        lines = {module: line for modules in VIOLATIONS.values() for module, line in modules.items()}
        originals = {module: (tree / "hushmote" / module).read_text() for module in lines}
        for module, line in lines.items():
            (tree / "hushmote" / module).write_text(f"{originals[module]}\n{line}\n")
        run = lint(tree)
        for module, text in originals.items():
            (tree / "hushmote" / module).write_text(text)
        assert run.returncode == 1, run.stdout
        # Each contract's heading and a line of dashes precede the imports that violate it.
        parts = iter(re.split(r"^(.+)\n-{3,}\n", run.stdout, flags=re.MULTILINE)[1:])
        cycles = dict(zip(parts, parts, strict=True))
        for contract, modules in VIOLATIONS.items():
            for module in modules:
                name = "hushmote." + module.removesuffix(".py").replace("/", ".")
                assert name in cycles[contract], (contract, module)


def dotted_name(path: Path) -> str:
    """Return a module's name without `hushmote.`; a package is named after its folder."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path, names: set[str]) -> Iterator[str]:
    """Yield the project's modules that a module imports anywhere, except for type checking only."""
    tree = ast.parse(path.read_text())
    package = dotted_name(path).split(".")[: None if path.name == "__init__.py" else -1]
    conditions = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    typing = [part for node in conditions if ast.unparse(node.test) == "TYPE_CHECKING" for part in node.body]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in typing:
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])]).removeprefix("hushmote.")
            for alias in node.names:
                yield next((name for name in (f"{module}.{alias.name}", module) if name in names), "")


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the modules of an import cycle, ending with the first again, or an empty list."""
    try:
        TopologicalSorter({name: others - {name} for name, others in graph.items()}).prepare()
    except CycleError as e:
        return e.args[1]
    return []


class TestCycles:
    def test_modules_have_no_cycles(self):
        names = {dotted_name(path) for path in MODULES}
        graph = {dotted_name(path): {*imports(path, names)} - {""} for path in MODULES}
        assert sum(map(len, graph.values())) > 1000
        assert cycle(graph) == []

    def test_finds_a_cycle_of_three(self):
        graph = {"a": {"b"}, "b": {"c", "e"}, "c": {"d"}, "d": {"b"}, "e": {"e"}}
        assert set(cycle(graph)) == {"b", "c", "d"}
        assert cycle(graph | {"d": set()}) == []


class TestMutants:
    def test_equivalent_ones_are_in_the_table(self):
        quick = [sys.executable, ROOT / "benchmarks/mutants.py", "--quick"]
        assert subprocess.run(quick).returncode == 0  # pytest shows its output
