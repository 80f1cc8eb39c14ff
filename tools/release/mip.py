"""The folder from which `mpremote mip install` puts the client onto MicroPython boards."""

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
        command = [sys.executable, "-m", "hushmote.fleet.provisioning.mip", "mip"]
        environment = os.environ | {"PYTHONPATH": str(Path(scratch) / "wheel")}
        result = subprocess.run(
            command, cwd=scratch, env=environment, capture_output=True, text=True, check=False
        )
        if result.returncode:
            raise ReleaseError(f"the modules for boards cannot be compiled:\n{result.stderr}")
        write_tree(dist / "mip", read_tree(Path(scratch) / "mip"))
