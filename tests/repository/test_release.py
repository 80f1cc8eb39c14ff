"""`make release` builds complete archives, the same bytes each time, with addresses from one setting.

tests/whole/test_dist.py uses dist/ as the registries' users would.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from esphome_host import esphome, needs_esphome
from release import archives, embedded, licenses, manifest, npm
from release.source import ReleaseError, Source, absolute_links, copy_source

from hushmote._version import VERSION

ROOT = Path(__file__).parents[2]
LICENSE = (ROOT / "LICENSE").read_bytes()
DEFAULT_URL = "https://github.com/hushmote/hushmote"
pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is built from a git clone")


def content(archive: Path) -> dict[str, bytes]:
    """Return the files in an archive."""
    if archive.suffix in (".zip", ".whl"):
        with zipfile.ZipFile(archive) as opened:
            return {name: opened.read(name) for name in opened.namelist()}
    with tarfile.open(archive) as opened:
        files = ((entry.name, opened.extractfile(entry)) for entry in opened)
        return {name: file.read() for name, file in files if file is not None}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return copy_source(ROOT, tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def dist(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the packages for microcontrollers."""
    folder = tmp_path_factory.mktemp("dist")
    embedded.build(source, folder)
    return folder


@pytest.fixture(scope="module")
def mirror(dist: Path) -> Path:
    return dist / embedded.FOLDER


class TestArchives:
    @pytest.mark.parametrize("write", [archives.write_tar, archives.write_zip])
    def test_ignore_order_umask_and_clock(self, write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        tree = {"b/c.txt": b"text", "a.sh": b"#!/bin/sh\n"}
        write(tmp_path / "one", tree)
        old = os.umask(0o077)
        try:
            monkeypatch.setenv("TZ", "Asia/Tokyo")
            write(tmp_path / "two", dict(reversed(tree.items())))
        finally:
            os.umask(old)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()

    def test_scripts_alone_are_executable(self, tmp_path: Path):
        tree = {"run": b"#!/bin/sh\n", "text": b"text"}
        archives.write_tree(tmp_path / "tree", tree)
        archives.write_tar(tmp_path / "tree.tar.gz", tree)
        archives.write_zip(tmp_path / "tree.zip", tree)
        assert archives.read_tree(tmp_path / "tree") == tree
        expected = {"run": 0o755, "text": 0o644}
        assert {name: (tmp_path / "tree" / name).stat().st_mode & 0o777 for name in tree} == expected
        with tarfile.open(tmp_path / "tree.tar.gz") as tar:
            assert {entry.name: entry.mode for entry in tar} == expected
        with zipfile.ZipFile(tmp_path / "tree.zip") as packed:
            assert {e.filename: e.external_attr >> 16 & 0o777 for e in packed.infolist()} == expected

    def test_files_have_the_time_of_the_commit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1764374400")
        archives.write_tar(tmp_path / "tree.tar.gz", {"a": b""})
        archives.write_zip(tmp_path / "tree.zip", {"a": b""})
        with tarfile.open(tmp_path / "tree.tar.gz") as tar:
            assert [entry.mtime for entry in tar] == [1_764_374_400]
        assert zipfile.ZipFile(tmp_path / "tree.zip").infolist()[0].date_time == (2025, 11, 29, 0, 0, 0)


class TestSource:
    @pytest.mark.parametrize(
        ("link", "expected"),
        [
            ("[a](b.md#c)", "[a](https://x/y/blob/v1/docs/b.md#c)"),
            ("[a](../c/d)", "[a](https://x/y/blob/v1/c/d)"),
            (
                "[![a\nb](c.png)](d.md)",
                "[![a\nb](https://x/y/raw/v1/docs/c.png)](https://x/y/blob/v1/docs/d.md)",
            ),
            ("[a](#b) [c](https://d) [e](mailto:f@g)", "[a](#b) [c](https://d) [e](mailto:f@g)"),
            ("```c\na[0](b)\n```\n[a](b)", "```c\na[0](b)\n```\n[a](https://x/y/blob/v1/docs/b)"),
        ],
    )
    def test_links_lead_to_the_released_version(self, link: str, expected: str):
        assert absolute_links(link, "docs/page.md", "https://x/y", "1") == expected

    def test_one_setting_changes_every_address(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("REPOSITORY_URL", "https://git.example/acme/telemetry.git/")
        source = copy_source(ROOT, tmp_path / "source")
        tree = embedded.tree(source) | {"pyproject.toml": source.read("pyproject.toml")}
        assert source.embedded_url == "https://git.example/acme/telemetry-embedded"
        assert b"source: github://acme/telemetry-embedded " in tree["examples/esphome/example.yaml"]
        assert b"url=https://git.example/acme/telemetry\n" in tree["library.properties"]
        assert [name for name, data in tree.items() if DEFAULT_URL.encode() in data] == []

    @pytest.mark.parametrize("url", ["acme/telemetry", "http://x.example/a/b", "https://x.example"])
    def test_rejects_an_address_of_no_repository(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("REPOSITORY_URL", url)
        with pytest.raises(ReleaseError, match=rf"^{url} is not a repository's address, such as https://"):
            copy_source(ROOT, tmp_path / "source")

    def test_needs_a_clone(self, tmp_path: Path):
        for name in ("pyproject.toml", "hushmote/_version.py"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
        with pytest.raises(
            ReleaseError, match=r"^fatal: not a git repository.*: a release is built from a git clone$"
        ):
            copy_source(tmp_path, tmp_path / "copy")


class TestEmbedded:
    def test_has_each_c_file_once(self, mirror: Path):
        code = [path for path in mirror.rglob("*") if path.suffix in (".c", ".h", ".cpp")]
        assert len(code) > 40
        assert len({path.read_bytes() for path in code}) == len(code)

    def test_root_serves_every_build_system(self, mirror: Path):
        library = json.loads((mirror / "library.json").read_text())
        component = yaml.safe_load((mirror / "idf_component.yml").read_text())
        properties = dict(re.findall(r"(\w+)=(.*)", (mirror / "library.properties").read_text()))
        assert {library["version"], component["version"], properties["version"]} == {VERSION}
        assert (mirror / library["build"]["srcDir"] / properties["includes"]).exists()
        for pattern in (*library["examples"], *component["files"]["exclude"]):
            assert list(mirror.glob(pattern)), pattern
        module = yaml.safe_load((mirror / "zephyr" / "module.yml").read_text())["build"]
        assert (mirror / module["cmake"] / "CMakeLists.txt").exists()
        assert (mirror / module["kconfig"]).exists()
        assert (mirror / "components" / "hushmote" / "__init__.py").exists()

    def test_documents_have_no_broken_links(self, mirror: Path):
        for page in mirror.rglob("*.md"):
            for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
                path = re.fullmatch(rf"{DEFAULT_URL}/(?:blob|raw)/v{VERSION}/(.*)", target)
                assert path is None or (ROOT / path[1]).exists(), f"{page}: {target}"
                assert "://" in target, f"{page}: {target}"

    @pytest.mark.slow
    @pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
    @pytest.mark.parametrize("folder", ["clients/c", "mirror"])
    def test_installed_library_is_found_by_cmake(self, folder: str, mirror: Path, tmp_path: Path):
        project, installed = mirror if folder == "mirror" else ROOT / folder, tmp_path / "installed"
        (tmp_path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.16)\nproject(firmware C)\n"
            f"find_package(hushmote {VERSION} REQUIRED)\nadd_executable(firmware main.c)\n"
            "target_link_libraries(firmware hushmote::hushmote)\n"
        )
        (tmp_path / "main.c").write_text(
            "#include <hushmote.h>\n#include <stdio.h>\n"
            "int main(void) { return puts(hushmote_text(0)) < 0; }\n"
        )
        for command in (
            ["cmake", "-S", project, "-B", "library", f"-DCMAKE_INSTALL_PREFIX={installed}"],
            ["cmake", "--build", "library"],
            ["cmake", "--install", "library"],
            ["cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={installed}"],
            ["cmake", "--build", "build"],
            ["build/firmware"],
        ):
            subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        headers = {path.name for path in (installed / "include").iterdir()}
        assert {"hushmote.h", "hushmote_port.h"} <= headers
        assert not headers & {"core.h", "hushmote_arduino.h"}

    @needs_esphome
    @pytest.mark.slow
    def test_esphome_finds_everything_in_the_tree(self, mirror: Path, tmp_path: Path):
        """ESPHome clones the repository, as with github://, and copies the C client from the clone."""
        shutil.copytree(mirror, tmp_path / "repository")
        git = ["git", "-C", tmp_path / "repository", "-c", "user.name=a", "-c", "user.email=a@example.org"]
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "Release"]):
            subprocess.run([*git, *command], check=True)
        example = (mirror / "examples" / "esphome" / "example.yaml").read_text()
        remote = f'{{type: git, url: "file://{tmp_path}/repository"}}'
        example, count = re.subn(r"github://\S+.*", remote, example)
        assert count == 1
        (tmp_path / "desk.yaml").write_text(example)
        (tmp_path / "secrets.yaml").write_text("wifi_ssid: any\nwifi_password: any_password\n")
        (tmp_path / "hushmote").mkdir()
        identity = "fleet: home\ndevice_id: desk\nbroker: 127.0.0.1\n"
        (tmp_path / "hushmote" / "desk.esphome.yaml").write_text(identity)
        esphome("compile", "--only-generate", "desk.yaml", folder=tmp_path)
        component = tmp_path / ".esphome/build/desk/src/esphome/components/hushmote"
        core = {path.name for path in (mirror / "src").glob("*.[ch]")} - {"hushmote_arduino.h"}
        copied = {path.name for path in component.iterdir()}
        assert core | {"hushmote_component.cpp", "hushmote_idf.h", "idf_nvs.c"} <= copied
        assert "mqtt.c" not in copied  # the port of the host
        (clone,) = (tmp_path / ".esphome" / "external_components").iterdir()
        status = subprocess.run(
            ["git", "-C", clone, "status", "--porcelain"],
            capture_output=True,
            check=True,
        )
        assert status.stdout == b""


class TestLicences:
    def test_every_archive_has_the_licence(self, source: Source, dist: Path):
        npm.build(source, dist)
        found = [path for path in dist.iterdir() if path.is_file()]
        assert {path.name for path in found} == {
            f"hushmote-arduino-{VERSION}.zip",
            f"hushmote-esp-idf-{VERSION}.tgz",
            f"hushmote-platformio-{VERSION}.tar.gz",
            f"hushmote-{VERSION}.tgz",
        }
        for archive in found:
            assert LICENSE in content(archive).values(), archive.name
        assert (dist / embedded.FOLDER / "LICENSE").read_bytes() == LICENSE

    def test_list_has_every_dependency_of_a_server(self, source: Source, tmp_path: Path):
        licenses.build(source, tmp_path)
        rows = re.findall(
            r"^\| (\S+) \| (.+) \| (.+) \|$", (tmp_path / "licenses.md").read_text(), re.MULTILINE
        )
        of = {name: (license_, users) for name, license_, users in rows}
        assert of["numpy"][1] == "every server"
        assert of["pydantic-core"] == ("MIT", "every server")  # of pydantic
        assert of["psycopg-binary"] == ("LGPL-3.0-only", "[postgresql]")
        assert not of.keys() & {"hushmote", "pytest", "mkdocs"}


class TestBuild:
    def test_never_deletes_a_folder_of_others(self, tmp_path: Path):
        (tmp_path / "thesis.txt").touch()
        command = [sys.executable, ROOT / "tools/make_release.py", "--no-validation", "--dist", tmp_path]
        result = subprocess.run(command, capture_output=True, text=True)
        message = f"{tmp_path} is not an earlier build: delete it, or name another folder with --dist"
        assert result.stderr == f"make_release: {message}\n"
        assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]

    def test_packages_are_the_same_bytes_in_another_folder(self, dist: Path, tmp_path: Path):
        old = os.umask(0o077)
        try:
            again = copy_source(ROOT, tmp_path / "elsewhere")
            (tmp_path / "dist").mkdir()
            embedded.build(again, tmp_path / "dist")
        finally:
            os.umask(old)
        sums = manifest.sums(tmp_path / "dist")
        assert len(sums) > 70
        assert {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in sums} == sums

    @pytest.mark.long
    def test_everything_is_the_same_bytes_elsewhere(self, tmp_path: Path):
        """Build from two clones with other umasks, time zones, languages and home folders."""
        dists = []
        for name, umask, more in (("one", 0o022, {}), ("two", 0o077, {"TZ": "Asia/Tokyo", "LC_ALL": "C"})):
            clone, dist = tmp_path / name / "clone", tmp_path / name / "dist"
            subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
            shutil.copytree(ROOT / "web/board/static/micropython", clone / "web/board/static/micropython")
            environment = os.environ | {"HOME": str(tmp_path / name)} | more
            environment.pop("SOURCE_DATE_EPOCH", None)
            command = [sys.executable, "tools/make_release.py", "--no-validation", "--dist", dist]
            subprocess.run(command, cwd=clone, env=environment, umask=umask, check=True, capture_output=True)
            dists.append(archives.read_tree(dist))
        one, two = dists
        assert [name for name in one.keys() | two.keys() if one.get(name) != two.get(name)] == []
        check = ["sha256sum", "--check", "--quiet", "--strict", manifest.SUMS]
        subprocess.run(check, cwd=tmp_path / "one" / "dist", check=True)
        statement = json.loads(one[manifest.PROVENANCE])
        assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
        subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in one.items()}
        assert subjects == {name: digest for name, digest in digests.items() if name != manifest.PROVENANCE}
        commit = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        repository = statement["predicate"]["buildDefinition"]["resolvedDependencies"][0]
        assert repository["digest"] == {"gitCommit": commit.stdout.strip()}
        for name in one:
            if "/" not in name and name.endswith((".whl", ".gz", ".tgz", ".zip")):
                assert LICENSE in content(tmp_path / "one" / "dist" / name).values(), name
        assert one["mip/LICENSE"] == LICENSE
        modules = [name for name in one if name.startswith("mip/") and name.endswith(".mpy")]
        assert len(modules) > 20
        for name in modules:  # however they come onto a board, the manifest has their hashes
            assert one[name.replace("mip/", "board/lib/")] == one[name]
        assert one["board/main.py"] == (ROOT / "device/main.py").read_bytes()
