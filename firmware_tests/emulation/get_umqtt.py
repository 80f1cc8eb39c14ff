"""Put umqtt.simple, as published, into a folder: python get_umqtt.py [FOLDER], default .rig/lib.

Version 1.3.4 is the last on PyPI. It is meant for MicroPython's installer and has no setup.py, so pip refuses
to install it, but it does unpack it, and --no-clean preserves the unpacked files. The version that `hushmote
flash` installs is device/umqtt/simple.py.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "micropython-umqtt.simple==1.3.4"
SHA256 = "8555d2f654deb8eb0d724f79b0811a78cc94029d070f3d96bbd74288653d63a5"


def fetch(folder: Path) -> Path:
    """Return the folder, with umqtt/simple.py in it; download it only if it is missing.

    Raises:
        RuntimeError: If pip does not provide version 1.3.4.
    """
    target = folder / "umqtt" / "simple.py"
    if target.exists() and _sha256(target) == SHA256:
        return folder
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-clean", "--no-deps"]
        command += ["--no-build-isolation", "--no-binary", ":all:", "--dest", scratch, PACKAGE]
        # pip fails because setup.py is missing, but it has unpacked the module by then.
        done = subprocess.run(
            command, env={**os.environ, "TMPDIR": scratch}, capture_output=True, text=True, check=False
        )
        matches = [p for p in Path(scratch).glob("pip-*/*/umqtt/simple.py") if _sha256(p) == SHA256]
        if not matches:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise RuntimeError(f"pip did not download {PACKAGE}: {last}")
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{os.getpid()}")
        part.write_bytes(matches[0].read_bytes())
        part.replace(target)
    return folder


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    default = Path(__file__).resolve().parents[2] / ".rig" / "lib"
    print(fetch(Path(sys.argv[1]) if len(sys.argv) > 1 else default) / "umqtt" / "simple.py")
