"""The npm package of the JavaScript client."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from .archives import write_tree
from .source import ReleaseError, Source


def build(source: Source, dist: Path) -> None:
    """Pack the JavaScript client with its licence; npm itself makes the same bytes each time."""
    if shutil.which("npm") is None:
        raise ReleaseError("npm is not installed: apt-get install nodejs npm")
    files = source.tree("clients/js") | {
        "LICENSE": source.read("LICENSE"),
        "README.md": source.page("clients/js/README.md"),
    }
    with tempfile.TemporaryDirectory() as folder:
        write_tree(Path(folder), files)
        command = ["npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", str(dist.resolve())]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ReleaseError(f"npm pack failed:\n{result.stdout}{result.stderr}")
