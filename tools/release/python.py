"""The wheel and the source distribution, through the hooks that pip calls."""

import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from .archives import read_tree, write_tar, write_tree
from .source import ReleaseError, Source

_HOOK = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


def fetch_board(root: Path) -> None:
    """Fetch MicroPython for the browser board from npm, which the wheel must contain.

    Raises:
        ReleaseError: If it cannot be fetched.
    """
    try:
        runpy.run_path(str(root / "web" / "board" / "fetch.py"))["main"]()
    except SystemExit as e:
        raise ReleaseError(str(e)) from None


def build(source: Source, dist: Path) -> None:
    """Build the source distribution, and the wheel from its content."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, built = Path(scratch) / "source", Path(scratch) / "built"
        built.mkdir()
        write_tree(folder, source.tree(".") | {"README.md": source.page("README.md")})
        made = _run_hook("build_sdist", folder, built)
        with tarfile.open(made) as archive:
            archive.extractall(built, filter="data")
        content = read_tree(built / made.name.removesuffix(".tar.gz"))
        top = f"hushmote-{source.version}"
        write_tar(dist / f"{top}.tar.gz", {f"{top}/{name}": data for name, data in content.items()})
        unpacked = Path(scratch) / top
        write_tree(unpacked, content)
        shutil.copy(_run_hook("build_wheel", unpacked, built), dist)


def _run_hook(hook: str, folder: Path, into: Path) -> Path:
    command = [sys.executable, "-c", _HOOK, hook, str(into)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(
        command, cwd=folder, env=environment, umask=0o022, capture_output=True, text=True, check=False
    )
    if result.returncode:
        raise ReleaseError(f"{hook} failed:\n{result.stdout}{result.stderr}")
    return into / result.stdout.splitlines()[-1]
