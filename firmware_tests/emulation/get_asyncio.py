"""Install MicroPython's asyncio in a folder: python get_asyncio.py, default .rig/asyncio.

The unix port that is built like a board's has no frozen modules; boards have this one.
"""

import fcntl
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from emulation import debian

RIG = Path(__file__).resolve().parents[2] / ".rig"


def fetch(rig: Path = RIG) -> Path:
    """Return the folder that holds asyncio; download MicroPython's source from Debian if needed.

    Raises:
        debian.CannotInstall: If the source is not available.
    """
    folder = rig / "asyncio"
    rig.mkdir(parents=True, exist_ok=True)
    with open(rig / "asyncio.lock", "w") as lock:  # only one of several processes unpacks it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "asyncio" / "__init__.py").exists():
            _unpack(rig, folder)
    return folder


def _unpack(rig: Path, folder: Path) -> None:
    source = rig / "asyncio.new"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    with tarfile.open(next(debian.packages("source", "micropython").glob("*.orig.tar.*"))) as archive:
        for member in archive:
            path = Path(member.name)
            if path.parts[-3:-1] == ("extmod", "asyncio") and path.suffix == ".py":
                member.name = f"asyncio/{path.name}"
                archive.extract(member, source, filter="data")
    folder.mkdir(exist_ok=True)
    (source / "asyncio").replace(folder / "asyncio")
    shutil.rmtree(source)


if __name__ == "__main__":
    try:
        print(fetch())
    except (debian.CannotInstall, subprocess.SubprocessError) as e:
        sys.exit(str(e))
