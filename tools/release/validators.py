"""Check dist/ with the programs of the registries and tools that it is for.

    .venv/bin/python tools/release/validators.py [DIST]

It prints one line for each: passed, failed with the program's own output, or skipped with the reason. It
installs missing programs first; the checks themselves work offline. PlatformIO's and ESP-IDF's own schemas
check their manifests, and check-jsonschema includes one for compose.yaml. No registry has schemas for a
Zephyr module and a Home Assistant app, so those in schemas/ are ours.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

if __package__:
    from .validator_tools import ROOT, find_program, install, missing_reason
else:
    from validator_tools import ROOT, find_program, install, missing_reason

_SCHEMAS = Path(__file__).resolve().parent / "schemas"
_WORKFLOWS = ".github/workflows"
_APP = "deploy/home-assistant"
_EMBEDDED = "hushmote-embedded"
# PlatformIO downloads the list of SPDX licences; this is the one that the manifests name.
_PLATFORMIO = """
import sys
from platformio.package.manifest.parser import ManifestParserFactory
from platformio.package.manifest.schema import ManifestSchema
ManifestSchema.load_spdx_licenses = staticmethod(lambda: {"licenses": [{"licenseId": "Apache-2.0"}]})
for path in sys.argv[1:]:
    ManifestSchema().load_manifest(ManifestParserFactory.new_from_file(path).as_dict())
"""
_EXTERNAL_COMPONENTS = re.compile(r"^external_components:\n(?:[ \t].*\n)+", re.MULTILINE)


@dataclass(frozen=True)
class Result:
    """What one program said.

    Args:
        name: The program.
        status: Whether the artifacts passed, failed, or were not checked.
        detail: What was checked, the program's own output, or the reason for not checking.
    """

    name: str
    status: Literal["passed", "failed", "skipped"]
    detail: str

    def __str__(self) -> str:
        first, *rest = self.detail.strip().splitlines() or [""]
        return "\n".join([f"{self.status:8} {self.name}: {first}", *(f"         {line}" for line in rest)])


class _Failure(Exception):
    """The message is the program's output."""


class _Skip(Exception):
    """The message is the reason."""


@dataclass(frozen=True)
class _Release:
    """The artifacts, the sources that they were built from, and an empty folder to work in."""

    dist: Path
    source: Path
    scratch: Path

    def one(self, pattern: str) -> Path:
        """Return the only artifact that a pattern matches."""
        matches = sorted(self.dist.glob(pattern))
        if len(matches) != 1:
            raise _Failure(f"{self.dist} has {len(matches)} of {pattern}, not 1; `make release` builds it")
        return matches[0]

    def unpacked(self, pattern: str) -> Path:
        """Unpack an artifact, and return its folder."""
        path = self.one(pattern)
        folder = self.scratch / path.name
        if not folder.exists():
            if path.suffix == ".zip":
                with zipfile.ZipFile(path) as archive:
                    archive.extractall(folder)
            else:
                with tarfile.open(path) as archive:
                    archive.extractall(folder, filter="data")
        inside = list(folder.iterdir())
        return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder

    def app(self) -> Path:
        """Return the folder of the Home Assistant app's repository."""
        if not (self.source / _APP).exists():
            raise _Skip(f"the repository has no {_APP}")
        return self.unpacked("hushmote-home-assistant-*.tar.gz")

    def folders(self) -> list[Path]:
        """Return the folders of everything that was unpacked or not packed, and of the sources."""
        folders = [self.dist / _EMBEDDED, self.unpacked("hushmote-container-*.tar.gz")]
        return [*folders, self.app()] if (self.source / _APP).exists() else folders

    def run(self, name: str, *arguments: str | Path, cwd: Path | None = None) -> str:
        """Run a program, and return its output; find_program() knows where it is."""
        program = find_program(name)
        if program is None:
            raise _Skip(missing_reason(name))
        command = [program, "-m", "esphome"] if name == "esphome" else [program]
        # Nothing that a program keeps gets into the user's home, and no colour into its output.
        environment = {
            "HOME": str(self.scratch),
            "NO_COLOR": "1",
            "PLATFORMIO_SETTING_ENABLE_TELEMETRY": "false",
            "PYTHONWARNINGS": "ignore",
        }
        result = subprocess.run(
            [*command, *arguments],
            cwd=cwd or self.scratch,
            env=os.environ | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            output = f"{result.stdout}{result.stderr}".strip() or f"exit status {result.returncode}"
            for folder in (self.scratch, self.dist.parent, self.source):
                output = output.replace(f"{folder}/", "")
            raise _Failure(output)
        return result.stdout


def validate(dist: Path, source: Path, names: Iterable[str] = ()) -> list[Result]:
    """Check the artifacts of a release.

    Args:
        dist: The folder that `make release` writes.
        source: The sources that it was built from.
        names: The validators to run; all if empty.

    Returns:
        One result for each validator.
    """
    selected = list(names) or list(VALIDATORS)
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        release = _Release(dist.resolve(), source.resolve(), Path(scratch))
        for name in selected:
            try:
                results.append(Result(name, "passed", VALIDATORS[name](release)))
            except _Failure as e:
                results.append(Result(name, "failed", str(e)))
            except _Skip as e:
                results.append(Result(name, "skipped", str(e)))
    return results


def _twine(release: _Release) -> str:
    files = [release.one("*.whl"), release.one("hushmote-[0-9]*.tar.gz")]
    release.run("twine", "--no-color", "check", "--strict", *files)
    return _names(files)


def _check_wheel_contents(release: _Release) -> str:
    wheel = release.one("*.whl")
    release.run("check-wheel-contents", "--config", release.source / "pyproject.toml", wheel)
    return wheel.name


def _pyroma(release: _Release) -> str:
    sdist = release.one("hushmote-[0-9]*.tar.gz")
    release.run("pyroma", "--min", "10", "--file", sdist)
    return f"{sdist.name} is rated 10/10"


def _validate_pyproject(release: _Release) -> str:
    path = release.unpacked("hushmote-[0-9]*.tar.gz") / "pyproject.toml"
    release.run("validate-pyproject", path)
    return "pyproject.toml of the sdist"


def _publint(release: _Release) -> str:
    package = release.one("hushmote-[0-9]*.tgz")
    release.run("publint", "run", package, "--strict")
    return package.name


def _attw(release: _Release) -> str:
    package = release.one("hushmote-[0-9]*.tgz")
    # CommonJS can import() the package; it has no second copy for require().
    rules = ("--ignore-rules", "cjs-resolves-to-esm")
    release.run("attw", package, "--no-definitely-typed", "--no-emoji", "--format", "ascii", *rules)
    return f"{package.name}, every subpath"


def _compote(release: _Release) -> str:
    component = release.unpacked("hushmote-esp-idf-*.tgz")
    for name, folder in {"component": component, "mirror": release.dist / _EMBEDDED}.items():
        release.run("compote", "manifest", "lint", folder / "idf_component.yml")
        packed = release.scratch / f"packed {name}"
        pack = ("component", "pack", "--project-dir", folder, "--name", "hushmote", "--dest-dir", packed)
        release.run("compote", *pack)
    return f"{release.one('hushmote-esp-idf-*.tgz').name} and {_EMBEDDED} can be packed"


def _esp_idf_schema(release: _Release) -> str:
    schema = release.scratch / "idf_component.json"
    schema.write_text(release.run("compote", "manifest", "schema"))
    files = [
        release.unpacked("hushmote-esp-idf-*.tgz") / "idf_component.yml",
        *(release.dist / _EMBEDDED).rglob("idf_component.yml"),
    ]
    # The schema's patterns are those of Python.
    release.run("check-jsonschema", "--regex-variant", "python", "--schemafile", schema, *files)
    return f"{len(files)} idf_component.yml"


def _platformio(release: _Release) -> str:
    embedded = release.dist / _EMBEDDED
    files = [
        embedded / "library.json",
        embedded / "library.properties",
        release.unpacked("hushmote-platformio-*.tar.gz") / "library.json",
        release.unpacked("hushmote-arduino-*.zip") / "library.properties",
    ]
    release.run("platformio", "-c", _PLATFORMIO, *files)
    return "library.json and library.properties, twice each"


def _zephyr(release: _Release) -> str:
    module = release.dist / _EMBEDDED / "zephyr" / "module.yml"
    release.run("check-jsonschema", "--schemafile", _SCHEMAS / "zephyr_module.json", module)
    return f"{_EMBEDDED}/zephyr/module.yml, by our own schema"


def _home_assistant(release: _Release) -> str:
    app = release.app()
    repository, configs = app / "repository.yaml", sorted(app.glob("*/config.yaml"))
    if not configs or not repository.exists():
        raise _Failure("the app's archive needs repository.yaml and a folder with config.yaml")
    release.run("check-jsonschema", "--schemafile", _SCHEMAS / "home_assistant_app.json", *configs)
    release.run("check-jsonschema", "--schemafile", _SCHEMAS / "home_assistant_repository.json", repository)
    return "config.yaml and repository.yaml, by our own schemas"


def _compose(release: _Release) -> str:
    folder = release.unpacked("hushmote-container-*.tar.gz") / "deploy"
    files = (folder / "compose.yaml", release.source / "deploy" / "compose.demo.yaml")
    release.run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", *files)
    return ", ".join(path.name for path in files)


def _esphome(release: _Release) -> str:
    if find_program("esphome") is None:
        raise _Skip(missing_reason("esphome"))
    folder = release.scratch / "esphome"
    repository = folder / "hushmote-embedded"
    _commit_all(release.dist / _EMBEDDED, repository)
    (folder / "hushmote").mkdir()
    provision = [sys.executable, "-m", "hushmote", "provision"]
    _run_quietly([*provision, "keys", "master.key"], folder)
    identity = (
        "--for",
        "esphome",
        "--fleet",
        "home",
        "--master-key",
        "master.key",
        "--broker",
        "mqtt://broker",
    )
    _run_quietly([*provision, "device", "desk", *identity], folder)
    (folder / "desk.esphome.yaml").rename(folder / "hushmote" / "desk.esphome.yaml")
    (folder / "secrets.yaml").write_text("wifi_ssid: any\nwifi_password: any_password\n")
    example = (release.dist / _EMBEDDED / "examples" / "esphome" / "example.yaml").read_text()
    source = f"external_components:\n  - source: {{type: git, url: 'file://{repository}'}}\n"
    example, count = _EXTERNAL_COMPONENTS.subn(source, example)
    if count != 1:
        raise _Failure(f"example.yaml has {count} external_components, not 1")
    (folder / "desk.yaml").write_text(example)
    release.run("esphome", "config", "desk.yaml", cwd=folder)
    return f"the example, with components/ from {_EMBEDDED} as a git repository"


def _hadolint(release: _Release) -> str:
    files = _some(_named(release, "Containerfile", "Dockerfile"), "Containerfile")
    release.run("hadolint", "--no-color", *files)
    return _names(files)


def _yamllint(release: _Release) -> str:
    files = _named(release, "*.yml", "*.yaml", sources=True)
    release.run("yamllint", "--strict", "--config-file", release.source / ".yamllint", *files)
    return f"{len(files)} YAML files of the repository and of dist/"


def _actionlint(release: _Release) -> str:
    files = [path for path in _tracked(release.source) if path.parent == release.source / _WORKFLOWS]
    files += sorted((release.dist / _EMBEDDED / _WORKFLOWS).glob("*.y*ml"))
    if not files:
        raise _Skip(f"the repository has no {_WORKFLOWS}")
    release.run("actionlint", "-no-color", *files)
    release.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    return _names(files)


def _arduino_lint(release: _Release) -> str:
    library = release.unpacked("hushmote-arduino-*.zip")
    options = ("--compliance", "strict", "--library-manager", "submit", "--project-type", "library")
    name = release.one("hushmote-arduino-*.zip").name
    try:
        release.run("arduino-lint", *options, library)
    except _Failure as e:
        if "Library Manager index" in str(e):
            raise _Skip(str(e)) from None
        # Rule LP042 loads the library's address, which exists only after the first push.
        errors = re.findall(r"^ERROR: (.*)", str(e), re.MULTILINE)
        if len(errors) != 1 or not errors[0].startswith("Unable to load the library.properties url field"):
            raise
        return f"{name}, except that its url cannot be loaded"
    return name


def _promtool(release: _Release) -> str:
    folder = release.unpacked("hushmote-container-*.tar.gz") / "deploy" / "prometheus"
    rules = _some(folder.glob("*.rules.yml"), "alert rules")
    tests = _some(folder.glob("*.rules.test.yml"), "tests of alert rules")
    release.run("promtool", "check", "config", "prometheus.yml", cwd=folder)
    release.run("promtool", "check", "rules", *rules, cwd=folder)
    release.run("promtool", "test", "rules", *tests, cwd=folder)
    return _names([folder / "prometheus.yml", *rules, *tests])


VALIDATORS: dict[str, Callable[[_Release], str]] = {
    "twine check --strict": _twine,
    "check-wheel-contents": _check_wheel_contents,
    "pyroma": _pyroma,
    "validate-pyproject": _validate_pyproject,
    "publint": _publint,
    "attw": _attw,
    "compote component pack": _compote,
    "schema of ESP-IDF": _esp_idf_schema,
    "schema of PlatformIO": _platformio,
    "schema of Zephyr": _zephyr,
    "schema of Home Assistant": _home_assistant,
    "schema of Compose": _compose,
    "esphome config": _esphome,
    "hadolint": _hadolint,
    "yamllint": _yamllint,
    "actionlint": _actionlint,
    "arduino-lint": _arduino_lint,
    "promtool": _promtool,
}


def _some(files: Iterable[Path], kind: str) -> list[Path]:
    """Return the files, sorted; fail if there are none, which some programs accept."""
    if not (paths := sorted(files)):
        raise _Failure(f"the release has no {kind}")
    return paths


def _names(files: Iterable[Path]) -> str:
    return ", ".join(path.name for path in files)


def _named(release: _Release, *patterns: str, sources: bool = False) -> list[Path]:
    """Return the files of the artifacts, and optionally of the sources, that a pattern matches."""
    files = {path for folder in release.folders() for pattern in patterns for path in folder.rglob(pattern)}
    if sources:
        files |= {path for path in _tracked(release.source) if any(path.match(p) for p in patterns)}
    return sorted(files)


def _tracked(source: Path) -> list[Path]:
    """Return the sources' tracked files, or all of them if the folder is not a clone."""
    listed = subprocess.run(
        ["git", "-C", source, "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if listed.returncode:
        return sorted(path for path in source.rglob("*") if path.is_file())
    return [path for name in listed.stdout.split("\0") if name and (path := source / name).exists()]


def _commit_all(folder: Path, repository: Path) -> None:
    """Make a git repository with a folder's content."""
    repository.mkdir(parents=True)
    git = ["git", f"--git-dir={repository}/.git", f"--work-tree={folder}"]
    _run_quietly(["git", "init", "--quiet", repository], repository)
    _run_quietly([*git, "add", "--all"], repository)
    author = ["-c", "user.name=release", "-c", "user.email=release@example.org", "-c", "commit.gpgsign=false"]
    _run_quietly([*git, *author, "commit", "--quiet", "--message", "Release"], repository)


def _run_quietly(command: list[str | Path], folder: Path) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode:
        raise _Failure(f"{result.stdout}{result.stderr}".strip())


def report(dist: Path, source: Path) -> bool:
    """Install what is missing, check the artifacts, and print the results; return whether none failed."""
    install()
    results = validate(dist, source)
    print(*results, sep="\n")
    print(", ".join(f"{sum(r.status == s for r in results)} {s}" for s in ("passed", "failed", "skipped")))
    return all(result.status != "failed" for result in results)


if __name__ == "__main__":
    sys.exit(not report(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist", ROOT))
