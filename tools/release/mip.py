"""The modules for MicroPython boards: for `mpremote mip install`, and as `hushmote flash` copies them."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from .archives import read_tree, write_tree
from .source import ReleaseError, Source


def build(source: Source, dist: Path) -> None:
    """Compile the modules of the built wheel."""
    (wheel,) = dist.glob(f"hushmote-{source.version}-*.whl")
    with tempfile.TemporaryDirectory() as scratch:
        zipfile.ZipFile(wheel).extractall(Path(scratch) / "wheel")
        environment = os.environ | {"PYTHONPATH": str(Path(scratch) / "wheel")}
        for module, folder in (("mip", "mip"), ("release_files", "board")):
            command = [sys.executable, "-m", f"hushmote.fleet.provisioning.{module}", folder]
            result = subprocess.run(
                command, cwd=scratch, env=environment, capture_output=True, text=True, check=False
            )
            if result.returncode:
                raise ReleaseError(f"the modules for boards cannot be compiled:\n{result.stderr}")
            write_tree(dist / folder, read_tree(Path(scratch) / folder))
