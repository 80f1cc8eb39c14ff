"""The licences of what the artifacts contain, and of the packages that they need."""

import importlib.util
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution, distributions
from pathlib import Path
from types import ModuleType

from packaging.requirements import Requirement

from .source import Source

_DEVELOPMENT = {"bench", "docs", "test"}  # extras that no user needs
_ALWAYS = "every server"
_INTRODUCTION = """\
# Licences

Hushmote {version} is licensed under Apache-2.0; every archive contains the text as LICENSE. No NOTICE is
required.

## Included

| component | licence | where |
|---|---|---|
| umqtt.simple of micropython-lib | MIT | the wheel and the source distribution, with its licence |
| MicroPython for WebAssembly | MIT | the wheel, with its licence |

The archives for C and JavaScript contain only Hushmote's own files.

## Needed

Firmware needs the MQTT library by Joël Gähwiler (MIT) on Arduino, esp-mqtt, Mbed TLS and NVS (Apache-2.0) on
ESP-IDF, or Zephyr (Apache-2.0). The JavaScript client needs nothing.

The server needs these packages. Licences are what each package's metadata states.

| package | licence | for |
|---|---|---|
"""


def build(source: Source, dist: Path) -> None:
    """Write licenses.md; locks/sbom.py reads the metadata."""
    sbom = _sbom(source)
    project = tomllib.loads(source.read("pyproject.toml").decode())["project"]
    needs = {_ALWAYS: project["dependencies"]}
    for extra, texts in project["optional-dependencies"].items():
        if extra not in _DEVELOPMENT:
            needs[f"[{extra}]"] = texts
    users: dict[str, list[str]] = {}
    for user, texts in needs.items():
        for name in _closure(texts):
            users.setdefault(sbom.normal(name), []).append(user)
    rows = []
    for package in sbom.installed(distributions()):
        names = users.get(package.name, ())
        if names and package.name != sbom.PRODUCT:
            license_ = (package.license or "not stated").replace("UNKNOWN", "not stated")
            of = _ALWAYS if _ALWAYS in names else ", ".join(names)
            rows.append(f"| {package.name} | {license_} | {of} |\n")
    (dist / "licenses.md").write_text(_INTRODUCTION.format(version=source.version) + "".join(rows))


def _sbom(source: Source) -> ModuleType:
    """Return locks/sbom.py as a module; locks/ is not a package."""
    spec = importlib.util.spec_from_file_location("sbom", source.folder / "locks" / "sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["sbom"] = importlib.util.module_from_spec(spec)  # dataclasses look it up there
    spec.loader.exec_module(module)
    return module


def _closure(texts: Iterable[str]) -> set[str]:
    """Return the names of the installed packages that requirements need, directly or not."""
    names: set[str] = set()
    to_do = [(text, frozenset[str]()) for text in texts]
    done: set[tuple[str, frozenset[str]]] = set()
    while to_do:
        if (item := to_do.pop()) in done:
            continue
        done.add(item)
        requirement, of = Requirement(item[0]), item[1] or {""}
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in of):
            continue
        try:
            needs = distribution(requirement.name).requires or []
        except PackageNotFoundError:
            continue
        names.add(requirement.name)
        to_do += [(text, frozenset(requirement.extras)) for text in needs]
    return names
