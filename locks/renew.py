"""Write the lock files anew: what CI, the container and these tools install, by version and hash.

    make lock              adds what pyproject.toml newly asks for; the other versions stay
    make lock UPGRADE=1    takes the newest versions that pyproject.toml allows

A lock holds for Python 3.11 and newer on any system, and names no registry.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
# What makes the locks and looks for known flaws; installed from a lock as well.
TOOLS = ("pip-audit>=2.9,<3", "uv>=0.8,<1")


def _compile(lock: str, source: str, *options: str, requirements: tuple[str, ...] = ()) -> None:
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "--no-config", "pip", "compile", source, "--output-file", f"locks/{lock}", "--quiet"]
    command += ["--universal", "--python-version", "3.11", "--generate-hashes", *options]
    command += ["--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command", "make lock"]
    subprocess.run(command, cwd=ROOT, input="\n".join(requirements), text=True, check=True)


def main() -> None:
    upgrade = sys.argv[1:]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    _compile("test.txt", "pyproject.toml", "--extra", "test", *upgrade)
    # The container has the versions that were tested.
    tested = ("--constraint", "locks/test.txt")
    _compile("container.txt", "pyproject.toml", "--extra", "postgresql", "--extra", "page", *tested, *upgrade)
    _compile("build.txt", "-", *upgrade, requirements=tuple(build))
    _compile("tools.txt", "-", *upgrade, requirements=TOOLS)


if __name__ == "__main__":
    main()
