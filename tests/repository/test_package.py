"""Build the sdist and the wheel as pip does, and use them in an empty environment.

The wheel is built from the sdist, which must therefore be complete. It is installed into an environment that
otherwise contains only the distributions that the wheel's metadata requires. These are links to the locally
installed, tested versions, which avoids a second download.
"""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from importlib.metadata import Distribution, distribution, version
from pathlib import Path

import pytest
from browser_board import require_micropython
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hushmote

ROOT = Path(__file__).parents[2]
MAX_WHEEL_BYTES = 2_000_000  # notices data that does not belong in it; code may grow
EXCLUDED = (
    *(".git", ".venv*", ".rig", "build", "dist", "out", "*.egg-info", "node_modules"),
    *("__pycache__", ".*_cache", ".hypothesis"),
)
# Files from other folders that the browser board needs; a wheel has them next to its page.
BOARD_PAGE_FILES = ("tests/vectors.json", "tests/vectors_further.json", "firmware_tests/check_vectors.py")
BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
# Modules that run only on MicroPython.
ON_BOARDS = {
    "device.manifest",
    "fleet.audit.audit_board",
    "simulator.board.hardware",
    "simulator.board.repl",
    "simulator.contract.codes_board",
}
# Modules that need an extra when imported, by the first package they miss without it.
OPTIONAL = {
    "cloudpickle": {"simulator.dask_workers"},
    "matplotlib": {
        "cli.epsilon.plot",
        "cli.ledger.plot",
        "cli.plan.plot",
        "server.answers.figure",
        "server.answers.plot",
        "simulator.convergence_plot",
        "studies.drawing",
        "studies.ranges_figures",
    },
    "nats": {f"server.ingest.nats.{name}" for name in ("client", "connection", "consumer", "source")},
    "prometheus_client": {"fleet.door.metrics", "fleet.results.gauges", "server.service.metrics"},
    "psycopg": {"server.store.postgresql"},
    "starlette": {
        "fleet.door.app",
        "fleet.witness.app",
        "server.service.http_endpoint",
        "server.service.log_files",
        "server.service.request_body",
        "simulator.log_demo",
    },
    "uvicorn": {"fleet.door.process", "server.service.bounded_http", "simulator.live_demo"},
}
EVERY_MODULE = """
import importlib, pkgutil, hushmote
for module in pkgutil.walk_packages(hushmote.__path__, "hushmote."):
    try:
        module.name.endswith("__main__") or importlib.import_module(module.name)
    except (ImportError, NameError) as e:
        print(module.name.removeprefix("hushmote."), e.name)
print(hushmote.__file__)
"""


def build(hook: str, source: Path, into: Path) -> Path:
    """Build in a folder through the setuptools hook that pip calls, and return the built file."""
    command = [sys.executable, "-c", BUILD, hook, into]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return into / result.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_micropython()
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(*EXCLUDED), symlinks=True)
    return build("build_sdist", folder / "source", folder)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return build("build_wheel", folder / sdist.name.removesuffix(".tar.gz"), folder)


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return HeaderParser().parsestr(archive.read(name).decode())


def asked_for(requirements: list[str], extras: set[str]) -> dict[str, Distribution]:
    """Return the required distributions and their dependencies, with extras."""
    packages: dict[str, Distribution] = {}
    for text in requirements:
        requirement = Requirement(text)
        marker, name = requirement.marker, canonicalize_name(requirement.name)
        if name in packages or (marker and not any(marker.evaluate({"extra": e}) for e in extras | {""})):
            continue
        packages[name] = distribution(name)
        packages |= asked_for(packages[name].requires or [], requirement.extras)
    return packages


def link(one: Distribution, into: Path) -> None:
    """Link a locally installed distribution into another environment's folder."""
    for file in one.files or []:
        top = file.parts[0]
        if top not in ("..", "__pycache__") and not (into / top).exists():
            (into / top).symlink_to(Path(str(one.locate_file(top))))


def install(wheel: Path, folder: Path, *extras: str) -> Path:
    """Return the bin folder of an environment that has only the wheel with some extras."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    pip += ["--python", str(folder / "bin" / "python"), "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True)
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    for required in asked_for(metadata(wheel).get_all("Requires-Dist", []), set(extras)).values():
        link(required, packages)
    return folder / "bin"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the bin folder of an environment without any extra."""
    return install(wheel, tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="module")
def with_simulator(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("simulator"), "simulator")


def run(installed: Path, program: str, *arguments: str, folder: Path) -> str:
    """Return a program's output in that environment, isolated from this one and the project."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HUSHMOTE"))
    }
    result = subprocess.run(
        [installed / program, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


class TestSdist:
    @pytest.mark.slow
    def test_has_every_file_for_tests(self, sdist: Path):
        with tarfile.open(sdist) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        assert {"LICENSE", "Makefile", "docs/tutorial.md", "tests/vectors.json", "tests/conftest.py"} <= names
        assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")} <= names
        assert not [name for name in names if name.startswith(("benchmarks/results/", ".git"))]


class TestWheel:
    @pytest.mark.slow
    def test_version_is_the_same_everywhere(self, wheel: Path):
        newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
        assert newest is not None
        assert {newest[1], metadata(wheel)["Version"], version("hushmote")} == {hushmote.__version__}

    @pytest.mark.slow
    def test_has_every_file_and_is_small(self, wheel: Path):
        """Boards get the wheel's modules and the files next to them; documents stay in the repository."""
        assert wheel.stat().st_size < MAX_WHEEL_BYTES
        ours = {
            path: ("" if path.parts[len(ROOT.parts)] == "hushmote" else "hushmote/")
            + path.relative_to(ROOT).as_posix()
            for folder in (
                "hushmote",
                "device",
                "server",
                "planning",
                "fleet",
                "simulator",
                "studies",
                "web",
                "cli",
            )
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and path.suffix != ".md" and "__pycache__" not in path.parts
        }
        for name in BOARD_PAGE_FILES:
            ours[ROOT / name] = f"hushmote/web/board/static/{Path(name).name}"
        with zipfile.ZipFile(wheel) as archive:
            names = {name for name in archive.namelist() if ".dist-info/" not in name}
            assert names == set(ours.values())
            for path, name in ours.items():
                assert archive.read(name) == path.read_bytes(), name

    @pytest.mark.slow
    def test_metadata_has_license_and_links(self, wheel: Path):
        fields = metadata(wheel)
        assert fields["License-Expression"].startswith("Apache-2.0")
        assert fields["Author-email"].startswith("Hushmote contributors <")
        urls = dict(text.split(", ", 1) for text in fields.get_all("Project-URL", []))
        assert {"Homepage", "Documentation", "Issues"} <= urls.keys()
        with zipfile.ZipFile(wheel) as archive:
            licences = {
                n.partition("/licenses/")[2]: archive.read(n) for n in archive.namelist() if "/licenses/" in n
            }
        assert licences["LICENSE"] == (ROOT / "LICENSE").read_bytes()
        others = {
            path.relative_to(ROOT).as_posix()
            for f in ("device", "web")
            for path in (ROOT / f).rglob("LICENSE")
        }
        assert set(licences) == {"LICENSE"} | others
        classifiers = fields.get_all("Classifier", [])
        assert "Programming Language :: Python :: 3.11" in classifiers
        assert "Typing :: Typed" in classifiers
        documented = set(
            re.findall(r"^\| `\[(\w+)\]`", (ROOT / "docs" / "tutorial.md").read_text(), re.MULTILINE)
        )
        assert documented == set(fields.get_all("Provides-Extra", []))

    @pytest.mark.slow
    def test_reports_missing_board_if_it_cannot_be_fetched(self, tmp_path: Path):
        """Neither MicroPython for browsers nor npm is installed."""
        left_out = shutil.ignore_patterns(*EXCLUDED, "micropython", "docs")
        shutil.copytree(ROOT, tmp_path / "source", ignore=left_out, symlinks=True)
        command = [sys.executable, "-c", BUILD, "build_wheel", tmp_path]
        environment = os.environ | {"PATH": str(tmp_path)}
        result = subprocess.run(
            command, cwd=tmp_path / "source", env=environment, capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        assert "The browser board cannot be fetched: Node.js with npm is not installed." in result.stderr
        (built,) = tmp_path.glob("*.whl")
        names = zipfile.ZipFile(built).namelist()
        assert "hushmote/web/app.py" in names
        assert not [name for name in names if name.endswith(".wasm")]


class TestInstalledWheel:
    def test_modules_need_only_declared_requirements(self, installed: Path, tmp_path: Path):
        *lines, location = run(installed, "python", "-c", EVERY_MODULE, folder=tmp_path).splitlines()
        missing = dict(line.split() for line in lines)
        # The page needs [page], but its board's files do not.
        assert "web.board.files" not in missing
        assert {name for name in missing if not name.startswith("web.")} == ON_BOARDS.union(
            *OPTIONAL.values()
        )
        for package, modules in OPTIONAL.items():
            assert {name for name in modules if missing[name] != package} == set(), package
        assert Path(location).is_relative_to(installed.parent)
        assert (
            run(installed, "hushmote", "--version", folder=tmp_path) == f"hushmote {hushmote.__version__}\n"
        )

    @pytest.mark.slow
    def test_has_browser_board(self, installed: Path, tmp_path: Path):
        run(installed, "python", "-m", "hushmote.web.board", str(tmp_path), folder=tmp_path)
        fetch = runpy.run_path(str(ROOT / "web/board/fetch.py"))
        for name in fetch["FILES"]:
            assert (tmp_path / "micropython" / name).read_bytes() == (fetch["PORT"] / name).read_bytes()
        for name in ("device/ldp_client.py", *BOARD_PAGE_FILES):
            assert (tmp_path / Path(name).name).read_bytes() == (ROOT / name).read_bytes()

    @pytest.mark.broker
    @pytest.mark.parametrize("broker", ["embedded", pytest.param("auto", marks=pytest.mark.long)])
    def test_demo_runs_with_its_extra(self, with_simulator: Path, tmp_path: Path, broker: str):
        arguments = ("--devices", "200", "--broker", broker, "--json")
        result = json.loads(run(with_simulator, "hushmote", "demo", *arguments, folder=tmp_path))
        assert (result["reports"], Path(result["plot"]).suffix) == (200, ".png")
        assert (tmp_path / result["plot"]).stat().st_size > 10_000


class TestEditableInstall:
    def test_wins_over_folder_with_same_name(self, tmp_path: Path):
        (tmp_path / "hushmote").mkdir()  # as a clone lies in the folder above it
        code = "import hushmote; print(hushmote.__file__)"
        result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert result.stdout.strip() == str(ROOT / "hushmote/__init__.py")

    def test_leaves_a_whole_package_to_lint_imports(self, tmp_path: Path):
        (tmp_path / "hushmote").mkdir()  # as .venv/linked has it
        (tmp_path / "hushmote" / "__init__.py").touch()
        code = "import hushmote; print(hushmote.__file__)"
        result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert result.stdout.strip() == str(tmp_path / "hushmote/__init__.py")
