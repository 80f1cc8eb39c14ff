"""The sdist and the wheel: built as pip builds them, installed in an empty environment and used there.

The wheel is built from the sdist, so the sdist has all that it takes. It is installed into an environment
that holds, besides, the distributions that the wheel's own metadata asks for and no others. Those are links
to what is installed here: the versions that are tested, without downloading them a second time.
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
from browser_board import fetched
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hushmote

ROOT = Path(__file__).parents[2]
MOST_WHEEL_BYTES = 1_500_000  # a fifth of it is MicroPython for the board in the browser
LEFT_OUT = (
    *(".git", ".venv*", ".rig", "build", "dist", "out", "*.egg-info", "node_modules"),
    *("__pycache__", ".*_cache", ".hypothesis"),
)
# What the board in the browser takes from elsewhere: in a wheel it lies beside its page.
BESIDE_THE_BOARD = ("tests/vectors.json", "tests/vectors_further.json", "firmware_tests/check_vectors.py")
BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
# Modules of parts that run on MicroPython alone.
ON_BOARDS = {
    "device.manifest",
    "fleet.audit.audit_board",
    "simulator.board.hardware",
    "simulator.board.repl",
    "simulator.contract.codes_board",
}
# Modules that need an extra, which is imported where it is asked for, by the package that they lack first.
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
    "starlette": {"fleet.door.app", "server.service.http_endpoint"},
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
    """Build in a folder with setuptools, through a hook that pip calls, and return the result."""
    command = [sys.executable, "-c", BUILD, hook, into]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return into / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fetched()
    folder = tmp_path_factory.mktemp("sdist")
    shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
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
    """Return the distributions that requirements name, and their dependencies, with extras."""
    found: dict[str, Distribution] = {}
    for text in requirements:
        requirement = Requirement(text)
        marker, name = requirement.marker, canonicalize_name(requirement.name)
        if name in found or (marker and not any(marker.evaluate({"extra": e}) for e in extras | {""})):
            continue
        found[name] = distribution(name)
        found |= asked_for(found[name].requires or [], requirement.extras)
    return found


def link(one: Distribution, into: Path) -> None:
    """Put a distribution that is installed here into another environment's folder."""
    for file in one.files or []:
        top = file.parts[0]
        if top not in ("..", "__pycache__") and not (into / top).exists():
            (into / top).symlink_to(Path(str(one.locate_file(top))))


def install(wheel: Path, folder: Path, *extras: str) -> Path:
    """Return the programs of an environment that has the wheel with some extras, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    pip += ["--python", str(folder / "bin" / "python"), "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(pip, check=True)
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    for one in asked_for(metadata(wheel).get_all("Requires-Dist", []), set(extras)).values():
        link(one, packages)
    return folder / "bin"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the programs of an environment without any extra."""
    return install(wheel, tmp_path_factory.mktemp("empty"))


@pytest.fixture(scope="module")
def with_simulator(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("simulator"), "simulator")


def run(installed: Path, program: str, *arguments: str, folder: Path) -> str:
    """Return the output of a program of that environment, which is isolated from this one and the project."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HUSHMOTE"))
    }
    done = subprocess.run(
        [installed / program, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class TestSdist:
    @pytest.mark.slow
    def test_has_all_that_tests_need(self, sdist: Path):
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
        """Modules go onto boards from there as they are, and so does what lies beside them."""
        assert wheel.stat().st_size < MOST_WHEEL_BYTES
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
            if path.is_file() and "__pycache__" not in path.parts
        }
        for name in BESIDE_THE_BOARD:
            ours[ROOT / name] = f"hushmote/web/board/static/{Path(name).name}"
        with zipfile.ZipFile(wheel) as archive:
            there = {name for name in archive.namelist() if ".dist-info/" not in name}
            assert there == set(ours.values())
            for path, name in ours.items():
                assert archive.read(name) == path.read_bytes(), name

    @pytest.mark.slow
    def test_metadata_has_license_and_links(self, wheel: Path):
        said = metadata(wheel)
        assert said["License-Expression"].startswith("Apache-2.0")
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
        classifiers = said.get_all("Classifier", [])
        assert "Programming Language :: Python :: 3.11" in classifiers
        assert "Typing :: Typed" in classifiers
        documented = set(
            re.findall(r"^\| `\[(\w+)\]`", (ROOT / "docs" / "tutorial.md").read_text(), re.MULTILINE)
        )
        assert documented == set(said.get_all("Provides-Extra", []))

    @pytest.mark.slow
    def test_reports_missing_board_if_it_cannot_be_fetched(self, tmp_path: Path):
        """Where neither MicroPython for browsers nor npm is there."""
        left_out = shutil.ignore_patterns(*LEFT_OUT, "micropython", "docs")
        shutil.copytree(ROOT, tmp_path / "source", ignore=left_out, symlinks=True)
        command = [sys.executable, "-c", BUILD, "build_wheel", tmp_path]
        environment = os.environ | {"PATH": str(tmp_path)}
        done = subprocess.run(
            command, cwd=tmp_path / "source", env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert "The board in the browser cannot be fetched: there is no Node.js with npm." in done.stderr
        (built,) = tmp_path.glob("*.whl")
        names = zipfile.ZipFile(built).namelist()
        assert "hushmote/web/app.py" in names
        assert not [name for name in names if name.endswith(".wasm")]


class TestInstalledWheel:
    def test_modules_need_only_declared_requirements(self, installed: Path, tmp_path: Path):
        *lines, where = run(installed, "python", "-c", EVERY_MODULE, folder=tmp_path).splitlines()
        missing = dict(line.split() for line in lines)
        # The page needs [page], its board's files do not.
        assert "web.board.files" not in missing
        assert {name for name in missing if not name.startswith("web.")} == ON_BOARDS.union(
            *OPTIONAL.values()
        )
        for package, modules in OPTIONAL.items():
            assert {name for name in modules if missing[name] != package} == set(), package
        assert Path(where).is_relative_to(installed.parent)
        assert (
            run(installed, "hushmote", "--version", folder=tmp_path) == f"hushmote {hushmote.__version__}\n"
        )

    @pytest.mark.slow
    def test_has_browser_board(self, installed: Path, tmp_path: Path):
        run(installed, "python", "-m", "hushmote.web.board", str(tmp_path), folder=tmp_path)
        fetch = runpy.run_path(str(ROOT / "web/board/fetch.py"))
        for name in fetch["FILES"]:
            assert (tmp_path / "micropython" / name).read_bytes() == (fetch["PORT"] / name).read_bytes()
        for name in ("device/ldp_client.py", *BESIDE_THE_BOARD):
            assert (tmp_path / Path(name).name).read_bytes() == (ROOT / name).read_bytes()

    @pytest.mark.broker
    @pytest.mark.parametrize("broker", ["embedded", pytest.param("auto", marks=pytest.mark.long)])
    def test_demo_runs_with_its_extra(self, with_simulator: Path, tmp_path: Path, broker: str):
        arguments = ("--devices", "200", "--broker", broker, "--json")
        shown = json.loads(run(with_simulator, "hushmote", "demo", *arguments, folder=tmp_path))
        assert (shown["reports"], Path(shown["plot"]).suffix) == (200, ".png")
        assert (tmp_path / shown["plot"]).stat().st_size > 10_000


class TestEditableInstall:
    def test_wins_over_folder_of_same_name(self, tmp_path: Path):
        (tmp_path / "hushmote").mkdir()  # as a clone lies in the folder above it
        code = "import hushmote; print(hushmote.__file__)"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.strip() == str(ROOT / "hushmote/__init__.py")

    def test_leaves_a_whole_package_to_lint_imports(self, tmp_path: Path):
        (tmp_path / "hushmote").mkdir()  # as .venv/linked has it
        (tmp_path / "hushmote" / "__init__.py").touch()
        code = "import hushmote; print(hushmote.__file__)"
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout.strip() == str(tmp_path / "hushmote/__init__.py")
