"""The locks pin the requirements of pyproject.toml by hash; CI and the container install from them."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from hushmote.fleet.provisioning.usb import old_firmware_warning

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CPYTHON_FILES = ("__init__", "disk", "manifest", "websocket_reporter")  # for CPython or a firmware build only
LOCKS = {path.stem: path.read_text() for path in (ROOT / "locks").glob("*.txt")}
ENTRY = re.compile(
    r"(?P<name>[a-z0-9._-]+(\[[a-z,]+\])?)==(?P<version>[^ ;]+)(?P<marker> ; [^\\]+)? \\\n"
    r"(?P<hashes>(    --hash=sha256:[0-9a-f]{64}( \\)?\n)+)"
)


def script(name: str) -> ModuleType:
    """Return a script in locks/ as a module; locks/ is not a package because it runs without hushmote."""
    module = ModuleType(name)
    path = ROOT / "locks" / f"{name}.py"
    sys.modules[name] = module  # dataclasses look it up here
    module.__file__ = str(path)
    exec(compile(path.read_text(), path, "exec"), module.__dict__)
    return module


def pinned(lock: str) -> dict[str, set[Version]]:
    """Return a lock's versions of each distribution; they may differ by Python version."""
    versions: dict[str, set[Version]] = {}
    for entry in ENTRY.finditer(LOCKS[lock]):
        name = canonicalize_name(entry["name"].partition("[")[0])
        versions.setdefault(name, set()).add(Version(entry["version"]))
    return versions


def wanted(*extras: str) -> list[Requirement]:
    """Return the requirements in pyproject.toml for some of its extras, which may name others."""
    texts = list(PROJECT["project"]["dependencies"])
    texts += [text for extra in extras for text in PROJECT["project"]["optional-dependencies"][extra]]
    requirements = list(map(Requirement, texts))
    included_extras = {extra for r in requirements if r.name == "hushmote" for extra in r.extras}
    if included_extras - set(extras):
        return wanted(*sorted(included_extras | set(extras)))
    return [r for r in requirements if r.name != "hushmote"]


def commands(of: str) -> list[str]:
    """Return the pip calls in shell lines."""
    return [
        part.strip()
        for part in re.split(r"&&|\n", of)
        if re.search(r"\bpip\b (install|download|wheel)", part)
    ]


class TestInstallation:
    def test_ci_installs_only_by_hash(self):
        assert "make test LOCKED=1\n" in (ROOT / ".ci" / "run").read_text()
        dry = ["make", "--dry-run", "--what-if=pyproject.toml", "--what-if=locks/test.txt", ".venv/.test"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        environment["LOCKED"] = ""

        def pip_calls(*more: str) -> list[str]:
            run = subprocess.run([*dry, *more], cwd=ROOT, env=environment, capture_output=True, check=True)
            return commands(run.stdout.decode())

        for command in pip_calls("LOCKED=1"):
            assert "--require-hashes" in command or "--no-index --no-deps" in command
        assert [command.rpartition(" ")[2] for command in pip_calls("LOCKED=1")] == [
            "locks/build.txt",
            "locks/test.txt",
            ".",
        ]
        (plain,) = pip_calls()
        assert plain.endswith("--editable '.[test]'")

    def test_container_is_built_only_by_hash(self):
        text = re.sub(r"\\\n\s*", "", (ROOT / "deploy" / "Containerfile").read_text())
        images = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
        # Without a digest, the image name is invalid and does not build.
        assert images
        assert all(image.endswith("@sha256:${PYTHON_DIGEST}") for image in images)
        assert "ARG PYTHON_DIGEST\n" in text
        steps = commands(text)
        assert len(steps) == 4
        for step in steps:
            assert "--require-hashes" in step or ("--no-index" in step and "--no-deps" in step)
        assert sum("locks/container.txt" in step for step in steps) == 1


def lock_of(*pins: tuple[str, str]) -> str:
    return "".join(f"{name}=={version} \\\n    --hash=sha256:{'ab' * 32}\n" for name, version in pins)


def check_bill(bill: dict[str, Any]) -> None:
    about = bill["metadata"]
    assert about["supplier"] == {
        "name": "Warm Rooms",
        "contact": [{"name": "Warm Rooms", "email": "security@warm.example"}],
    }
    assert about["timestamp"] == "2026-11-25T09:46:40+00:00"
    for part in [*bill["components"], about["component"]]:
        assert part["supplier"]["name"].strip()
        assert part["version"]
        assert part["purl"].startswith("pkg:")
        assert part["licenses"], part["name"]
    refs = {part["bom-ref"] for part in [*bill["components"], about["component"]]}
    assert {line["ref"] for line in bill["dependencies"]} == refs


class TestBillOfMaterials:
    @pytest.mark.slow
    def test_names_exactly_the_installed_packages(self):
        sbom = script("sbom")
        installed = {str(canonicalize_name(d.metadata["Name"])): d.version for d in distributions()}
        installed = {
            name: version for name, version in installed.items() if name not in ("pip", "setuptools", "wheel")
        }
        allowed = sbom.pins(lock_of(*((n, v) for n, v in installed.items() if n != "hushmote")))
        installed_components = sbom.installed(distributions())
        assert sbom.unlocked(installed_components, allowed) == []
        document = json.loads(json.dumps(sbom.document(installed_components, allowed)))
        assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
        components = document["components"]
        assert {
            c["name"]: c["version"] for c in [*components, document["metadata"]["component"]]
        } == installed
        assert all(c["purl"] == c["bom-ref"] == f"pkg:pypi/{c['name']}@{c['version']}" for c in components)
        assert all(c["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}] for c in components)
        references = {d["ref"]: d["dependsOn"] for d in document["dependencies"]}
        assert set(references) == {f"pkg:pypi/{n}@{v}" for n, v in installed.items()}
        assert {target for targets in references.values() for target in targets} <= set(references)
        assert any(
            target.startswith("pkg:pypi/numpy@")
            for target in references[f"pkg:pypi/hushmote@{installed['hushmote']}"]
        )
        parsed = json.loads(json.dumps(sbom.document(installed_components, allowed)))
        assert document["serialNumber"] == parsed["serialNumber"]

    @pytest.mark.slow
    def test_lists_only_shipped_packages(self, tmp_path: Path):
        installed = {str(canonicalize_name(d.metadata["Name"])): d.version for d in distributions()}
        shipped = {name: v for name, v in installed.items() if f"\n{name}==" in LOCKS["container"]}
        assert {"numpy", "sqlalchemy"} <= set(shipped)
        assert "pytest" not in shipped
        lock = tmp_path / "container.txt"
        command = [sys.executable, ROOT / "locks" / "sbom.py", "--shipped", lock]
        lock.write_text(lock_of(*shipped.items()))
        bill = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        assert {part["name"]: part["version"] for part in bill["components"]} == shipped
        assert bill["metadata"]["component"]["name"] == "hushmote"
        lock.write_text(lock_of(*(shipped | {"numpy": "1.0"}).items()))
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (run.returncode, run.stdout) == (1, "")
        assert run.stderr.startswith(f"no lock has numpy {shipped['numpy']}: ")

    @pytest.mark.slow
    def test_is_valid_and_complete(
        self,
        monkeypatch: pytest.MonkeyPatch,
    ):
        """Check the schema, supplier, contact and time, and each part's name, version, purl and licence."""
        json_validation = pytest.importorskip("cyclonedx.validation.json")
        schema = pytest.importorskip("cyclonedx.schema")
        monkeypatch.setenv("SUPPLIER", "Warm Rooms <security@warm.example>")
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795600000")
        sbom = script("sbom")
        validator = json_validation.JsonStrictValidator(schema.SchemaVersion.V1_6)

        def of_server() -> dict[str, Any]:
            return sbom.document(sbom.installed(distributions()), {})

        for document in (of_server, sbom.board_document):
            bill = document()
            assert bill == document()
            assert validator.validate_str(json.dumps(bill)) is None
            check_bill(bill)
        assert validator.validate_str(json.dumps(bill | {"components": [{"name": "no type"}]})) is not None

    def test_lists_every_board_file(self, monkeypatch: pytest.MonkeyPatch):
        sbom = script("sbom")
        parts = {part["name"]: part for part in sbom.board_document("1.28.0")["components"]}
        files = {f"device/{path.name}": path for path in (ROOT / "device").glob("*.py")}
        files = {n: p for n, p in files.items() if p.stem not in CPYTHON_FILES}
        assert set(parts) == {*files, "umqtt.simple", "MicroPython"}
        for name, path in files.items():
            (known,) = parts[name]["hashes"]
            assert known == {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
        assert parts["MicroPython"]["purl"] == "pkg:github/micropython/micropython@v1.28.0"
        assert {p["version"] for p in sbom.board_document()["components"] if p["name"] == "MicroPython"} == {
            "1.24.0"
        }

    @pytest.mark.slow
    def test_rejects_packages_missing_from_lock(self, tmp_path: Path):
        lock = tmp_path / "lock.txt"
        lock.write_text(lock_of(("numpy", "1.0"), ("rich", "0.1")))
        command = [sys.executable, ROOT / "locks" / "sbom.py", lock]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 1
        assert run.stdout == ""
        assert run.stderr.startswith("no lock has ")
        assert "numpy" in run.stderr
        assert run.stderr.count("\n") == 1


class TestAudit:
    def test_vex_statements_hold_for_board_files(self):
        """Check the OpenVEX file's fields, and the basis of each justification."""
        vex = json.loads((ROOT / "locks" / "hushmote.openvex.json").read_text())
        assert vex["@context"] == "https://openvex.dev/ns/v0.2.0"
        assert {"@id", "author", "timestamp", "version", "statements"} <= set(vex)
        by_name = {s["vulnerability"]["name"]: s for s in vex["statements"]}
        for package in by_name.values():
            assert package["status"] in ("not_affected", "affected")
            required = {"not_affected": "justification", "affected": "action_statement"}
            assert required[package["status"]] in package
            assert package["products"][0]["subcomponents"]
        not_run = {
            n for n, s in by_name.items() if s.get("justification") == "vulnerable_code_not_in_execute_path"
        }
        reaches = {"CVE-2026-1998": r"^\s*from .* import \*", "CVE-2024-8946": r"umount"}
        assert not_run == set(reaches)
        for path in (ROOT / "device").rglob("*.py"):
            for flaw, call in reaches.items():
                assert not re.search(call, path.read_text(), re.MULTILINE), f"{path}: {flaw}"

    def test_flash_names_each_flaw_of_versions_that_it_refuses(self):
        vex = json.loads((ROOT / "locks" / "hushmote.openvex.json").read_text())
        for statement in (s for s in vex["statements"] if s["status"] == "affected"):
            match = re.search(r"up to MicroPython ([0-9.]+):", statement["status_notes"])
            assert match is not None
            warning = old_firmware_warning(tuple(map(int, match[1].split("."))))
            assert statement["vulnerability"]["name"] in warning

    def test_missing_data_is_not_a_pass(self):
        verdict = script("audit").verdict
        clean = {"name": "a", "version": "1", "vulns": []}
        flawed = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
        # pip-audit's output for an unknown version, which it reports as without known vulnerabilities.
        unknown = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (1)"}
        assert verdict("x.txt", [clean]) == (0, ["x.txt: no flaw is known in 1 packages"])
        assert verdict("x.txt", [clean, unknown])[0] == 2
        assert verdict("x.txt", [])[0] == 2
        assert verdict("x.txt", [clean, flawed, unknown]) == (1, ["x.txt: b 2 has CVE-1, mended in 3"])


class TestLocks:
    def test_pin_one_version_by_hash_without_url(self):
        assert set(LOCKS) == {"build", "container", "release", "test", "tools"}
        for name, text in LOCKS.items():
            remainder = ENTRY.sub("", text)
            assert re.sub(r"( *#.*)?\n", "", remainder) == "", name
            assert pinned(name)
            assert not re.search(r"://|@|--(extra-)?index|--find-links", text), name

    @pytest.mark.parametrize(
        ("lock", "requirements"),
        [
            ("test", wanted("test")),
            ("container", wanted("postgresql", "page", "notify")),
            ("build", list(map(Requirement, PROJECT["build-system"]["requires"]))),
            ("tools", list(map(Requirement, script("renew").TOOLS))),
            ("release", list(map(Requirement, script("renew").VALIDATORS))),
        ],
        ids=["test", "container", "build", "tools", "release"],
    )
    def test_meet_requirements(self, lock: str, requirements: list[Requirement]):
        versions = pinned(lock)
        assert requirements
        for requirement in requirements:
            locked = versions.get(canonicalize_name(requirement.name))
            assert locked, f"{requirement.name} is missing in locks/{lock}.txt: make lock"
            assert all(requirement.specifier.contains(version) for version in locked), (
                f"{requirement}: make lock"
            )

    def test_container_has_tested_versions(self):
        tested = pinned("test")
        assert {
            name: versions for name, versions in pinned("container").items() if versions != tested[name]
        } == {}

    @pytest.mark.slow
    def test_match_ci_environment(self):
        sbom = script("sbom")
        strange = sbom.unlocked(sbom.installed(distributions()), sbom.pins(LOCKS["test"]))
        # make passes LOCKED=1 on.
        if strange and not os.environ.get("LOCKED"):
            pytest.skip("this environment was made without the lock: make test LOCKED=1")
        assert strange == []

    def test_pin_npm_packages_by_hash_without_url(self):
        """Check MicroPython for browsers, which wheels contain, and the packages that test pages."""
        folder = ROOT / "web" / "board"
        text = (folder / "package-lock.json").read_text()
        lock = json.loads(text)["packages"]
        manifest = json.loads((folder / "package.json").read_text())
        versions = {name.removeprefix("node_modules/"): package for name, package in lock.items() if name}
        assert {name: package["version"] for name, package in versions.items()} == (
            manifest["dependencies"] | manifest["devDependencies"]
        )
        assert all(package["integrity"].startswith("sha512-") for package in versions.values())
        assert "://" not in text

    def test_pin_npm_validators_by_hash_without_registry(self):
        folder = ROOT / "locks" / "release"
        text = (folder / "package-lock.json").read_text()
        lock = {
            name.removeprefix("node_modules/"): package
            for name, package in json.loads(text)["packages"].items()
        }
        wanted = json.loads((folder / "package.json").read_text())["devDependencies"]
        assert {name: lock[name]["version"] for name in wanted} == wanted
        del lock[""]
        assert all(package["integrity"].startswith("sha512-") for package in lock.values())
        assert "resolved" not in text
