"""The validators of `make release`: each rejects an artifact with a mistake, and none is left out silently.

A validator whose program is missing skips its test; tools/release/validator_tools.py installs the programs.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from release import embedded, npm, python, server, validator_tools, validators
from release.source import commit_time, copy_source

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "tools" / "release" / "schemas"
needs_clone = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is built from a git clone")
APP = """
name: Hushmote
version: 0.2.0
slug: hushmote
description: Private telemetry for device fleets
url: https://example.org/hushmote
arch: [aarch64, amd64]
init: false
ingress: true
ingress_port: 9419
panel_icon: mdi:chart-bell-curve
services: ["mqtt:need"]
map: [{type: addon_config, read_only: false}]
options: {fleet: home, names: []}
schema: {fleet: 'match(^[a-z0-9_-]{1,32}$)', names: [str], port: 'int(1,65535)?'}
"""


def replace(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


# The artifact, the file in it, the mistake, and a part of the message.
MISTAKES: dict[str, tuple[str, str, Callable[[str], str] | None, str]] = {
    "twine check --strict": ("*.whl", "METADATA", replace("Metadata-Version: ", "Metadata-Version: 9"), "9"),
    "check-wheel-contents": ("*.whl", "RECORD", replace("hushmote/_version.py,", "hushmote/-.py,"), "W004"),
    "pyroma": (
        "hushmote-[0-9]*.tar.gz",
        "/pyproject.toml",
        lambda t: re.sub("authors = .*", "", t),
        "author",
    ),
    "validate-pyproject": (
        "hushmote-[0-9]*.tar.gz",
        "/pyproject.toml",
        replace("requires-python = ", "requires_python = "),
        "requires_python",
    ),
    "publint": ("hushmote-[0-9]*.tgz", "/preview.js", None, "preview.js"),
    "attw": ("hushmote-[0-9]*.tgz", "/preview.d.ts", None, "preview"),
    "compote component pack": (
        "hushmote-esp-idf-*.tgz",
        "idf_component.yml",
        lambda t: re.sub("version: .*", "version: new", t, count=1),
        "version",
    ),
    "schema of ESP-IDF": (
        "hushmote-embedded",
        "idf_component.yml",
        replace("license: Apache-2.0", "license: [Apache-2.0]"),
        "license",
    ),
    "schema of PlatformIO": (
        "hushmote-embedded",
        "library.json",
        replace('"name": "Hushmote"', '"name": ""'),
        "name",
    ),
    "schema of Zephyr": ("hushmote-embedded", "zephyr/module.yml", replace("cmake:", "make:"), "make"),
    "schema of Home Assistant": (
        "hushmote-home-assistant-*.tar.gz",
        "/config.yaml",
        replace("mqtt:need", "mqtt"),
        "mqtt",
    ),
    "schema of Compose": (
        "hushmote-container-*.tar.gz",
        "compose.yaml",
        replace("pids_limit: 512", "pid_limit: 512"),
        "pid_limit",
    ),
    "esphome config": ("hushmote-embedded", "components/hushmote/__init__.py", None, "hushmote"),
    "hadolint": (
        "hushmote-container-*.tar.gz",
        "Containerfile",
        replace("WORKDIR /source", "RUN cd /"),
        "DL3003",
    ),
    "yamllint": ("hushmote-embedded", "idf_component.yml", lambda t: t + "license: MIT\n", "duplication"),
    "arduino-lint": (
        "hushmote-arduino-*.zip",
        "library.properties",
        replace("version=", "number="),
        "version",
    ),
    "promtool": (
        "hushmote-container-*.tar.gz",
        "hushmote.rules.yml",
        replace("max by (", "max buy ("),
        "parse",
    ),
}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the artifacts that validators check."""
    folder = tmp_path_factory.mktemp("dist")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", commit_time(ROOT))
        source = copy_source(ROOT, tmp_path_factory.mktemp("source"))
        for build in (python.build, npm.build, embedded.build, server.build_container, server.build_app):
            build(source, folder)
    return folder


def damage(dist: Path, artifact: str, name: str, change: Callable[[str], str] | None) -> None:
    """Change a file of an artifact, or remove it."""
    (path,) = dist.glob(artifact)
    if path.is_dir():
        file = path / name
        file.unlink() if change is None else file.write_text(change(file.read_text()))
        return
    files = read(path)
    found = min((each for each in files if each.endswith(name)), key=len)
    content = files.pop(found)
    if change is not None:
        files[found] = change(content.decode()).encode()
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for each, data in files.items():
                archive.writestr(each, data)
        return
    with tarfile.open(path, "w:gz") as archive:
        for each, data in files.items():
            entry = tarfile.TarInfo(each)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def read(path: Path) -> dict[str, bytes]:
    if path.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(path) as archive:
        members = ((member.name, archive.extractfile(member)) for member in archive)
        return {name: file.read() for name, file in members if file is not None}


@needs_clone
@pytest.mark.long
class TestValidators:
    @pytest.mark.parametrize("name", list(validators.VALIDATORS))
    def test_passes_what_was_built(self, dist: Path, name: str):
        (result,) = validators.validate(dist, ROOT, [name])
        if result.status == "skipped":
            pytest.skip(result.detail)
        assert result.status == "passed", result.detail

    @pytest.mark.parametrize("name", list(MISTAKES))
    def test_rejects_a_mistake(self, dist: Path, tmp_path: Path, name: str):
        artifact, file, change, message = MISTAKES[name]
        shutil.copytree(dist, tmp_path / "dist")
        damage(tmp_path / "dist", artifact, file, change)
        (result,) = validators.validate(tmp_path / "dist", ROOT, [name])
        if result.status == "skipped":
            pytest.skip(result.detail)
        assert result.status == "failed"
        assert re.search(message, result.detail), result.detail
        assert str(tmp_path) not in result.detail


class TestActionlint:
    @pytest.mark.slow
    def test_rejects_a_mistake_in_a_workflow(self, tmp_path: Path):
        workflows = ".github/workflows"
        shutil.copytree(ROOT / workflows, tmp_path / workflows)
        path = tmp_path / workflows / "test.yml"
        path.write_text(path.read_text().replace("runs-on: ubuntu-", "runs-on: ubuntoo-"))
        (result,) = validators.validate(tmp_path / "dist", tmp_path, ["actionlint"])
        if result.status == "skipped":
            pytest.skip(result.detail)
        assert result.status == "failed"
        assert "ubuntoo" in result.detail


class TestMissing:
    def test_names_missing_program_and_reason(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(validator_tools, "FOLDER", tmp_path)
        monkeypatch.setenv("PATH", "")
        (tmp_path / "missing.json").write_text(json.dumps({"yamllint": "403 Forbidden"}))
        (result,) = validators.validate(ROOT, ROOT, ["schema of Zephyr"])
        assert str(result).startswith("skipped  schema of Zephyr: not installed; run ")
        assert validator_tools.missing_reason("yamllint") == "403 Forbidden"
        assert "apt-get install prometheus" in validator_tools.missing_reason("promtool")

    def test_fails_if_an_artifact_is_missing(self, tmp_path: Path):
        (result,) = validators.validate(tmp_path, ROOT, ["publint"])
        assert result.status == "failed"
        assert result.detail.endswith("has 0 of hushmote-[0-9]*.tgz, not 1; `make release` builds it")

    def test_keeps_why_a_program_cannot_be_installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        for part, lock in {"python": "release.txt", "node": "release/package-lock.json"}.items():
            shutil.copy(ROOT / "locks" / lock, tmp_path / f".{part}")
        monkeypatch.setattr(validator_tools, "FOLDER", tmp_path)
        monkeypatch.setenv("PATH", "")
        (tmp_path / "esphome").touch()
        monkeypatch.setitem(validator_tools._INTERPRETERS, "esphome", tmp_path / "esphome")
        reason = "Go is not installed; run `apt-get install golang`"
        assert validator_tools.install() == dict.fromkeys(validator_tools.GO_PROGRAMS, reason)
        assert validator_tools.missing_reason("actionlint") == reason


class TestSchemas:
    def app_errors(self, **changes: Any) -> list[str]:
        schema = json.loads((SCHEMAS / "home_assistant_app.json").read_text())
        config = yaml.safe_load(APP) | changes
        return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(config)]

    def test_accepts_a_home_assistant_app(self):
        assert self.app_errors() == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"arch": ["x86"]},
            {"services": ["mqtt"]},
            {"version": "new"},
            {"slug": "Hush mote"},
            {"privileged": ["SYS_ADMIN"]},
            {"full_access": True},
            {"schema": {"fleet": "string"}},
            {"map": ["config:rw"]},
            {"ingres": True},
        ],
        ids=str,
    )
    def test_rejects_what_an_app_must_not_have(self, changes: dict[str, Any]):
        assert self.app_errors(**changes)

    def test_rejects_unknown_key_of_a_zephyr_module(self):
        schema = json.loads((SCHEMAS / "zephyr_module.json").read_text())
        module = yaml.safe_load((ROOT / "clients" / "c" / "zephyr" / "module.yml").read_text())
        jsonschema.Draft202012Validator(schema).validate(module)
        with pytest.raises(jsonschema.ValidationError, match="kconfgi"):
            jsonschema.Draft202012Validator(schema).validate(
                module | {"build": {"kconfgi": "zephyr/Kconfig"}}
            )
